"""One client for many producers, and the shares through which they use it."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import ProducerClosed, RequestTimedOutError

from ringfence_kafka.aiokafka_patches import internals
from ringfence_kafka.concurrency.timeouts import retrieve_outcome

STOP_LIMIT_S: Final = 5.0


class SharedClient(AIOKafkaClient):  # type: ignore[misc]
    """Client for producers that start and stop at any time."""

    def __init__(self, asker: "SharedClient | None" = None, **options: Any) -> None:
        """Create the client. ``asker``: client that requests the metadata; None = this one."""
        super().__init__(**options)
        self.shares = 0
        self._asker = asker or self
        self.cluster: Any = self._asker.cluster
        self._attempts: dict[tuple[int, ConnectionGroup], asyncio.Task[Any]] = {}
        self._sync_task: asyncio.Task[None] | None
        self._reaching: asyncio.Task[None] | None = None

    _metadata_update = internals.ASK_METADATA

    async def _get_conn(
        self, node_id: int, *, group: ConnectionGroup = ConnectionGroup.DEFAULT, no_hint: bool = False
    ) -> Any:
        """Connect, with one attempt at a time for each broker; attempts for other brokers do not wait.

        aiokafka makes one connection at a time: many producers would try an unreachable broker one after the other, each for seconds.
        """
        attempt = self._attempts.get((node_id, group))
        if attempt is None or attempt.done():
            connecting = super()._get_conn(node_id, group=group, no_hint=no_hint)
            attempt = self._attempts[node_id, group] = asyncio.create_task(connecting)
            attempt.add_done_callback(retrieve_outcome)
        return await asyncio.shield(attempt)

    @property
    def _get_conn_lock(self) -> contextlib.AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()

    # -- metadata, requested once for all clients --------------------------------------------------------------

    def force_metadata_update(self) -> Any:
        """Refresh the metadata. Concurrent callers get the same result."""
        return super(SharedClient, self._asker).force_metadata_update()

    def add_topic(self, topic: str) -> Any:
        """Include a topic in all metadata requests from now on."""
        return super(SharedClient, self._asker).add_topic(topic)

    async def _maybe_wait_metadata(self) -> None:
        await super(SharedClient, self._asker)._maybe_wait_metadata()

    # -- connections ---------------------------------------------------------------------------------------------

    async def reach(self) -> None:
        """Wait until a broker is connected. Callers share one attempt.

        Clients that lost all their brokers start again with the bootstrap servers, like new ones.
        """
        task = self._asker._sync_task
        if task is not None and not task.done() and any(conn.connected() for conn in self._conns.values()):
            return
        if self._reaching is None or self._reaching.done():
            self._reaching = asyncio.create_task(self._reach())
            self._reaching.add_done_callback(retrieve_outcome)
        await asyncio.shield(self._reaching)

    async def _reach(self) -> None:
        if self._asker is not self:
            await self._asker.reach()
        else:
            if self._sync_task is not None and self._sync_task.done():
                self._sync_task = None  # an error ended it, and bootstrap() starts another
            await self.bootstrap()
        node = self.get_random_node()
        if node is not None:
            await self.ready(node)

    async def send(
        self, node_id: int, request: Any, *, group: ConnectionGroup = ConnectionGroup.DEFAULT
    ) -> Any:
        """Send a request, as aiokafka does. If two requests time out together, the later one finds its connection removed."""
        try:
            return await super().send(node_id, request, group=group)
        except KeyError as error:
            if error.args != ((node_id, group),):
                raise
            raise RequestTimedOutError from error

    async def end(self) -> None:
        """Close all connections."""
        for item in (self._reaching, *self._attempts.values()):
            if item is not None:
                item.cancel()
        with contextlib.suppress(Exception):
            async with asyncio.timeout(STOP_LIMIT_S):
                await self.close()


def _passed_on(name: str) -> Any:
    """Return a method that calls the client's of this name, until the share is closed."""

    async def call(share: "ClientShare", *arguments: Any, **options: Any) -> Any:
        return await share._while_open(getattr(share._client, name)(*arguments, **options))

    return call


class ClientShare:
    """Stands for a producer's own client: the part of aiokafka's client that a producer uses.

    After its close, pending requests of its own producer fail at once, and those of other producers continue.
    """

    def __init__(self, client: SharedClient) -> None:
        self._client = client
        self._open = True
        self._scopes: set[asyncio.Timeout] = set()
        client.shares += 1

    @property
    def cluster(self) -> Any:
        """Metadata of the cluster."""
        return self._client.cluster

    @property
    def _client_id(self) -> str:
        return str(self._client._client_id)

    async def close(self) -> None:
        """Remove this producer from the client. Each stopping producer calls it, possibly several times."""
        if self._open:
            self._open = False
            self._client.shares -= 1
            for scope in self._scopes:
                scope.reschedule(0)

    def get_random_node(self) -> Any:
        """Return any broker; None = no broker is known."""
        return self._client.get_random_node()

    def force_metadata_update(self) -> Any:
        """Refresh the metadata. Concurrent callers get the same result."""
        self._require_open()  # ends the producer's endless attempts
        return self._client.force_metadata_update()

    bootstrap = _passed_on("reach")
    ready = _passed_on("ready")
    send = _passed_on("send")
    coordinator_lookup = _passed_on("coordinator_lookup")
    _wait_on_metadata = _passed_on("_wait_on_metadata")
    _maybe_wait_metadata = _passed_on("_maybe_wait_metadata")

    async def _while_open(self, question: Coroutine[Any, Any, Any]) -> Any:
        try:
            self._require_open()
        except ProducerClosed:
            question.close()
            raise
        scope = asyncio.timeout(None)
        self._scopes.add(scope)
        try:
            async with scope:
                return await question
        except TimeoutError as error:
            raise ProducerClosed from error
        finally:
            self._scopes.discard(scope)

    def _require_open(self) -> None:
        if not self._open:
            raise ProducerClosed

"""What stands in for aiokafka's producer below the product's own :class:`ringfence_kafka.producer.TransactionalProducer`.

As aiokafka does, it tries again what was lost for as long as nobody stops it, and keeps on sending when who asked has given up.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from aiokafka.errors import (
    ConcurrentTransactions,
    IllegalOperation,
    KafkaConnectionError,
    ProducerFenced,
    TopicAuthorizationFailedError,
)

from tests.simulation.logs import Headers

AGAIN_S: Final = 0.02
"""Before what was refused for the moment, or lost, is tried again."""
RECORD_BYTES: Final = 70
"""That a record costs beside its content."""


class Sent(NamedTuple):
    """What a batch's future tells."""

    offset: int


class Builder:
    """A record batch."""

    def __init__(self, limit: int, now_ms: int) -> None:
        self.records: list[tuple[int, bytes | None, bytes | None, Headers]] = []
        self._limit = limit
        self._bytes = 0
        self._now_ms = now_ms
        loop: Any = asyncio.get_running_loop()
        self.made_at: float = loop.time()
        """When what is in it was known, by the world's clock."""

    def __repr__(self) -> str:
        return f"{self.records}"

    def append(
        self, *, timestamp: int | None, key: bytes | None, value: bytes | None, headers: Any
    ) -> object:
        """None = it is full."""
        size = RECORD_BYTES + len(key or b"") + len(value or b"")
        if self.records and self._bytes + size > self._limit:
            return None
        self._bytes += size
        self.records.append((self._now_ms if timestamp is None else timestamp, key, value, tuple(headers)))
        return self

    def size(self) -> int:
        return self._bytes

    def record_count(self) -> int:
        return len(self.records)


class SimulatedProducer:
    """aiokafka's AIOKafkaProducer, as far as the product goes into it."""

    def __init__(
        self,
        transactional_id: str,
        max_batch_size: int,
        transaction_timeout_ms: int = 60_000,
        **_: Any,
    ) -> None:
        loop: Any = asyncio.get_running_loop()
        process = loop.process
        self._process = process
        self._network = process.network
        self._cluster = process.cluster
        self._coordinator = self._cluster.transactions
        self._id = transactional_id
        self._limit = max_batch_size
        self._timeout_s = transaction_timeout_ms / 1000
        self._epoch = -1
        self._sequence = 0
        self._state = "ready"
        self._added = False
        self._failed: BaseException | None = None
        self._opening: asyncio.Task[Any] | None = None
        self._loop = loop
        self._asked: dict[asyncio.Future[Any], None] = {}
        """Requests that are tried until they are answered, by what tells whoever asked."""
        self._flushed: asyncio.Future[None] | None = None
        """Done when all are; somebody waits for it."""
        # What the product looks at.
        self.client = SimpleNamespace(
            _metadata_update=None, close=self._nothing, force_metadata_update=self._nothing
        )
        self._metadata = SimpleNamespace(partitions_for_topic=lambda _topic: None)
        self._txn_manager = SimpleNamespace(_transaction_waiter=None, _pending_txn_offsets=[])
        self._sender = SimpleNamespace(sender_task=None)
        self._message_accumulator = SimpleNamespace(
            _batches={}, _pending_batches=[], _batch_size=max_batch_size, _compression_type=0
        )

    @staticmethod
    async def _nothing() -> None:
        """Of nothing that is simulated."""

    async def start(self) -> None:
        """InitProducerId, for as long as it takes."""
        self._opening = self._process.rights.fence(self._id)
        self._process.producers[self] = None
        told = self._insist(self._coordinator.initialise, self._id, self._timeout_s, self._process.loop)
        try:
            self._epoch = await told
        finally:
            self._asked.pop(told, None)

    def create_batch(self) -> Builder:
        return Builder(self._limit, round(self._process.wall() * 1000))

    async def begin_transaction(self) -> None:
        self._require_sound()
        if self._state != "ready":
            raise IllegalOperation(self._state)
        lanes = self._process.lanes
        self._process.rights.write(self._id, self._opening, [] if lanes is None else lanes.lanes)
        self._state, self._added = "in transaction", False

    async def send_batch(self, builder: Builder, topic: str, *, partition: int) -> "asyncio.Future[Sent]":
        self._require_in_transaction()
        sequence, self._sequence = self._sequence, self._sequence + 1
        self._added = True
        return self._insist(self.produce, builder, topic, partition, sequence)

    async def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_id: str) -> None:
        self._require_in_transaction()
        self._added = True
        named = {(tp.topic, tp.partition): each.offset for tp, each in offsets.items()}
        await self._insist(self._coordinator.offsets, self._id, self._epoch, named)

    async def commit_transaction(self) -> None:
        await self._end(commit=True)

    async def abort_transaction(self) -> None:
        await self._end(commit=False)

    async def stop(self) -> None:
        """What is still on its way stays so."""
        self._state = "stopped"
        self._process.producers.pop(self, None)
        asked, self._asked = self._asked, {}
        for told in asked:
            told.cancel()
        await self.client.close()

    def produce(self, builder: Builder, topic: str, partition: int, sequence: int) -> Sent:
        """In the cluster."""
        if topic in self._cluster.refused:
            raise TopicAuthorizationFailedError(topic)
        log = self._cluster.log(topic, partition)
        log.made_at = builder.made_at
        return Sent(self._coordinator.produce(self._id, self._epoch, sequence, log, builder.records))

    async def _end(self, *, commit: bool) -> None:
        self._require_in_transaction()
        self._state = "ending"
        if self._asked:  # aiokafka flushes first; it ends although a batch has failed
            self._flushed = asyncio.Future(loop=self._loop)
            await self._flushed
        if self._added:
            await self._insist(self._coordinator.end, self._id, self._epoch, commit)
        self._state = "ready"

    def _insist(self, apply: Any, *args: Any) -> "asyncio.Future[Any]":
        """Until it is answered, whoever waits for that, or :meth:`stop`."""
        told: asyncio.Future[Any] = asyncio.Future(loop=self._loop)
        self._asked[told] = None
        self._ask(told, apply, args)
        return told

    def _ask(self, told: "asyncio.Future[Any]", apply: Any, args: tuple[Any, ...]) -> None:
        if told in self._asked:
            self._network.ask(self._loop, partial(self._told, told, apply, args), apply, args)

    def _told(
        self,
        told: "asyncio.Future[Any]",
        apply: Any,
        args: tuple[Any, ...],
        answer: Any,
        error: Exception | None,
    ) -> None:
        if told not in self._asked:
            return
        if isinstance(error, KafkaConnectionError | ConcurrentTransactions):
            self._loop.call_later(AGAIN_S, self._ask, told, apply, args)
            return
        del self._asked[told]
        if isinstance(error, ProducerFenced):
            self._failed = error
        if not told.done():
            if error is None:
                told.set_result(answer)
            else:
                told.set_exception(error)
                told.exception()  # of what nobody asks any more
        if self._flushed is not None and not self._asked and not self._flushed.done():
            self._flushed.set_result(None)

    def _require_sound(self) -> None:
        if self._failed is not None:
            raise ProducerFenced(self._id)

    def _require_in_transaction(self) -> None:
        self._require_sound()
        if self._state != "in transaction":
            raise IllegalOperation(self._state)

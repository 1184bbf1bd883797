"""What stands in for aiokafka's producer below the product's own :class:`ringfence_kafka.producer.TransactionalProducer`.

As aiokafka does, it tries again what was lost for as long as nobody stops it, and keeps on sending when who asked has given up.
"""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from aiokafka.errors import (
    ConcurrentTransactions,
    IllegalOperation,
    KafkaConnectionError,
    ProducerFenced,
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
        self._tasks: set[asyncio.Task[Any]] = set()
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
        self._epoch = await self._insist(
            self._coordinator.initialise, self._id, self._timeout_s, self._process.loop
        )

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
        return self._spawn(self._send(builder, topic, partition, sequence))

    async def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_id: str) -> None:
        self._require_in_transaction()
        self._added = True
        named = {(tp.topic, tp.partition): each.offset for tp, each in offsets.items()}
        await asyncio.shield(
            self._spawn(self._insist(self._coordinator.offsets, self._id, self._epoch, named))
        )

    async def commit_transaction(self) -> None:
        await self._end(commit=True)

    async def abort_transaction(self) -> None:
        await self._end(commit=False)

    async def stop(self) -> None:
        """What is still on its way stays so."""
        self._state = "stopped"
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await self.client.close()

    async def _send(self, builder: Builder, topic: str, partition: int, sequence: int) -> Sent:
        def produce() -> int:
            log = self._cluster.log(topic, partition)
            log.made_at = builder.made_at
            return int(self._coordinator.produce(self._id, self._epoch, sequence, log, builder.records))

        return Sent(await self._insist(produce))

    async def _end(self, *, commit: bool) -> None:
        self._require_in_transaction()
        self._state = "ending"
        if self._tasks:
            await asyncio.wait(
                set(self._tasks)
            )  # aiokafka flushes first; it ends although a batch has failed
        if self._added:

            def end() -> None:
                self._coordinator.end(self._id, self._epoch, commit=commit)

            await asyncio.shield(self._spawn(self._insist(end)))
        self._state = "ready"

    async def _insist(self, apply: Any, *args: Any) -> Any:
        while True:
            try:
                return await self._network.call(apply, *args)
            except (KafkaConnectionError, ConcurrentTransactions):
                await asyncio.sleep(AGAIN_S)
            except ProducerFenced as error:
                self._failed = error
                raise

    def _spawn(self, work: Any) -> "asyncio.Task[Any]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    def _require_sound(self) -> None:
        if self._failed is not None:
            raise ProducerFenced(self._id)

    def _require_in_transaction(self) -> None:
        self._require_sound()
        if self._state != "in transaction":
            raise IllegalOperation(self._state)

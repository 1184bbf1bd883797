"""What stands in for aiokafka's producer below the product's own :class:`ringfence_kafka.producer.TransactionalProducer`.

As aiokafka does, it asks its coordinator one thing after the other: to add partitions, to add the group, to take its offsets, to end; it
writes only to partitions that were added, to each one batch after the other; it tries again what was lost for as long as nobody stops it,
and keeps on sending when who asked has given up. Where the cluster adds by itself what is written, all but its InitProducerId is the
product's own (:class:`ringfence_kafka.transaction.implicit.Implicit`), by way of :mod:`tests.simulation.asking`.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from aiokafka.client import CoordinationType
from aiokafka.errors import (
    ConcurrentTransactions,
    IllegalOperation,
    KafkaConnectionError,
    KafkaError,
    ProducerFenced,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)

from tests.simulation.asking import ID, Metadata, send
from tests.simulation.logs import Headers
from tests.simulation.transactions import Who

AGAIN_S: Final = 0.02
"""Before what was refused for the moment, or lost, is tried again."""
OF_A_TRANSACTION: Final[Mapping[str, Any]] = {
    "add_partitions": AddPartitionsToTxnRequest,
    "add_offsets": AddOffsetsToTxnRequest,
    "offsets": TxnOffsetCommitRequest,
    "end": EndTxnRequest,
}
"""What aiokafka's client is asked to send."""
RECORD_BYTES: Final = 70
"""That a record costs beside its content."""


Place = tuple[str, int]


class Sent(NamedTuple):
    """What a batch's future tells."""

    offset: int


class Waiting(NamedTuple):
    """A batch that is to be written."""

    builder: "Builder"
    sequence: int
    told: "asyncio.Future[Sent]"


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
        self.by: SimulatedProducer | None = None
        """Whose it is."""
        self.epoch = self.sequence = -1
        """Where it is the product itself that writes it."""

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

    def _set_producer_state(self, _producer_id: int, epoch: int, sequence: int) -> None:
        self.epoch, self.sequence = epoch, sequence
        if self.by is not None:
            self.by.begins()

    def _build(self) -> "Builder":
        return self


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
        self._limit = max_batch_size
        self._timeout_s = transaction_timeout_ms / 1000
        self._who = Who(transactional_id, -1)
        self._state = "ready"
        self._failed: BaseException | None = None
        self._opening: asyncio.Task[Any] | None = None
        self._begun_at = -1
        """Callbacks of the world until then."""
        self._loop = loop
        self._told: dict[asyncio.Future[Any], None] = {}
        """By what whoever asked is told: all that is not answered."""
        self._asking = False
        """The coordinator is asked something."""
        self._sequences: dict[Place, int] = {}
        self._to_add: dict[Place, None] = {}
        self._added: set[Place] = set()
        self._batches: dict[Place, deque[Waiting]] = {}
        """By partition: those that are not acknowledged; the first is on its way if the partition is added."""
        self._on_its_way: set[Place] = set()
        self._group_added = False
        self._offsets: tuple[Mapping[Place, int], asyncio.Future[None]] | None = None
        self._end: tuple[bool, asyncio.Future[None]] | None = None
        # What the product looks at.
        self.client: Any = SimpleNamespace(
            _metadata_update=None,
            close=self._nothing,
            force_metadata_update=self._nothing,
            send=send,
        )
        self._metadata: Any = Metadata(self._cluster.brokers)
        self._txn_manager = SimpleNamespace(
            _transaction_waiter=None, _pending_txn_offsets=[], producer_id=ID, producer_epoch=-1,
        )  # fmt: skip
        self._sender = SimpleNamespace(
            sender_task=None, client=None, _retry_backoff=AGAIN_S, _coordinators={CoordinationType.TRANSACTION: 0},
            _find_coordinator=self._find, _coordinator_dead=lambda _kind: None,
        )  # fmt: skip
        self._request_timeout_ms = 0
        self._message_accumulator = SimpleNamespace(
            _batches={}, _pending_batches=[], _batch_size=max_batch_size, _compression_type=0
        )

    @staticmethod
    async def _nothing() -> None:
        """Of nothing that is simulated."""

    @staticmethod
    async def _find(_kind: int, _key: str) -> int:
        return 0

    async def start(self) -> None:
        """InitProducerId, for as long as it takes."""
        name = self._who.name
        self._opening = self._process.rights.fence(name)
        self._process.producers[self] = None
        told = self._promise()
        self._ask(told, self._coordinator.initialise, (name, self._timeout_s, self._process.loop))
        try:
            epoch = await told
        finally:
            self._told.pop(told, None)
        self._who = Who(name, epoch, by=self)
        self._txn_manager.producer_epoch = epoch

    def create_batch(self) -> Builder:
        builder = Builder(self._limit, round(self._process.wall() * 1000))
        builder.by = self
        return builder

    def begins(self) -> None:
        """A transaction does: whether it may is asked of the rights."""
        if self._begun_at == self._loop.steps:
            return
        self._begun_at = self._loop.steps
        lanes = self._process.lanes
        self._process.rights.write(self._who.name, self._opening, [] if lanes is None else lanes.lanes)

    async def begin_transaction(self) -> None:
        self._require_sound()
        if self._state != "ready":
            raise IllegalOperation(self._state)
        self.begins()
        self._state, self._group_added = "in transaction", False
        self._added.clear()

    async def send_batch(self, builder: Builder, topic: str, *, partition: int) -> "asyncio.Future[Sent]":
        self._require_in_transaction()
        place, told = (topic, partition), self._promise()
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + builder.record_count()
        self._batches.setdefault(place, deque()).append(Waiting(builder, sequence, told))
        if place in self._added:
            self._write(place)
        elif place not in self._to_add:
            self._to_add[place] = None
            self._loop.call_soon(self._ask_next)
        return told

    async def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_id: str) -> None:
        self._require_in_transaction()
        told = self._promise()
        self._offsets = {(tp.topic, tp.partition): each.offset for tp, each in offsets.items()}, told
        self._loop.call_soon(self._ask_next)
        await told

    async def commit_transaction(self) -> None:
        await self._finish(commit=True)

    async def abort_transaction(self) -> None:
        await self._finish(commit=False)

    async def stop(self) -> None:
        """What is still on its way stays so."""
        self._state = "stopped"
        self._process.producers.pop(self, None)
        told, self._told = self._told, {}
        for each in told:
            each.cancel()
        await self.client.close()

    # -- in the cluster ----------------------------------------------------------------------------------------

    def produce(self, who: Who, builder: Builder, topic: str, partition: int, sequence: int) -> int:
        """The offset of its first record."""
        if topic in self._cluster.refused:
            raise TopicAuthorizationFailedError(topic)
        log = self._cluster.log(topic, partition)
        log.made_at = builder.made_at
        return int(self._coordinator.produce(who, sequence, log, builder.records))

    def add_partitions(self, who: Who, places: Sequence[Place]) -> None:
        """All of them, or none."""
        for topic, _ in places:
            if topic in self._cluster.refused:
                raise TopicAuthorizationFailedError(topic)
        self._coordinator.add_partitions(who, [self._cluster.log(*each) for each in places])

    # -- one thing after the other -----------------------------------------------------------------------------

    async def _finish(self, *, commit: bool) -> None:
        self._require_in_transaction()
        self._state = "ending"
        told = self._promise()
        self._end = commit, told
        self._loop.call_soon(self._ask_next)
        await told

    def _ask_next(self) -> None:
        """Of the coordinator, if there is anything, and nothing is asked."""
        if self._asking or self._failed is not None:
            return
        if self._to_add:
            adding = list(self._to_add)
            self._ask_for(partial(self._is_added, adding), self.add_partitions, self._who, adding)
        elif self._offsets is not None:
            if self._group_added:
                self._ask_for(self._offsets_taken, self._coordinator.offsets, self._who, self._offsets[0])
            else:
                self._ask_for(self._group_is_added, self._coordinator.add_offsets, self._who)
        elif (
            self._end is not None and not self._batches
        ):  # aiokafka flushes first; it ends although a batch has failed
            if self._added or self._group_added:
                self._ask_for(self._has_ended, self._coordinator.end, self._who, self._end[0])
            else:
                self._has_ended(None)

    def _is_added(self, adding: Sequence[Place], _: Any) -> None:
        for place in adding:
            del self._to_add[place]
            self._added.add(place)
            self._write(place)

    def _group_is_added(self, _: Any) -> None:
        self._group_added = True

    def _offsets_taken(self, _: Any) -> None:
        assert self._offsets is not None
        (_, told), self._offsets = self._offsets, None
        self._tell(told)

    def _has_ended(self, _: Any) -> None:
        assert self._end is not None
        (_, told), self._end = self._end, None
        self._state = "ready"
        self._tell(told)

    def _write(self, place: Place) -> None:
        """The first of this partition's, if none is on its way."""
        if place in self._on_its_way or place not in self._batches:
            return
        self._on_its_way.add(place)
        builder, sequence, told = self._batches[place][0]
        self._ask(
            told, self.produce, (self._who, builder, *place, sequence), partial(self._is_written, place)
        )

    def _is_written(self, place: Place, base: int | None, error: Exception | None) -> None:
        self._on_its_way.discard(place)
        if place not in self._batches:
            return  # it was dropped meanwhile
        _, _, told = self._batches[place].popleft()
        if not self._batches[place]:
            del self._batches[place]
        self._tell(told, None if base is None else Sent(base), error)
        self._write(place)
        self._ask_next()

    # -- asking ------------------------------------------------------------------------------------------------

    def _promise(self) -> "asyncio.Future[Any]":
        """Until it is answered, whoever waits for that, or :meth:`stop`."""
        told: asyncio.Future[Any] = asyncio.Future(loop=self._loop)
        self._told[told] = None
        return told

    def _ask_for(self, then: Callable[[Any], None], apply: Any, *args: Any) -> None:
        """The coordinator; nothing else meanwhile."""
        self._asking = True
        told = self._promise()

        def answered(answer: Any, error: Exception | None) -> None:
            self._asking = False
            self._told.pop(told, None)
            if error is None:
                then(answer)
                self._ask_next()
            elif isinstance(error, TopicAuthorizationFailedError):
                self._drop(error)
            else:
                self._failed = error  # aiokafka's task ends with it
                self._drop(error)

        self._ask(told, apply, args, answered)

    def _ask(
        self,
        told: "asyncio.Future[Any]",
        apply: Any,
        args: tuple[Any, ...],
        then: "Callable[[Any, Exception | None], None] | None" = None,
    ) -> None:
        """For as long as it takes."""
        if told in self._told:
            answered = partial(self._answered, told, apply, args, then or partial(self._tell, told))
            self._network.ask(self._loop, answered, apply, args)

    def _answered(
        self,
        told: "asyncio.Future[Any]",
        apply: Any,
        args: tuple[Any, ...],
        then: Callable[[Any, Exception | None], None],
        answer: Any,
        error: Exception | None,
    ) -> None:
        if told not in self._told:
            return
        if isinstance(error, KafkaConnectionError) and (of := OF_A_TRANSACTION.get(apply.__name__)):
            self._loop.create_task(self._lose(of.__new__(of)))
        momentary = KafkaConnectionError | ConcurrentTransactions | UnknownTopicOrPartitionError
        if isinstance(error, momentary):
            self._loop.call_later(AGAIN_S, self._ask, told, apply, args, then)
        else:
            then(answer, error)

    async def _lose(self, request: Any) -> None:
        """What the product has put around aiokafka's client learns that there is no answer."""
        with contextlib.suppress(KafkaError):
            await self.client.send(0, request)

    def _tell(
        self, told: "asyncio.Future[Any]", answer: Any = None, error: BaseException | None = None
    ) -> None:
        self._told.pop(told, None)
        if isinstance(error, ProducerFenced):
            self._failed = error
        if told.done():
            return
        if error is None:
            told.set_result(answer)
        else:
            told.set_exception(error)
            told.exception()  # of what nobody asks any more

    def _drop(self, error: BaseException) -> None:
        """All that waits. Nothing is known of what was added: aiokafka does not end that."""
        ending = None if self._failed is not None or self._end is None else self._end[1]
        for each in [each for each in self._told if each is not ending]:
            self._tell(each, None, error)
        self._batches.clear()
        self._on_its_way.clear()
        self._to_add.clear()
        self._added.clear()
        self._group_added, self._offsets = False, None
        self._ask_next()

    def _require_sound(self) -> None:
        if self._failed is not None:
            raise type(self._failed)(self._who.name)

    def _require_in_transaction(self) -> None:
        self._require_sound()
        if self._state != "in transaction":
            raise IllegalOperation(self._state)

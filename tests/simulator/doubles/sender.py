"""Double of aiokafka's sender: a transaction's requests in their order, repeated until somebody stops it, also when the caller gave up."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from aiokafka.errors import (
    ConcurrentTransactions,
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

from tests.simulator.doubles.batch_builder import Builder
from tests.simulator.kafka.transactions import Who

AGAIN_S: Final = 0.02
"""Seconds before a request that was lost, or refused temporarily, is repeated."""
OF_A_TRANSACTION: Final[Mapping[str, Any]] = {
    "add_partitions": AddPartitionsToTxnRequest,
    "add_offsets": AddOffsetsToTxnRequest,
    "offsets": TxnOffsetCommitRequest,
    "end": EndTxnRequest,
}
"""Requests that aiokafka's client is asked to send."""
_MOMENTARY: Final = KafkaConnectionError | ConcurrentTransactions | UnknownTopicOrPartitionError

Place = tuple[str, int]
Answered = Callable[[Any, Exception | None], None]


class Sent(NamedTuple):
    """Result of a batch's future."""

    offset: int


class Waiting(NamedTuple):
    """A batch that waits to be written."""

    builder: Builder
    sequence: int
    told: "asyncio.Future[Sent]"


class Sender:
    """Sender of one producer."""

    def __init__(self, process: Any, name: str, client: Callable[[], Any]) -> None:
        """Name its transactional ID; ``client()`` returns aiokafka's client as the product has wrapped it."""
        self.failed: BaseException | None = None
        self.who = Who(name, -1)
        self._process = process
        self._loop: Any = asyncio.get_running_loop()
        self._network = process.network
        self._cluster = process.cluster
        self._coordinator = process.cluster.transactions
        self._client = client
        self._told: dict[asyncio.Future[Any], None] = {}
        self._asking = False
        self._sequences: dict[Place, int] = {}
        self._to_add: dict[Place, None] = {}
        self._added: set[Place] = set()
        self._batches: dict[Place, deque[Waiting]] = {}
        """By partition: batches that are not acknowledged. The first is on its way if the partition is added."""
        self._on_its_way: set[Place] = set()
        self._group_added = False
        self._offsets: tuple[Mapping[Place, int], asyncio.Future[None]] | None = None
        self._end: tuple[bool, asyncio.Future[None]] | None = None

    # -- what it is given --------------------------------------------------------------------------------------

    async def initialise(self, limit_s: float) -> int:
        told = self._promise()
        self._ask(told, self._coordinator.initialise, (self.who.name, limit_s, self._loop))
        try:
            epoch = int(await told)
        finally:
            self._told.pop(told, None)
        self.who = Who(self.who.name, epoch, by=self)
        return epoch

    def begin(self) -> None:
        self._added.clear()
        self._group_added = False

    def write(self, place: Place, builder: Builder) -> "asyncio.Future[Sent]":
        told = self._promise()
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + builder.record_count()
        self._batches.setdefault(place, deque()).append(Waiting(builder, sequence, told))
        if place in self._added:
            self._write(place)
        elif place not in self._to_add:
            self._to_add[place] = None
            self._loop.call_soon(self._ask_next)
        return told

    def commit_offsets(self, offsets: Mapping[Place, int]) -> "asyncio.Future[None]":
        told = self._promise()
        self._offsets = offsets, told
        self._loop.call_soon(self._ask_next)
        return told

    def end(self, *, commit: bool) -> "asyncio.Future[None]":
        told = self._promise()
        self._end = commit, told
        self._loop.call_soon(self._ask_next)
        return told

    def stop(self) -> None:
        told, self._told = self._told, {}
        for future in told:
            future.cancel()

    # -- in the cluster ----------------------------------------------------------------------------------------

    def produce(self, who: Who, builder: Builder, topic: str, partition: int, sequence: int) -> int:
        if topic in self._cluster.refused:
            raise TopicAuthorizationFailedError(topic)
        log = self._cluster.log(topic, partition)
        log.made_at = builder.made_at
        return int(self._coordinator.produce(who, sequence, log, builder.records))

    def add_partitions(self, who: Who, places: Sequence[Place]) -> None:
        if refused := {topic for topic, _ in places if topic in self._cluster.refused}:
            raise TopicAuthorizationFailedError(refused)
        self._coordinator.add_partitions(who, [self._cluster.log(*place) for place in places])

    # -- one thing after the other -----------------------------------------------------------------------------

    def _ask_next(self) -> None:
        if self._asking or self.failed is not None:
            return
        if self._to_add:
            adding = list(self._to_add)
            self._ask_for(partial(self._is_added, adding), self.add_partitions, self.who, adding)
        elif self._offsets is not None:
            if self._group_added:
                self._ask_for(self._offsets_taken, self._coordinator.offsets, self.who, self._offsets[0])
            else:
                self._ask_for(self._group_is_added, self._coordinator.add_offsets, self.who)
        elif (
            self._end is not None and not self._batches
        ):  # aiokafka flushes first; it ends although a batch has failed
            if self._added or self._group_added:
                self._ask_for(self._has_ended, self._coordinator.end, self.who, self._end[0])
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
        self._tell(told)

    def _write(self, place: Place) -> None:
        if place in self._on_its_way or place not in self._batches:
            return
        self._on_its_way.add(place)
        builder, sequence, told = self._batches[place][0]
        self._ask(told, self.produce, (self.who, builder, *place, sequence), partial(self._is_written, place))

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
        """Return a future that is kept until its answer, its waiter's end, or :meth:`stop`."""
        told: asyncio.Future[Any] = asyncio.Future(loop=self._loop)
        self._told[told] = None
        return told

    def _ask_for(self, then: Callable[[Any], None], apply: Any, *args: Any) -> None:
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
                self.failed = error  # aiokafka's task ends with it
                self._drop(error)

        self._ask(told, apply, args, answered)

    def _ask(
        self, told: "asyncio.Future[Any]", apply: Any, args: tuple[Any, ...], then: Answered | None = None
    ) -> None:
        if told in self._told:
            answered = partial(self._answered, told, apply, args, then or partial(self._tell, told))
            self._network.ask(self._loop, answered, apply, args)

    def _answered(
        self,
        told: "asyncio.Future[Any]",
        apply: Any,
        args: tuple[Any, ...],
        then: Answered,
        answer: Any,
        error: Exception | None,
    ) -> None:
        if told not in self._told:
            return
        if isinstance(error, KafkaConnectionError) and (of := OF_A_TRANSACTION.get(apply.__name__)):
            self._loop.create_task(self._lose(of.__new__(of)))
        if isinstance(error, _MOMENTARY):
            self._loop.call_later(AGAIN_S, self._ask, told, apply, args, then)
        else:
            then(answer, error)

    async def _lose(self, request: Any) -> None:
        """Report a lost answer to the wrapper that the product has put around aiokafka's client."""
        with contextlib.suppress(KafkaError):
            await self._client().send(0, request)

    def _tell(
        self, told: "asyncio.Future[Any]", answer: Any = None, error: BaseException | None = None
    ) -> None:
        self._told.pop(told, None)
        if isinstance(error, ProducerFenced):
            self.failed = error
        if told.done():
            return
        if error is None:
            told.set_result(answer)
        else:
            told.set_exception(error)
            told.exception()  # nobody awaits it any more

    def _drop(self, error: BaseException) -> None:
        """Fail all requests that wait. Added partitions are forgotten: aiokafka does not end that transaction."""
        ending = None if self.failed is not None or self._end is None else self._end[1]
        for future in [future for future in self._told if future is not ending]:
            self._tell(future, None, error)
        self._batches.clear()
        self._on_its_way.clear()
        self._to_add.clear()
        self._added.clear()
        self._group_added, self._offsets = False, None
        self._ask_next()

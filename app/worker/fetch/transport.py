"""Faust's aiokafka transport, changed in twelve points. Only this file knows Faust's private parts.

Private parts of aiokafka are used here, in fetch_scheduler.py, and in ``aiokafka_patches``, ``producer`` and ``admin`` of ringfence_kafka.

1. A fetch is one message: Faust moves an event at a time and pays some 23 callbacks for each; here the records of
   one fetch of one partition travel as one :class:`agents.batch.batch.FetchedBatch`.
2. Each batch says where its fetch began, so that a lane can see that something was stepped over.
3. Only committed data is read, whatever guarantee Faust is set to.
4. Faust's own idea of what was read and of what is slow is off: lanes know better.
5. No record ends the worker: a malformed one is named in its batch, and a damaged one holds up its partition alone.
6. aiokafka's task that fetches is started again when an error has ended it: nobody else would notice.
7. No error of the consumer group ends the membership, or has it wait for somebody who takes the error.
8. No wait lasts longer than what it is for: whoever wants other records than before wakes the thread that waits for them.
9. A rebalance stops fetching when the group shares out, and not when it is announced.
10. A static member's heartbeats have its name.
11. No more is fetched and read than the process has room for.
12. A broker that goes away while the worker starts is waited for.

``tests/integration/test_transport.py`` fails when an upgrade breaks any of them.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, cast

import aiokafka
from aiokafka import TopicPartition
from aiokafka.errors import (
    ConsumerStoppedError,
    CorruptRecordException,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnsupportedCodecError,
)
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage

from agents.batch.batch import FetchedBatch, Held, Parcel, Record
from app.worker.fetch.buffers import BoundedFetches, Buffers
from app.worker.fetch.fetch_interval import FetchInterval
from app.worker.fetch.fetch_scheduler import FETCH_WAIT_MS, PARTIAL_WAIT_MS, FetchScheduler
from app.worker.fetch.startup_retry import connected
from ringfence_kafka.admin.topics import lacking
from ringfence_kafka.aiokafka_patches import internals, late_revocation
from ringfence_kafka.aiokafka_patches import lenient_records as lenient
from ringfence_kafka.concurrency.timeouts import is_cancelled
from ringfence_kafka.errors import named
from ringfence_kafka.groups import static_members
from ringfence_kafka.protocol.record_batch import OldFormatError

log: Final = logging.getLogger("ringfence.worker")

FETCHED_WITHIN_S: Final = 1.0
"""How long the consumer's thread waits for records before it says that there are none."""
REFUSED_AGAIN_S: Final = 60.0
"""How often the log repeats why the group refuses this worker."""
KEPT_EVERY_S: Final = 1.0
"""How often it is looked whether aiokafka goes on as a member of the group."""
REST_S: Final = 1.0
"""How long a partition that cannot be read rests before it is fetched again. The broker says at once that it may not be."""
QUIET_S: Final = 1.0
"""Markers and aborted records behind the last record travel by themselves when nothing else has come for so long."""
QUIET_AGAIN_S: Final = 0.1
FAILED_AGAIN_S: Final = 10.0
"""Where aiokafka's fetching ends so soon after it was started again, it is not started at once."""


class BatchConsumerThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    """Runs the consumer in a thread of its own, as Faust does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._seeks: Counter[TopicPartition] = Counter()
        self._empty: dict[TopicPartition, tuple[int, int]] = {}
        """Stretches that have no records, from where to where."""
        self._empty_since: dict[TopicPartition, float] = {}
        """When they grew last, by the monotonic clock."""
        self._resting: dict[TopicPartition, float] = {}
        """Until when, by the monotonic clock, a partition is left alone because it cannot be read."""
        self._restarted = -math.inf
        """When fetching was started again, by the same clock."""
        self._keeping: asyncio.Task[None] | None = None

    async def on_start(self) -> None:
        """Connect, however long that takes; called in the thread.

        What a thread raises while it starts ends in a trace, if Faust does not wait for the thread for ever.
        """
        if not await connected(self, self._connect):
            return
        late_revocation.revoke_late(self._ensure_consumer())
        if instance := self.transport.app.conf.consumer_group_instance_id:
            static_members.name_heartbeats(self._ensure_consumer(), instance, self.transport.replaced)
        fetcher = self._ensure_consumer()._fetcher
        self._buffers: Buffers = self.transport.buffers
        self._buffers.told = self._wake_for_room
        BoundedFetches(fetcher, self._buffers, self._may_read, PARTIAL_WAIT_MS)
        self._pace = FetchScheduler(fetcher, self._is_wanted, self.transport.spacing)
        self._keeping = asyncio.create_task(self._keep_member())

    async def _connect(self) -> None:
        """Once."""
        try:
            await super().on_start()
        except (KafkaError, OSError):
            await self._consumer.stop()
            raise

    async def _keep_member(self) -> None:
        """See that membership goes on, whatever is read meanwhile, and also while nothing is: in a rebalance."""
        said, said_at = "", -math.inf
        while True:
            await asyncio.sleep(KEPT_EVERY_S)
            if self._consumer is None:
                continue
            try:
                internals.keep_member(self._consumer)
                internals.take_error(self._consumer)
            except GroupAuthorizationFailedError as error:
                self.transport.excluded(str(error))
            except KafkaError as error:
                refused = "; ".join([named(error), *self.transport.foreign()])
                if refused != said or time.monotonic() > said_at + REFUSED_AGAIN_S:
                    said, said_at = refused, time.monotonic()
                    log.warning("the consumer group refuses this worker, which tries again: %s", refused)

    async def on_thread_stop(self) -> None:
        """Disconnect; called in the thread.

        While the broker is away aiokafka's stop ends as if we had been cancelled: by a fetch that it cancels between two
        attempts. The thread would be gone without a word, and Faust wait for it for a minute.
        """
        if self._keeping is not None:
            self._keeping.cancel()
        try:
            await super().on_thread_stop()
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            await self._ensure_consumer()._client.close()

    def _create_worker_consumer(self, transport: Any) -> aiokafka.AIOKafkaConsumer:
        lenient.install()
        consumer = super()._create_worker_consumer(transport)
        # Both are read when the consumer starts. Faust asks for committed data only under its own exactly_once.
        consumer._isolation_level = "read_committed"
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        internals.pass_on(consumer, self.transport.passed)
        return consumer

    async def _fetch_records(
        self,
        consumer: aiokafka.AIOKafkaConsumer,
        active_partitions: set[TP],
        timeout: float | None = None,  # noqa: ASYNC109 - Faust's signature
        max_records: int | None = None,
    ) -> dict[TopicPartition, FetchedBatch]:
        """What has been fetched of each active partition; waits up to ``timeout`` seconds for something.

        Which partitions are active may change meanwhile, so Faust's set of before the wait is not gone by.
        """
        fetcher = consumer._fetcher
        deadline = time.monotonic() + (timeout or 0.0)
        with fetcher._subscriptions.fetch_context():
            while self.consumer.flow_active:
                if consumer._closed or fetcher._closed:
                    raise ConsumerStoppedError
                await self._keep_fetching(fetcher)
                # Made before the look, so that nothing falls between the two.
                waiter = fetcher._create_fetch_waiter()
                try:
                    batches = await self._drain(fetcher)
                    left = deadline - time.monotonic()
                    if batches or left <= 0:
                        return batches
                    await asyncio.wait(
                        {waiter, fetcher._fetch_task},
                        timeout=min(left, self._rest_left(), self._quiet_left()),
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    if waiter.done():
                        _raise_if_excluded(waiter)
                finally:
                    waiter.cancel()
        return {}

    def wake(self) -> None:
        """Have a fetch that waits look again, because other partitions are wanted, or none. In any thread.

        aiokafka ends the wait for what it fetches, and not for what it fetched before and Faust only now wants.
        """
        with contextlib.suppress(RuntimeError):  # the thread has ended, and nothing waits
            self.thread_loop.call_soon_threadsafe(self._wake)

    def join_again(self) -> None:
        """Have the group share out anew, if this worker leads it. In any thread."""
        with contextlib.suppress(RuntimeError):  # the thread has ended
            self.thread_loop.call_soon_threadsafe(self._join_again)

    def _join_again(self) -> None:
        if self._consumer is not None:
            self._consumer._coordinator.request_rejoin()

    def _wake(self) -> None:
        if self._consumer is None:
            return
        for waiter in self._consumer._fetcher._fetch_waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _wake_for_room(self) -> None:
        """There is room for more: also what was not asked for is asked for now. In any thread."""
        with contextlib.suppress(RuntimeError):
            self.thread_loop.call_soon_threadsafe(self._ask_anew)

    def _ask_anew(self) -> None:
        self._wake()
        if self._consumer is not None:
            fetcher = self._consumer._fetcher
            fetcher._notify(fetcher._wait_consume_future)

    async def _keep_fetching(self, fetcher: Any) -> None:
        if not fetcher._fetch_task.done():
            return
        if time.monotonic() < self._restarted + FAILED_AGAIN_S:
            await asyncio.sleep(FETCHED_WITHIN_S)
        self._restarted = time.monotonic()
        internals.keep_fetching(fetcher)

    def _is_wanted(self, tp: TopicPartition) -> bool:
        return self._may_read(tp) and self._buffers.has_room(tp)

    def _may_read(self, tp: TopicPartition) -> bool:
        return self.consumer.is_active(tp) and self._resting.get(tp, 0.0) <= time.monotonic()

    def _rest_left(self) -> float:
        """Seconds until the next partition has rested."""
        now = time.monotonic()
        return min((end - now for end in self._resting.values() if end > now), default=math.inf)

    async def _drain(self, fetcher: Any) -> dict[TopicPartition, FetchedBatch]:
        batches = {}
        read: dict[TopicPartition, bool] = {}
        subscriptions = fetcher._subscriptions
        for tp in list(fetcher._records):
            # While partitions are being assigned, fetched_records would wait, and positions move meanwhile.
            if subscriptions.reassignment_in_progress or subscriptions.subscription is None:
                break
            # What is not wanted now stays with the fetcher, which does not fetch it again.
            if not self._is_wanted(tp) or not subscriptions.is_assigned(tp):
                continue
            state = subscriptions.subscription.assignment.state_value(tp)
            if not state.has_valid_position:
                continue
            begin = state.position
            parsed = getattr(fetcher._records[tp], "_partition_records", None)
            try:
                records, held = await self._buffers.read(fetcher, tp)
            except TopicAuthorizationFailedError:
                # It would end the worker. It is tried again until the right is granted again.
                self._resting[tp] = time.monotonic() + REST_S
                self.transport.unreadable(tp.topic, tp.partition, lacking("topic", tp.topic, {"Read"}))
                continue
            except CorruptRecordException as error:
                self._resting[tp] = time.monotonic() + REST_S
                self.transport.unreadable(tp.topic, tp.partition, _damaged(tp, begin, error))
                continue
            end = state.position if state.has_valid_position else begin
            if end > begin:
                read[tp] = end < (state.lso or 0)
            malformed = dict(parsed.malformed) if parsed is not None else {}
            batch = self._batch(tp, begin, end, records, malformed, held)
            if batch is not None:
                batches[tp] = batch
        self._buffers.look_at(fetcher)  # what was read counts no longer as fetched
        self._pace.read(read)
        return batches | self._quiet(subscriptions)

    def _quiet(self, subscriptions: Any) -> dict[TopicPartition, FetchedBatch]:
        """Stretches without records that nothing has followed for a while: the group's offset is to pass them too.

        Else a partition that was read to its end would show a lag for as long as it rests.
        """
        batches: dict[TopicPartition, FetchedBatch] = {}
        if subscriptions.reassignment_in_progress or subscriptions.subscription is None:
            return batches
        due = time.monotonic() - QUIET_S
        for tp in [item for item, since in self._empty_since.items() if since <= due]:
            if not subscriptions.is_assigned(tp):
                self._forget_empty(tp)
            elif self._is_wanted(tp):
                begin, end = self._forget_empty(tp)
                batches[tp] = FetchedBatch(tp.topic, tp.partition, begin, end, [], self._seeks[tp])
        return batches

    def _quiet_left(self) -> float:
        """Seconds until the next such stretch is to travel; never none, because a rebalance may hold it back."""
        now = time.monotonic()
        due = (since + QUIET_S - now for tp, since in self._empty_since.items() if self._is_wanted(tp))
        return max(QUIET_AGAIN_S, min(due, default=math.inf))

    def _forget_empty(self, tp: TopicPartition) -> tuple[int, int]:
        self._empty_since.pop(tp, None)
        return self._empty.pop(tp, (0, 0))

    def _batch(
        self,
        tp: TopicPartition,
        begin: int,
        end: int,
        records: Sequence[Record],
        malformed: Mapping[int, str],
        held: Held | None,
    ) -> FetchedBatch | None:
        """The batch, begun where earlier fetches of the same stretch found only markers and aborted records."""
        earlier = self._forget_empty(tp)
        if earlier[1] == begin:
            begin = earlier[0]
        if held is None:
            if end > begin:
                self._empty[tp] = (begin, end)
                self._empty_since[tp] = time.monotonic()
            return None
        asked_at = self._pace.asked_at(tp)
        return FetchedBatch(
            tp.topic, tp.partition, begin, end, records, self._seeks[tp], malformed, held.bytes, (held,), asked_at
        )  # fmt: skip

    async def rewind_all(
        self, places: Collection[tuple[TopicPartition, int]]
    ) -> dict[tuple[TopicPartition, int], int | Exception]:
        """Fetch each partition from an offset again; runs in the consumer's thread. One that cannot be disturbs no other."""
        found: dict[tuple[TopicPartition, int], int | Exception] = {}
        for place in places:
            try:
                found[place] = self._rewind(*place)
            except Exception as error:
                found[place] = error
        self._pace.hurry()
        return found

    def _rewind(self, tp: TopicPartition, offset: int) -> int:
        self._seeks[tp] += 1
        self._forget_empty(tp)
        self._resting.pop(tp, None)  # what is read now need not be what was damaged
        self._ensure_consumer().seek(tp, offset)
        return self._seeks[tp]

    async def is_member(self, generation: int) -> bool:
        """Ask the group's coordinator, now, whether we are a member of this generation; in the consumer's thread."""
        return await internals.is_member(self._ensure_consumer(), generation)

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Lanes report for themselves; Faust's watch of each event does not fit batches."""


def _raise_if_excluded(waiter: "asyncio.Future[None]") -> None:
    """What else the group refuses is said, and tried again, by :meth:`BatchConsumerThread._keep_member`."""
    if isinstance(error := waiter.exception(), GroupAuthorizationFailedError):
        raise error


def _damaged(tp: TopicPartition, offset: int, error: CorruptRecordException) -> str:
    if isinstance(error, OldFormatError):
        return str(error)
    cause = error.__cause__
    way_out = (
        "install a library for it (cramjam) where the workers run, and start them again"
        if isinstance(cause, UnsupportedCodecError)
        else f"look at the brokers' disks; if it is lost, delete {tp.topic}/{tp.partition} up to behind it "
        "(kafka-delete-records.sh), which is told as GAP"
    )
    return f"the record batch at offset {offset} cannot be read ({cause!r}): {way_out}"


class BatchConsumer(driver.Consumer):  # type: ignore[misc]
    """Hands Faust one message a fetch and partition."""

    def _new_consumer_thread(self) -> BatchConsumerThread:
        return BatchConsumerThread(self, loop=self.loop, beacon=self.beacon)

    @property
    def thread(self) -> BatchConsumerThread:
        """The thread that owns the aiokafka consumer."""
        return cast("BatchConsumerThread", self._thread)

    # The thread may be waiting for records of others than are wanted from now on.

    def on_buffer_drop(self, tp: TP) -> None:
        """The buffer of a partition has room again."""
        super().on_buffer_drop(tp)
        self.thread.wake()

    def resume_partitions(self, tps: Iterable[TP]) -> None:
        """Faust wants these partitions again."""
        super().resume_partitions(tps)
        self.thread.wake()

    def stop_flow(self) -> None:
        """Faust wants nothing until :meth:`resume_flow`."""
        super().stop_flow()
        self.thread.wake()

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group, as soon as we are ready to."""
        topics = set(topics)
        await self.transport.before_joining(topics)
        await super().subscribe(topics)

    async def verify_all_partitions_active(self) -> None:
        """Nothing: lanes report for themselves. Faust would take three turns of the loop for each partition, every few seconds."""

    async def perform_seek(self) -> None:
        """Nothing: each lane seeks, and Faust would ask for the offset of one partition after the other before anything is fetched."""

    def is_active(self, tp: TP) -> bool:
        """Whether batches of this partition are wanted now. In any thread."""
        return tp in self._active_partitions

    async def _drain_messages(self, fetcher: Any) -> None:
        """Hand over what is fetched until ``fetcher``, which is Faust's, is stopped.

        Faust's own method takes several turns of the loop for each message, and what it does with offsets is not for lanes. In a
        busy worker of many partitions the next fetch would wait for all those turns.
        """
        try:
            while not (self.should_stop or fetcher.should_stop):
                messages = await self._next_messages()
                if messages:
                    await self.wait_first(self._hand_over(messages), self.suspend_flow.wait())
        except (ConsumerStoppedError, asyncio.CancelledError):
            if not self.app.should_stop:
                raise

    async def _hand_over(self, messages: Iterable[ConsumerMessage]) -> None:
        """All at once. A rebalance cancels it: of the bare gathering Python would then print that nobody asked for its end."""
        await asyncio.gather(*map(self.callback, messages))

    async def _next_messages(self) -> list[ConsumerMessage]:
        """The batches of one fetch. What a rebalance overtakes is dropped: it will be fetched again."""
        if not self.flow_active:
            await self.wait(self.can_resume_flow)
        try:
            batches = await self._getmany(self._active_partitions, FETCHED_WITHIN_S)
        except GroupAuthorizationFailedError as error:
            # aiokafka's coordinator has ended: there is no going on, but there is an end in order.
            self.transport.excluded(str(error))
            await asyncio.sleep(FETCHED_WITHIN_S)
            return []
        if self.should_stop or not self.flow_active:
            return []
        return [
            self._batch_message(TP(tp.topic, tp.partition), batch)
            for tp, batch in batches.items()
            if self.is_active(tp) or tp in self._buffered_partitions
        ]

    def _batch_message(self, tp: TP, batch: FetchedBatch) -> ConsumerMessage:
        when = batch.records[-1].timestamp / 1000 if batch.records else time.time()
        return ConsumerMessage(
            tp.topic, tp.partition, batch.end - 1, when, 0, (), None, Parcel(batch), None, 0, 0, tp,
            generation_id=self.app.consumer_generation_id,
        )  # fmt: skip


class BatchTransport(driver.Transport):  # type: ignore[misc]
    """Set as ``app.transport``."""

    Consumer = BatchConsumer
    buffers: Buffers
    """What the process may have of batches."""
    spacing: FetchInterval
    """How often brokers are asked."""
    passed: Mapping[str, Any] = MappingProxyType({})
    """Options of aiokafka's that somebody has set for all clients."""
    unreadable: Callable[[str, int, str], None] = staticmethod(lambda _topic, _partition, _reason: None)
    """Told, in the consumer's thread, of each fetch of a partition that is refused."""
    excluded: Callable[[str], None] = staticmethod(lambda _reason: None)
    """Told, any number of times, that we may not use our consumer group any more."""
    foreign: Callable[[], Sequence[str]] = staticmethod(lambda: ())
    """A line for each member of the group that is not Ringfence's."""
    before_joining: Callable[[set[str]], Awaitable[None]] = staticmethod(lambda _topics: asyncio.sleep(0))
    """Awaited with the topics that we subscribe to."""
    replaced: Callable[[], None] = staticmethod(lambda: None)
    """Told, any number of times, that another worker has joined under our instance name."""

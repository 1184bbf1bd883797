"""Faust's aiokafka transport, changed in twelve points.

1. A fetch is one message: Faust moves an event at a time and pays some 23 callbacks for each; here the records of
   one fetch of one partition travel as one :class:`agents.batch.batch.FetchedBatch`.
2. Each batch states where its fetch began: a lane sees a gap by that.
3. Only committed data is read, whatever guarantee Faust is set to.
4. Faust's own idea of what was read and of what is slow is off: lanes know better.
5. No record ends the worker. Its batch names a malformed one; a damaged one holds up its partition alone.
6. aiokafka's fetch task is started again after an error; nobody else would notice.
7. No error of the consumer group ends the membership, or has it wait for somebody who takes the error.
8. A change of the wanted partitions ends the wait for records.
9. A rebalance stops fetching when the group assigns partitions, and not when it is announced.
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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, cast

import aiokafka
from aiokafka import TopicPartition
from aiokafka.errors import ConsumerStoppedError, GroupAuthorizationFailedError, KafkaError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage
from yarl import URL

from agents.batch.batch import FetchedBatch, Parcel
from app.worker import faust_parts
from app.worker.fetch.buffers import Buffers
from app.worker.fetch.fetch_interval import FetchInterval
from app.worker.fetch.fetch_loop import FETCHED_WITHIN_S, FetchLoop
from app.worker.fetch.fetch_scheduler import FETCH_WAIT_MS
from app.worker.fetch.startup_retry import connected
from ringfence_kafka.aiokafka_patches import internals, membership
from ringfence_kafka.concurrency.timeouts import is_cancelled
from ringfence_kafka.errors import named
from ringfence_kafka.protocol.lane_layout import lane_of

log: Final = logging.getLogger("ringfence.worker")

REFUSED_AGAIN_S: Final = 60.0
"""How often the log repeats why the group refuses this worker."""
KEPT_EVERY_S: Final = 1.0
"""How often the membership in the group is checked."""

Place = tuple[TopicPartition, int]
"""A partition and an offset."""


class TransportHooks(Protocol):
    """Reports of the transport to the worker, and its questions. Called in the consumer's thread, save ``before_joining``."""

    def connected(self, thread: "BatchConsumerThread") -> None:
        """React to the connection of the consumer."""

    def unreadable(self, topic: str, partition: int, reason: str) -> None:
        """React to a fetch that was refused or is damaged."""

    def excluded(self, reason: str) -> None:
        """React to the loss of the right to the consumer group. May be called again."""

    def replaced(self) -> None:
        """Another worker has joined under the same instance name. Any number of times."""

    def foreign(self) -> Sequence[str]:
        """Return a line for each member of the group that is not a worker."""

    async def before_joining(self, topics: set[str]) -> None:
        """Awaited with the topics of the subscription, before the worker joins."""


class BatchConsumerThread(faust_parts.ConsumerThread):
    """Runs the consumer in a thread of its own, as Faust does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._fetches: FetchLoop | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def on_start(self) -> None:
        """Connect, however long that takes; called in the thread. After an error Faust might wait for the thread for ever."""
        transport: BatchTransport = self.transport
        if not await connected(self, self._connect):
            return
        consumer = self.connected_consumer
        membership.revoke_late(consumer)
        if instance := transport.app.conf.consumer_group_instance_id:
            membership.name_heartbeats(consumer, instance, transport.hooks.replaced)
        self._fetches = fetches = FetchLoop(
            consumer,
            transport.buffers,
            transport.interval,
            lambda: self.consumer.flow_active,
            self.consumer.is_active,
            transport.hooks.unreadable,
        )
        transport.buffers.when_room(lambda: self._soon(fetches.use_room))
        transport.hooks.connected(self)
        self._keeping = asyncio.create_task(self._keep_member())

    async def _connect(self) -> None:
        try:
            await super().on_start()
        except (KafkaError, OSError):
            await self.connected_consumer.stop()
            raise

    async def _keep_member(self) -> None:
        """Keep the membership alive, also while nothing is read: in a rebalance."""
        hooks: TransportHooks = self.transport.hooks
        logged, logged_at = "", -math.inf
        while True:
            await asyncio.sleep(KEPT_EVERY_S)
            if (consumer := self.made_consumer) is None:
                continue
            try:
                membership.keep_member(consumer)
                membership.take_error(consumer)
            except GroupAuthorizationFailedError as error:
                hooks.excluded(str(error))
            except KafkaError as error:
                refused = "; ".join([named(error), *hooks.foreign()])
                if refused != logged or time.monotonic() > logged_at + REFUSED_AGAIN_S:
                    logged, logged_at = refused, time.monotonic()
                    log.warning("the consumer group refuses this worker, which retries: %s", refused)

    async def on_thread_stop(self) -> None:
        """Disconnect; called in the thread.

        While the broker is away, aiokafka's stop raises the cancellation of a fetch. Faust would wait for the thread for a minute.
        """
        if self._keeping is not None:
            self._keeping.cancel()
        try:
            await super().on_thread_stop()
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            await internals.client_of(self.connected_consumer).close()

    def prepare(self, consumer: aiokafka.AIOKafkaConsumer) -> None:
        """Have it read committed data, which Faust asks for under its own exactly_once only."""
        internals.read_committed(consumer, FETCH_WAIT_MS)
        internals.pass_on(consumer, self.transport.client_options)

    async def fetch_batches(self, limit_s: float) -> dict[TopicPartition, FetchedBatch]:
        """Return the batches of the partitions that are active at each look."""
        return {} if self._fetches is None else await self._fetches.fetch(limit_s)

    def wake(self) -> None:
        """Have a fetch that waits look again, because other partitions are wanted, or none. In any thread."""
        if self._fetches is not None:
            self._soon(self._fetches.wake)

    def join_again(self) -> None:
        """Have the group assign its partitions again, if this worker leads it. In any thread, once connected."""
        self._soon(lambda: membership.join_again(self.connected_consumer))

    @property
    def member_id(self) -> str:
        """The ID that the group gave this worker; empty if it is not a member now. In any thread."""
        return "" if self.made_consumer is None else membership.member_id(self.made_consumer)

    def _soon(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the thread has ended, and nothing waits
            self.thread_loop.call_soon_threadsafe(call)

    async def rewind_all(self, places: Collection[Place]) -> dict[Place, int | Exception]:
        """See :meth:`FetchLoop.rewind`; runs in the consumer's thread."""
        assert self._fetches is not None  # noqa: S101 - lanes rewind what the group has assigned
        return self._fetches.rewind(places)

    async def is_member(self, generation: int) -> bool:
        """Ask the group's coordinator whether this worker is a member of this generation; in the consumer's thread."""
        return await membership.is_member(self.connected_consumer, generation)

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Lanes report for themselves; Faust's watch of each event does not fit batches."""


class BatchConsumer(faust_parts.Consumer):
    """Hands Faust one message a fetch and lane."""

    thread_class = BatchConsumerThread

    @property
    def thread(self) -> BatchConsumerThread:
        """The thread that owns the aiokafka consumer."""
        return cast("BatchConsumerThread", self.owned_thread)

    def on_buffer_drop(self, tp: TP) -> None:
        """Note that the buffer of a partition has room again."""
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
        """Join the group, as soon as the worker is ready to."""
        topics = set(topics)
        await self.transport.hooks.before_joining(topics)
        await super().subscribe(topics)

    async def verify_all_partitions_active(self) -> None:
        """Nothing: lanes report for themselves. Faust would take three turns of the loop for each partition, every few seconds."""

    async def perform_seek(self) -> None:
        """Nothing: each lane seeks. Faust would first ask for the offset of one partition after the other."""

    def is_active(self, tp: TP) -> bool:
        """Whether batches of this partition are wanted now. In any thread.

        The batches of a lane travel by its first partition, so they are wanted only while its are.
        """
        active = self.active_partitions
        return tp in active and self.transport.first_of_lane(tp) in active

    async def _drain_messages(self, fetcher: Any) -> None:
        """Hand over fetched batches until ``fetcher``, which is Faust's, is stopped.

        Faust's own method takes several turns of the loop for each message, and the next fetch would wait for them.
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
        """All at once. A coroutine: Python logs the cancellation of a bare ``gather`` in a rebalance."""
        await asyncio.gather(*map(self.callback, messages))

    async def _next_messages(self) -> list[ConsumerMessage]:
        """Return the batches of one fetch. A rebalance drops them, and they are fetched again."""
        if not self.flow_active:
            await self.wait(self.can_resume_flow)
        try:
            batches = await self.fetch(FETCHED_WITHIN_S)
        except GroupAuthorizationFailedError as error:
            # aiokafka's coordinator has ended: the worker cannot go on, but it can stop in order.
            self.transport.hooks.excluded(str(error))
            await asyncio.sleep(FETCHED_WITHIN_S)
            return []
        if self.should_stop or not self.flow_active:
            return []
        by_lane: dict[TP, list[FetchedBatch]] = {}
        for tp, batch in batches.items():
            first = self.transport.first_of_lane(TP(tp.topic, tp.partition))
            if self.is_active(tp) or first in self.buffered_partitions:
                by_lane.setdefault(first, []).append(batch)
        return [self._batch_message(*item) for item in by_lane.items()]

    def _batch_message(self, tp: TP, batches: Sequence[FetchedBatch]) -> ConsumerMessage:
        batch = batches[0]
        when = batch.records[-1].timestamp / 1000 if batch.records else time.time()
        return ConsumerMessage(
            tp.topic, tp.partition, batch.end - 1, when, 0, (), None, Parcel(batches), None, 0, 0, tp,
            generation_id=self.app.consumer_generation_id,
        )  # fmt: skip


class BatchTransport(driver.Transport):  # type: ignore[misc]
    """The transport of a worker's app."""

    Consumer = BatchConsumer

    def __init__(
        self,
        urls: list[URL],
        app: Any,
        *,
        buffers: Buffers,
        interval: FetchInterval,
        client_options: Mapping[str, Any],
        hooks: TransportHooks,
        lanes: Mapping[str, int],
    ) -> None:
        """Make the transport.

        Args:
            urls: Of the brokers.
            app: The worker's.
            buffers: Count what was fetched.
            interval: How often brokers are asked.
            client_options: Options of aiokafka for all clients.
            hooks: Questions and reports to the worker.
            lanes: The key ``lanes`` of each address, by input topic.
        """
        super().__init__(urls, app)
        self.buffers: Final = buffers
        self.interval: Final = interval
        self.client_options: Final = client_options
        self.hooks: Final = hooks
        self._lanes = lanes

    def first_of_lane(self, tp: TP) -> TP:
        """Return the first partition of the lane of an input partition. A forward topic has one partition a lane."""
        lanes = self._lanes.get(tp.topic, 0)
        return TP(tp.topic, lane_of(tp.partition, lanes)) if lanes else tp

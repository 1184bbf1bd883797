"""Faust's aiokafka transport with twelve changes.

1. A fetch is one message. Faust moves single events with some 23 callbacks each. Here the records of one
   fetch of one partition travel as one :class:`agents.batch.batch.FetchedBatch`.
2. Each batch has the offset where its fetch began, so that a lane sees gaps.
3. Only committed data is read, whatever guarantee Faust is set to.
4. Faust's own tracking of read offsets and slow partitions is off, because lanes do it.
5. No record ends the worker. A batch names its malformed records; a damaged record stops only its partition.
6. aiokafka's fetch task is restarted after an error, which otherwise goes unnoticed.
7. No error of the consumer group ends the membership, or blocks it until the error is read.
8. A change of the wanted partitions ends the wait for records.
9. A rebalance stops fetching when the group assigns partitions, not when it is announced.
10. A static member's heartbeats have its name.
11. No more is fetched and read than the memory limit allows.
12. The worker waits for a broker that goes away while it starts.

``tests/integration/test_transport.py`` fails if an upgrade breaks one of them.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

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
"""Interval at which the log repeats why the group refuses this worker, in seconds."""
KEPT_EVERY_S: Final = 1.0
"""Interval at which the membership in the group is checked, in seconds."""

Place = tuple[TopicPartition, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportHooks:
    """Reports and questions to the worker, in the consumer's thread except for ``before_joining``."""

    connected: Callable[["BatchConsumerThread"], None]
    unreadable: Callable[[str, int, str], None]
    """Takes topic, partition and reason of a fetch that was refused or is damaged."""
    excluded: Callable[[str], None]
    """Takes the reason why the right to the consumer group is lost. May be called again."""
    replaced: Callable[[], None]
    """Another worker has the same instance name. May be called again."""
    foreign: Callable[[], Sequence[str]]
    """Returns a line for each member of the group that is not a worker."""
    before_joining: Callable[[set[str]], Awaitable[None]]
    """Takes the topics of the subscription, before the worker joins."""


class BatchConsumerThread(faust_parts.ConsumerThread):
    """Runs the consumer in its own thread, as Faust does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._fetches: FetchLoop | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def on_start(self) -> None:
        """Connect in the thread, without a time limit: after an error Faust might wait for it forever."""
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
        """Keep the membership alive, also while nothing is read during a rebalance."""
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
        """Disconnect in the thread.

        While the broker is away, aiokafka's stop raises a fetch's cancellation. Faust would wait for the
        thread for a minute.
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
        """Make the consumer read committed data, which Faust does only with its own exactly_once."""
        internals.read_committed(consumer, FETCH_WAIT_MS)
        internals.pass_on(consumer, self.transport.client_options)

    async def fetch_batches(self, limit_s: float) -> dict[TopicPartition, FetchedBatch]:
        """Return the batches of the partitions that are active at each look."""
        return {} if self._fetches is None else await self._fetches.fetch(limit_s)

    def wake(self) -> None:
        """Wake a waiting fetch, because the wanted partitions have changed. Thread-safe."""
        if self._fetches is not None:
            self._soon(self._fetches.wake)

    def join_again(self) -> None:
        """Request a new assignment, if this worker leads the group. Thread-safe, once connected."""
        self._soon(lambda: membership.join_again(self.connected_consumer))

    @property
    def member_id(self) -> str:
        """ID that the group gave this worker; empty = not a member now. Thread-safe."""
        return "" if self.made_consumer is None else membership.member_id(self.made_consumer)

    def _soon(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the thread has ended, so there is nothing to wake
            self.thread_loop.call_soon_threadsafe(call)

    async def rewind_all(self, places: Collection[Place]) -> dict[Place, int | Exception]:
        """Call :meth:`FetchLoop.rewind` in the consumer's thread."""
        assert self._fetches is not None  # noqa: S101 - lanes rewind what the group has assigned
        return self._fetches.rewind(places)

    async def is_member(self, generation: int) -> bool:
        """Ask the coordinator whether this worker is in a generation. Runs in the consumer's thread."""
        return await membership.is_member(self.connected_consumer, generation)

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Do nothing: lanes report their progress, and Faust's check of single events does not fit batches."""


class BatchConsumer(faust_parts.Consumer):
    """Passes one message for each fetch and lane to Faust."""

    thread_class = BatchConsumerThread

    def on_buffer_drop(self, tp: TP) -> None:
        """Look again, because a partition's buffer has room."""
        super().on_buffer_drop(tp)
        self.owned_thread.wake()

    def resume_partitions(self, tps: Iterable[TP]) -> None:
        """Look again, because Faust wants these partitions again."""
        super().resume_partitions(tps)
        self.owned_thread.wake()

    def stop_flow(self) -> None:
        """End the wait, because Faust wants nothing until :meth:`resume_flow`."""
        super().stop_flow()
        self.owned_thread.wake()

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group as soon as the worker is ready."""
        topics = set(topics)
        await self.transport.hooks.before_joining(topics)
        await super().subscribe(topics)

    async def verify_all_partitions_active(self) -> None:
        """Do nothing: lanes report progress. Faust would take three loop turns for each partition."""

    async def perform_seek(self) -> None:
        """Do nothing: each lane seeks. Faust would first ask for the offsets of all partitions one by one."""

    def is_active(self, tp: TP) -> bool:
        """Return whether batches of this partition are wanted now. Thread-safe.

        Batches of a lane travel under its first partition, so they are wanted only if that partition is
        active too.
        """
        active = self.active_partitions
        return tp in active and self.transport.first_of_lane(tp) in active

    async def _drain_messages(self, fetcher: Any) -> None:
        """Pass fetched batches on until Faust's ``fetcher`` is stopped.

        Faust's own method takes several turns of the loop for each message, and the next fetch would wait for
        them.
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
        """Pass all messages concurrently; a coroutine, as Python logs a bare ``gather``'s cancellation."""
        await asyncio.gather(*map(self.callback, messages))

    async def _next_messages(self) -> list[ConsumerMessage]:
        """Return the batches of one fetch. A rebalance discards them, and they are fetched again."""
        if not self.flow_active:
            await self.wait(self.can_resume_flow)
        try:
            batches = await self.fetch(FETCHED_WITHIN_S)
        except GroupAuthorizationFailedError as error:
            # aiokafka's coordinator has ended, so the worker cannot continue, but it can stop in order
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
    """Transport of a worker's app."""

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
        """Create the transport.

        ``client_options``: options of aiokafka for all clients. ``lanes``: input topic → key ``lanes`` of its address.
        """
        super().__init__(urls, app)
        self.buffers: Final = buffers
        self.interval: Final = interval
        self.client_options: Final = client_options
        self.hooks: Final = hooks
        self._lanes = lanes

    def first_of_lane(self, tp: TP) -> TP:
        """Return the first partition of an input's lane. A forward topic has one for each lane."""
        lanes = self._lanes.get(tp.topic, 0)
        return TP(tp.topic, lane_of(tp.partition, lanes)) if lanes else tp

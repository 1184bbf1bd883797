"""One bridge in this process: a member of its group at the source, with one producer at a time at the target."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Final

from aiokafka.errors import KafkaError

from agents.bridge.flow import Flow
from agents.bridge.member_admission import Permit
from agents.bridge.offset_commits import Committer
from agents.bridge.partitions import Partitions
from agents.bridge.plan import AGAIN_FIRST_S, AGAIN_MOST_S, LASTED_S, Plan
from agents.bridge.producer_session import SessionEndedError
from agents.bridge.producer_sessions import OutdatedError, ProducerSessions
from agents.bridge.source import SourceConsumer
from agents.bridge.state import MEMBERSHIP, SOURCE, BridgeState
from ringfence_client.consumer import group_terms
from ringfence_client.consumer.assignor import is_ours
from ringfence_client.consumer.topic_watch import TopicWatch
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_watch import GroupWatch
from ringfence_kafka.admin.topic_ids import NO_TOPIC, TopicIdentity
from ringfence_kafka.concurrency.coalesce import StoppedError
from ringfence_kafka.concurrency.timeouts import StoppingError, back_off, cancelled, set_within, unless
from ringfence_kafka.errors import ConfigurationError, RingfenceError, said
from ringfence_kafka.groups.committed_offsets import Committed

log: Final = logging.getLogger("ringfence.bridge")

KEEP_EVERY_S: Final = 0.5
MEASURE_EVERY_S: Final = 2.0
MEASURE_LIMIT_S: Final = 5.0


class ForeignGroupError(RingfenceError):
    """The group refuses this process and has foreign members."""


class Bridge:
    """Forwarder of one bridge. It runs until :meth:`stop`."""

    def __init__(
        self,
        plan: Plan,
        instance: str,
        web: str = "",
        ends: Mapping[int, int] | None = None,
        permit: Permit | None = None,
    ) -> None:
        """Prepare a bridge. ``ends``: offsets to stop at, by source partition; ``permit``: returns the members of a strict connection."""
        self.plan = plan
        self.state = BridgeState(plan.name)
        self._flow = Flow(plan, self.state, ends)
        self.window = self._flow.window
        self._committer = Committer(self.state, self.window, instance, web)
        self._instance = instance
        self._permit = permit
        self._stood: dict[int, Committed] = {}
        """Last known position of this process in each source partition that it had."""
        self._stopping = asyncio.Event()
        self._cluster: Cluster
        self.group_watch: GroupWatch | None = None
        """Watch of the group at the source; None before the first connection."""
        self._partitions: Partitions
        self._watch: TopicWatch
        self._lives: ProducerSessions

    def stop(self) -> None:
        """Let :meth:`run` end: it reads no more, waits for unacknowledged batches and commits offsets."""
        self._stopping.set()

    @property
    def drained(self) -> bool:
        """Whether all assigned partitions reached their end offsets and committed them."""
        return self.state.assigned is not None and all(map(self._at_end, self.state.assigned))

    @property
    def drain_obstacles(self) -> list[str]:
        """Reasons for which a drain cannot finish; empty unless all unfinished partitions are stopped."""
        stops, assigned = self.state.stops, self.state.assigned
        if assigned is None or not all(number in stops or self._at_end(number) for number in assigned):
            return []
        return [problem.text for number, problem in sorted(stops.items()) if not self._at_end(number)]

    def _at_end(self, number: int) -> bool:
        place = self.window.places.get(number)
        return (
            place is not None
            and self._flow.is_at_end(place)
            and self._committer.committed_offset(number) == place.confirmed
        )

    async def run(self) -> None:
        """Forward until :meth:`stop`. Every failure is retried."""
        attempt = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                async with self._connected():
                    self.state.recover(SOURCE)
                    await self._lives.run()
            except StoppingError:
                return
            except Exception as error:
                attempt = 1 if time.monotonic() - began > LASTED_S else attempt + 1
                if isinstance(error, OutdatedError) and self._permit is not None:
                    self._permit.forget()
                self.state.fail(SOURCE, f"source: {self.state.error_text(error)}")
                await set_within(self._stopping, back_off(attempt, AGAIN_FIRST_S, AGAIN_MOST_S))

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        """Be a member of the group while the block runs."""
        self.state.assigned = None
        shared = None if self._permit is None else await unless(self._stopping, self._permit.get())
        self._cluster = Cluster(self.plan.source, self.plan.group)
        async with contextlib.AsyncExitStack() as stack:
            await unless(self._stopping, self._cluster.start())
            stack.push_async_callback(self._cluster.stop)
            await unless(self._stopping, self._require_terms())
            self.group_watch = self._group_watch()
            self._partitions = Partitions(
                self._flow, self._cluster, self._committer, shared, self.group_watch, self._stood
            )
            self._lives = ProducerSessions(
                self._flow, self._committer, self._partitions, self._instance, self._stopping
            )
            self._watch = TopicWatch(self._cluster)
            self._watch.observe(self.plan.source_topic, self._compare)
            consumer = SourceConsumer(
                self.plan,
                self._instance,
                self._revoked,
                self._partitions.assigned,
                self._doubt,
                lambda _: self._partitions.refuse(),
            )
            self._partitions.consumer = consumer
            stack.callback(self._flow.start_over)
            stack.push_async_callback(self._partitions.stop)
            stack.push_async_callback(consumer.stop)
            watching = asyncio.create_task(self.group_watch.run(), name="group watch")
            stack.push_async_callback(cancelled, watching)
            await unless(self._stopping, _join(consumer, self.group_watch))
            self.state.joined()
            for work in (
                self._watch.run_until_cancelled(),
                self._keep(consumer),
                self._measure(self.group_watch),
            ):
                stack.push_async_callback(cancelled, asyncio.create_task(work))
            yield

    async def _keep(self, consumer: SourceConsumer) -> None:
        """Keep the membership, even while the target is unavailable or no partition is assigned, and nothing is read."""
        while True:
            self.state.was_never_suspended()
            try:
                consumer.keep()
            except Exception as error:
                self.state.fail(MEMBERSHIP, f"source: {said(error)}")
            else:
                self.state.recover(MEMBERSHIP)
            await asyncio.sleep(KEEP_EVERY_S)

    async def _measure(self, group_watch: GroupWatch) -> None:
        """Measure lags every few seconds, for status and metrics."""
        topic, lags = self.plan.source_topic, self.state.lags
        while True:
            numbers = list(self.window.places)
            try:
                ends = await self._cluster.offsets.known_stable_ends(
                    [(topic, number) for number in numbers], MEASURE_LIMIT_S
                )
            except (KafkaError, OSError, TimeoutError, StoppedError):
                pass  # the watch reports it
            except Exception:
                log.exception("bridge %s: its lag is unknown", self.plan.name)
            else:
                for number in self.window.places.keys() & numbers:
                    if (end := ends.get((topic, number))) is None:
                        lags.pop(number, None)  # without an answer the lag is not known
                    else:
                        lags[number] = max(0, end - self.window.places[number].confirmed)
            self.state.source_faults = [*group_watch.faults, *self._watch.faults]
            await asyncio.sleep(MEASURE_EVERY_S)

    async def _require_terms(self) -> None:
        """Raise ConfigurationError if other processes run with another configuration, before this one joins and disturbs them."""
        topic = self.plan.source_topic
        if found := await group_terms.unlike(self._cluster, topic, self.plan.terms):
            raise ConfigurationError(
                f"processes of bridge {self.plan.name} run with another configuration: {found}. They "
                "continue, and this one forwards nothing. Give all processes of the bridge the same file. "
                "To change it, stop the others: this one starts when the last one has stopped"
            )

    def _group_watch(self) -> GroupWatch:
        topic = self.plan.source_topic
        return GroupWatch(
            self._cluster,
            [topic],
            partial(is_ours, topic),
            log,
            "messages that it reads are not forwarded until it has left",
            lambda: self._partitions.consumer.member_id,
            reserved=True,
        )

    def _doubt(self) -> None:
        """Check the topic, because a broker no longer knows it or no longer leads it."""
        self._partitions.doubted = True
        self._watch.hurry()

    def _compare(self, identity: TopicIdentity | None) -> None:
        """Compare the topic's identity with the open partitions. An unknown identity waits for the next check."""
        if identity is None or identity == NO_TOPIC:
            return
        if not self._watch.hurried:
            self._partitions.doubted = False
        self._partitions.compare(identity)

    async def _revoked(self) -> None:
        """Before a revocation of all partitions: wait for unacknowledged batches, and commit."""
        self._partitions.handing_over = True
        life = self._lives.current
        try:
            if life is not None:
                await self._flow.drain(life)
                if self.window.busy:
                    life.end(SessionEndedError("partitions were revoked while messages were under way"))
            await self._committer.commit(self._partitions.consumer)
        finally:
            self._flow.start_over()
            self._partitions.drop()


async def _join(consumer: SourceConsumer, group_watch: GroupWatch) -> None:
    """Join the group. If it refuses, foreign members may be the cause."""
    try:
        await consumer.start()
    except KafkaError as error:
        await group_watch.refresh()
        if group_watch.faults:
            raise ForeignGroupError("; ".join([said(error), *group_watch.faults])) from error
        raise

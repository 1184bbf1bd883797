"""One bridge in this process: a member of its group at the source, and one producer after the other at the target."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Final

from aiokafka.errors import KafkaError

from agents.bridge.committing import Committer
from agents.bridge.flow import POLL_S, Flow
from agents.bridge.joining import Permit
from agents.bridge.life import Life, LifeEndedError
from agents.bridge.load import Loader
from agents.bridge.partitions import OUTDATED, Partitions
from agents.bridge.plan import AGAIN_FIRST_S, AGAIN_MOST_S, Plan
from agents.bridge.source import Read, SourceConsumer
from agents.bridge.state import SOURCE, TARGET, UNREADABLE, BridgeState
from agents.bridge.stopping import StoppingError, cancelled, unless
from agents.bridge.targeting import look
from agents.bridge.upkeep import keep, measure
from agents.bridge.window import CYCLE_RECORDS_MAX
from ringfence_client.topic_watch import TopicWatch
from ringfence_kafka.cluster import NO_TOPIC, Cluster, TopicIdentity
from ringfence_kafka.errors import RingfenceError, said, unforeseen
from ringfence_kafka.idempotent import IdempotentProducer
from ringfence_kafka.together import StoppedError
from ringfence_kafka.waiting import back_off, set_within

log: Final = logging.getLogger("ringfence.bridge")

SETTLED_S: Final = 2.0
"""A producer that lives so long and has nothing to do is well."""
LASTED_S: Final = 5.0
"""What fails after so long fails for the first time."""
REST_S: Final = 5.0
"""After so long it is looked whether the target takes what it has refused."""


class OutdatedError(RingfenceError):
    """What the bridge goes by is not true any more: it is asked for again, before anything is forwarded."""


class Bridge:
    """Runs until :meth:`stop`."""

    def __init__(
        self,
        plan: Plan,
        instance: str,
        web: str = "",
        ends: Mapping[int, int] | None = None,
        permit: Permit | None = None,
    ) -> None:
        """Nothing is connected yet.

        Args:
            plan: What to forward.
            instance: Of this process, by which others see it.
            web: Where its pages are.
            ends: Where to stop, by source partition; None = never.
            permit: Tells the members of its strict connection; None = it belongs to none.
        """
        self.plan = plan
        self.state = BridgeState(plan.name)
        self._ends = ends
        self._flow = Flow(plan, self.state, ends)
        self.window = self._flow.window
        self._committer = Committer(self.state, self.window, instance, web)
        self._instance = instance
        self._permit = permit
        self._stopping = asyncio.Event()
        self._cluster: Cluster
        self._partitions: Partitions
        self._watch: TopicWatch
        self._life: Life | None = None
        self._handing_over = False

    def stop(self) -> None:
        """Ask :meth:`run` to end: nothing more is read, what is under way is drained, offsets are committed."""
        self._stopping.set()

    @property
    def drained(self) -> bool:
        """Whether all that it has been given stands at the ends that it was to stop at, and that is committed."""
        return self.state.assigned is not None and all(map(self._at_end, self.state.assigned))

    @property
    def standing(self) -> list[str]:
        """Why it will not be drained, where all but what goes no further is."""
        stops, assigned = self.state.stops, self.state.assigned
        if assigned is None or not all(number in stops or self._at_end(number) for number in assigned):
            return []
        return [each.text for number, each in sorted(stops.items()) if not self._at_end(number)]

    def _at_end(self, number: int) -> bool:
        place = self.window.places.get(number)
        return (
            place is not None
            and self._flow.is_at_end(place)
            and self._committer.stands(number) == place.confirmed
        )

    async def run(self) -> None:
        """Forward until :meth:`stop`. Whatever fails is tried again."""
        attempt = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                async with self._connected():
                    self.state.recover(SOURCE)
                    await self._live()
            except StoppingError:
                return
            except Exception as error:  # noqa: BLE001 - it ends neither this bridge nor the others
                attempt = 1 if time.monotonic() - began > LASTED_S else attempt + 1
                if isinstance(error, OutdatedError) and self._permit is not None:
                    self._permit.forget()
                self.state.fail(SOURCE, f"source: {self._told(error)}")
                await set_within(self._stopping, back_off(attempt, AGAIN_FIRST_S, AGAIN_MOST_S))

    # -- the source ----------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        """A member of the group, until the end."""
        self.state.assigned = None
        shared = None if self._permit is None else await unless(self._stopping, self._permit.get())
        self._cluster = Cluster(self.plan.source, self.plan.group)
        async with contextlib.AsyncExitStack() as stack:
            await unless(self._stopping, self._cluster.start())
            stack.push_async_callback(self._cluster.stop)
            self._partitions = Partitions(
                self.plan, self._cluster, self.window, self.state, shared, self._ends
            )
            self._watch = TopicWatch(self._cluster)
            self._watch.tell(self.plan.source_topic, self._compare)
            consumer = SourceConsumer(
                self.plan,
                self._instance,
                lambda: self.window.places,
                self._revoked,
                self._assigned,
                self._doubt,
            )
            self._partitions.consumer, self._partitions.committer = consumer, self._committer
            stack.push_async_callback(self._partitions.stop)
            stack.push_async_callback(consumer.stop)
            await unless(self._stopping, consumer.start())
            self.state.joined()
            for work in (
                self._watch.run(),
                keep(consumer, self.state),
                measure(self.plan.source_topic, self._cluster, self._watch, self.window, self.state),
            ):
                stack.push_async_callback(cancelled, asyncio.create_task(work))
            yield

    def _assigned(self, numbers: Collection[int]) -> None:
        self._handing_over = False
        self._partitions.assigned(numbers)

    def _doubt(self) -> None:
        """A broker does not know the topic any more, or not where it was."""
        self._partitions.doubted = True
        self._watch.hurry()

    def _compare(self, identity: TopicIdentity | None) -> None:
        """Which topic it is. Where that cannot be told, the next look tells."""
        if identity is None or identity == NO_TOPIC:
            return
        if not self._watch.hurried:
            self._partitions.doubted = False
        self._partitions.compare(identity)

    async def _revoked(self) -> None:
        """Before all partitions are given away: what is under way is waited for, and committed."""
        self._handing_over = True
        life = self._life
        try:
            if life is not None:
                await self._flow.drain(life)
                if self.window.busy:
                    life.end(LifeEndedError("partitions were given away while messages were under way"))
            await self._committer.commit(self._partitions.consumer)
        finally:
            self._flow.start_over()
            self._partitions.drop()

    # -- the target ----------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """Lives of producers, one after the other."""
        attempt = 0
        while not self._stopping.is_set():
            self._require_members()
            began, fault, at_once = time.monotonic(), "", False
            try:
                await self._one_life()
                return
            except (OutdatedError, StoppingError):
                raise
            except LifeEndedError as error:
                at_once = self._flow.learn(error)
                fault = "" if at_once else str(error)
            except Exception as error:  # noqa: BLE001 - whatever it is, nothing was skipped
                fault = self._told(error)
            attempt = 1 if at_once or time.monotonic() - began > LASTED_S else attempt + 1
            self._start_over()
            if fault:
                self.state.fail(TARGET, f"target: {fault}")
            await self._committer.commit(self._partitions.consumer)
            if not at_once:
                await set_within(self._stopping, back_off(attempt, AGAIN_FIRST_S, AGAIN_MOST_S))

    async def _one_life(self) -> None:
        """Until it fails, or somebody asks to stop."""
        target = await unless(self._stopping, look(self.plan))
        bytes_max = min(target.bytes_max, target.quarantine_bytes_max or target.bytes_max)
        producer = IdempotentProducer(self.plan.target, self._instance, bytes_max)
        life = Life(self.plan.name, producer)
        try:
            await unless(self._stopping, producer.start())
            self._life, self.state.reached = life, True
            flow = self._flow
            flow.looked(target)
            loader = Loader(self.plan, target, producer.builder, flow.records_max, flow.refused)
            looking = asyncio.create_task(self._look_again(loader))
            try:
                await self._forward(life, loader, target.partitions)
            finally:
                await cancelled(looking)
            await flow.drain(life)
            await self._committer.commit(self._partitions.consumer, last=True)
        finally:
            self._life = None
            await life.discard()

    async def _look_again(self, loader: Loader) -> None:
        """While partitions wait for the target to take a record: others go on meanwhile."""
        while True:
            await asyncio.sleep(REST_S)
            if not self._flow.stopped:
                continue
            try:
                loader.target = await look(self.plan)
            except Exception as error:  # noqa: BLE001 - the producer meets it, too
                log.debug("bridge %s: the target cannot be looked at: %r", self.plan.name, error)
                continue
            waiting = list(self._flow.stopped)
            self._flow.looked(loader.target)
            for place in waiting:
                if self.window.places.get(place.partition) is place:
                    self._partitions.consumer.go_on(place.partition, place.next)

    async def _forward(self, life: Life, loader: Loader, partitions: int) -> None:
        began, flow, topic = time.monotonic(), self._flow, self.plan.target_topic
        while not self._stopping.is_set():
            life.check()
            self._require_members()
            life.moved.clear()
            if await flow.settle() or (not self.window.busy and time.monotonic() - began > SETTLED_S):
                self.state.recover(TARGET)
            there = life.producer.partitions(topic)
            if there not in {0, partitions}:
                raise LifeEndedError(f"{topic} has {there} partitions now, and had {partitions}")
            if self._committer.due or not self.window.busy:
                await self._committer.commit(self._partitions.consumer)
            halted = self._handing_over or self._partitions.doubted or self.window.full
            wanted = {} if halted else self._wanted()
            found = await self._read(wanted) if wanted else None
            if found is not None:
                await flow.send(life, loader, wanted, found)
            elif not wanted:
                await set_within(life.moved, POLL_S)

    def _told(self, error: Exception) -> str:
        """What is shown of it; of what nobody has foreseen the trace is logged, once in a row."""
        if isinstance(error, RingfenceError | KafkaError | OSError | StoppedError):
            return said(error)
        text = unforeseen(error)
        if self.state.fault is None or text not in self.state.fault.text:
            log.error("bridge %s: %s", self.plan.name, text, exc_info=error)
        return text

    def _require_members(self) -> None:
        """While this process stood still others may have drained the connection, and given it other members."""
        if self._partitions.outdated:
            raise OutdatedError(OUTDATED)
        if self._permit is not None and not self.state.looks_awake():
            raise OutdatedError("this process was stopped for a while: the members are asked for again")

    def _wanted(self) -> dict[int, int]:
        """Of a partition that was just opened nothing before it is written down where that was: whoever opens it next begins there."""
        return {
            number: at
            for number, at in self._flow.wanted().items()
            if self._committer.stands(number) is not None
        }

    async def _read(self, wanted: Mapping[int, int]) -> Read | None:
        """What has come; None = nothing that may be taken."""
        epoch = self._partitions.epoch
        try:
            found = await self._partitions.consumer.read(wanted, self.window.take, CYCLE_RECORDS_MAX, POLL_S)
        except (KafkaError, OSError) as error:
            self._read_again(wanted)
            self.state.fail(SOURCE, f"source: {said(error)}")
            await set_within(self._stopping, 1.0)
            return None
        self.state.recover(SOURCE)
        if epoch != self._partitions.epoch or self._partitions.doubted or self._handing_over:
            self._read_again(wanted)
            return None
        for number, missing in found.lost.items():
            log.warning(
                "bridge %s: %s/%d: there is no offset %d",
                self.plan.name,
                self.plan.source_topic,
                number,
                missing,
            )
            self._partitions.reopen(number, f"opening: there is no offset {missing}", missing)
        self._note_unreadable(found)
        return found

    def _read_again(self, wanted: Mapping[int, int]) -> None:
        """What was read of these and went nowhere."""
        for number in wanted:
            place = self.window.places.get(number)
            if place is not None:
                self._partitions.consumer.go_on(number, place.next)

    def _note_unreadable(self, found: Read) -> None:
        for number in found.reached:
            self.state.go_on(UNREADABLE, number)
        for number, why in found.unreadable.items():
            at = self.window.places[number].next
            self.state.stop(
                UNREADABLE,
                number,
                f"stopped: {self.plan.source_topic}/{number} cannot be read from {at} on: {why}",
            )

    def _start_over(self) -> None:
        """From what is confirmed."""
        for number, offset in self._flow.start_over():
            self._partitions.consumer.go_on(number, offset)

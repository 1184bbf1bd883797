"""Flow from source to target: cycles are read, built, sent, and confirmed when the target acknowledged them."""

import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from agents.bridge.batch_builder import BatchBuilder, CycleBatches, Target
from agents.bridge.plan import Plan
from agents.bridge.producer_session import ProducerSession, SessionEndedError
from agents.bridge.source import DRAIN_LIMIT_S, RESPONSE_BYTES_MAX, Read
from agents.bridge.state import REFUSED, BridgeState
from agents.bridge.translation import Refused, RefusedError
from agents.bridge.window import CYCLE_RECORDS_MAX, CYCLES_MAX, Cycle, Place, Window
from ringfence_kafka import clock
from ringfence_kafka.aiokafka_patches.adaptive_fetch import FetchSize
from ringfence_kafka.auth.client_options import REQUEST_TIMEOUT_MS
from ringfence_kafka.concurrency.timeouts import set_within
from ringfence_kafka.process.failpoints import reach

log: Final = logging.getLogger("ringfence.bridge")

POLL_S: Final = 0.1
TELL_S: Final = 60.0
"""Minimum time between log lines about messages that come back, in seconds."""


class Flow:
    """Flow of one bridge, over all its producer sessions."""

    def __init__(self, plan: Plan, state: BridgeState, ends: Mapping[int, int] | None) -> None:
        """Prepare the flow. ``ends``: offsets to stop at, by source partition; None = no end."""
        self.plan = plan
        self.state = state
        self.ends = ends
        self.window = Window(plan.window, CYCLES_MAX if plan.detection else 1)
        self.records_max: dict[int, int] = {}
        """Limit of records in a batch, by target partition, while the bridge searches for a record that the target refuses."""
        self.refused = Refused()
        self.stopped: dict[Place, RefusedError] = {}
        """Partitions that wait at a record that no topic takes, with the reason."""
        self.portion = FetchSize(RESPONSE_BYTES_MAX, REQUEST_TIMEOUT_MS / 1000)
        """Maximum size of a cycle at the target, adapted to the link's speed."""
        self._record_bytes = 1.0
        """Mean size of a record at the target in the last cycle, in bytes."""
        self._until: dict[int, dict[Place, int]] = {}
        """Offsets by target partition. When they are confirmed, the limit in :attr:`records_max` is removed."""
        self._loads: dict[Cycle, CycleBatches] = {}
        self._returned = 0
        """Number of messages that came back and are not logged yet."""
        self._next_log_s = -math.inf
        self._settings = ""
        """Settings of the target at the last check."""

    def wanted(self) -> dict[int, int]:
        """Return the read position of each partition that a cycle may read from."""
        ends, places = self.ends, self.window.places
        wanted = {
            number: at for number, at in self.window.wanted().items() if places[number] not in self.stopped
        }
        if ends is None:
            return wanted
        return {number: at for number, at in wanted.items() if at < ends.get(number, 0)}

    def records_at_once(self) -> int:
        """Return the record limit of a cycle over all partitions. A slow link to the target lowers it."""
        if self.portion.bytes == self.portion.most:
            return CYCLE_RECORDS_MAX
        return max(1, min(CYCLE_RECORDS_MAX, int(self.portion.bytes / self._record_bytes)))

    def is_at_end(self, place: Place) -> bool:
        """Return whether a partition is confirmed up to its end offset."""
        return self.ends is not None and place.confirmed >= self.ends.get(place.partition, 0)

    async def send(
        self,
        life: ProducerSession,
        loader: BatchBuilder,
        wanted: Mapping[int, int],
        found: Read,
        look: Callable[[], Awaitable[Target]],
    ) -> None:
        """Send records. A partition stops at a record that no topic takes, and the others continue.

        ``wanted``: position of each partition before this read. ``look`` queries the target's limits before a record is refused for its size.
        """
        self._cut(found)
        reached = {number: offset for number, offset in found.reached.items() if offset > wanted[number]}
        if not reached:
            return
        places = self.window.places
        read = {places[number]: records for number, records in found.records.items() if number in reached}
        cycle = self.window.start_cycle(reached)
        cycle.pending = 1  # keeps the cycle open until its batches are counted, also if loading fails
        load = loader.load(cycle, read, found.malformed)
        if load.too_large:
            now = await look()
            if now.settings != loader.target.settings:
                loader.target = now
                self.update_target(now)
                load = loader.load(cycle, read, found.malformed)
        self._loads[cycle] = load
        for place in cycle.ends:
            error = load.stopped.get(place)
            if error is None:
                self.state.go_on(REFUSED, place.partition)
            else:
                self.stopped[place] = error
                self.window.cut(cycle, place, error.offset)
                self.state.stop(REFUSED, place.partition, f"stopped: {error}")
        if load.batches:
            cycle.bytes, cycle.began = sum(batch.builder.size() for batch in load.batches), time.monotonic()
            self._record_bytes = cycle.bytes / sum(batch.count for batch in load.batches)
            await reach("before-send", self.plan.name)
            life.hand_over(load.batches)

    def _cut(self, found: Read) -> None:
        """Leave out records at or above the end offsets."""
        if self.ends is None:
            return
        for number, offset in found.reached.items():
            end = self.ends.get(number, 0)
            found.reached[number] = min(offset, end)
            if number in found.records:
                found.records[number] = [record for record in found.records[number] if record.offset < end]

    async def confirm(self) -> bool:
        """Confirm acknowledged cycles. Return whether they had records for the target."""
        done = self.window.confirm()
        for cycle in done:
            if cycle.bytes:  # 0 = all its records were filtered
                self.portion.took(cycle.bytes, time.monotonic() - cycle.began)
            self._count(cycle, self._loads.pop(cycle))
        if done and (self.refused.by_target or self._until):
            self._forget_refused()
        sent = any(sum(cycle.records.values()) for cycle in done)
        if sent:
            await reach("after-send", self.plan.name)
        return sent

    def _count(self, cycle: Cycle, load: CycleBatches) -> None:
        for place, count in cycle.records.items():
            quarantined = load.quarantined.get(place.partition, 0)
            self.state.count(place.partition, "forwarded", count - quarantined)
            self.state.count(place.partition, "quarantined", quarantined)
        for number, count in load.filtered.items():
            self.state.count(number, "filtered", count)
        for number, count in load.returned.items():
            self.state.count(number, "returned", count)
        if load.returned:
            self._log_returned(sum(load.returned.values()), load.returned_from)
        for reason in load.reasons:
            log.warning("bridge %s: to %s: %s", self.plan.name, self.plan.quarantine_topic, reason)

    def _log_returned(self, count: int, passed: bytes) -> None:
        """Log returned messages at once, then at most once a minute: a loop of bridges has many."""
        self._returned += count
        now = clock.now()
        if now < self._next_log_s:
            return
        plan = self.plan
        log.warning(
            "bridge %s: %d messages of %s were already at %s or here (%s): the bridges form a cycle, and "
            "%s. Stop one of them, or set 'returns' (docs/bridges.md)",
            plan.name, self._returned, plan.source_topic, plan.target_topic, passed.decode(errors="backslashreplace"),
            "they are not forwarded" if plan.returns == "drop" else "they are forwarded again and may arrive twice",
        )  # fmt: skip
        self._returned, self._next_log_s = 0, now + TELL_S

    def _forget_refused(self) -> None:
        """Forget the refusals of confirmed records, which are not sent again.

        Refusals of other records stay. Otherwise two partitions would repeatedly discard each other's.
        """
        places = self.window.places
        for partition, ends in list(self._until.items()):
            if all(
                place.confirmed >= end or places.get(place.partition) is not place
                for place, end in ends.items()
            ):
                del self._until[partition], self.records_max[partition]
        for known in (self.refused.by_target, self.refused.by_all):
            for place, offset in list(known):
                if places.get(place.partition) is not place or offset < place.confirmed:
                    del known[place, offset]

    def update_target(self, target: Target, *, again: bool = False) -> None:
        """Record the current state of the target. Partitions that waited for a change continue.

        Refused records are tried again if the target's settings changed, or always with ``again``, because settings do not show access rights.
        """
        if again or target.settings != self._settings:
            self._settings = target.settings
            self.refused.clear()
        self.stopped.clear()

    async def drain(self, life: ProducerSession) -> None:
        """Wait for unacknowledged batches, at most :data:`DRAIN_LIMIT_S`."""
        deadline = time.monotonic() + DRAIN_LIMIT_S
        while self.window.busy and not life.ended and time.monotonic() < deadline:
            life.moved.clear()
            await self.confirm()
            if self.window.busy:
                await set_within(life.moved, POLL_S)

    def learn(self, error: SessionEndedError) -> bool:
        """Narrow down which record the target refuses, with smaller batches. Return False if the failure has another cause."""
        if error.late:
            self.portion.failed()
        batch = error.refused
        if batch is None:
            return False
        if batch.quarantine:
            self.refused.by_all[batch.first] = str(error)
        elif batch.count > 1:
            self.records_max[batch.partition] = batch.count // 2
            self._until[batch.partition] = dict(batch.cycle.ends)
        else:
            self.refused.by_target[batch.first] = str(error)
            if error.of_time:
                self.refused.learn_time(batch.timestamp, batch.made_at, time.time() * 1000)
        return True

    def start_over(self) -> Iterable[tuple[int, int]]:
        """Restart from the confirmed offsets; return them by partition."""
        self._loads.clear()
        self.stopped.clear()
        for place, count in self.window.reset().items():
            self.state.count(place.partition, "retried", count)
        return [(number, place.confirmed) for number, place in self.window.places.items()]

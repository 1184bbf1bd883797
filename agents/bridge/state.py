"""Visible state of a bridge: problems, and counts by source partition."""

import logging
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from aiokafka.errors import KafkaError

from agents.bridge.offsets import OffsetMetadata
from ringfence_kafka.concurrency.coalesce import StoppedError
from ringfence_kafka.errors import RingfenceError, said, unforeseen

log: Final = logging.getLogger("ringfence.bridge")

SOURCE: Final = "source"
TARGET: Final = "target"
COMMIT: Final = "commit"
MEMBERSHIP: Final = "membership"
"""Kinds of faults: each ends for reasons of its own."""

ASLEEP_S: Final = 5.0
"""Half of what the group waits for a member."""

LOST: Final = "lost"
REFUSED: Final = "refused"
UNREADABLE: Final = "unreadable"
"""Kinds of what stops one partition: its log has lost its end, nothing takes its next record, or that cannot be read."""


@dataclass(slots=True)
class Standing:
    """Something that stands in the way, and since when."""

    text: str
    since_ms: int = field(default_factory=lambda: round(time.time() * 1000))


@dataclass(slots=True)
class PartitionState:
    """One source partition that this process has."""

    note: OffsetMetadata
    """As it was found; what was counted since is added."""
    counts: Counter[str] = field(default_factory=Counter)
    """Since this process has it: forwarded, retried, filtered, returned, quarantined."""
    dirty: bool = True
    """Something is not committed yet."""


class BridgeState:
    """State of one bridge in this process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.partitions: dict[int, PartitionState] = {}
        self.totals: dict[int, Counter[str]] = {}
        """By partition, since the process began, also of those that were given away."""
        self.lags: dict[int, int] = {}
        self.waiting: dict[int, str] = {}
        """Partitions that are given to us and are not forwarded, and why."""
        self._stops: dict[str, dict[int, Standing]] = {kind: {} for kind in (UNREADABLE, REFUSED, LOST)}
        self.assigned: set[int] | None = None
        """None = the group has not given out partitions yet."""
        self.first_topic_id = ""
        """ID of the source topic when this process began."""
        self.reached = False
        """Whether a producer is at the target, or was when something failed."""
        self.source_faults: list[str] = []
        """Problems of the source topic and its consumer group."""
        self.seen_awake = time.monotonic()
        """When this process last ran, as is noted twice a second while it is connected."""
        self._slept = False
        self._faults: dict[str, Standing] = {}

    def count(self, partition: int, what: str, number: int) -> None:
        """Add to a count of a partition."""
        if number:
            self.totals.setdefault(partition, Counter())[what] += number
            if partition in self.partitions:
                self.partitions[partition].counts[what] += number
                self.partitions[partition].dirty = True

    @property
    def fault(self) -> Standing | None:
        """The oldest problem that keeps all partitions from being forwarded; None = none."""
        return min(self._faults.values(), key=lambda each: each.since_ms, default=None)

    def fail(self, kind: str, text: str) -> None:
        """Something stands in the way. It is logged once, and began with the first of several in a row."""
        standing = self._faults.get(kind)
        if standing is None:
            self._faults[kind] = Standing(text)
        elif standing.text != text:
            standing.text = text
        else:
            return
        log.warning("bridge %s: trying again, nothing is lost: %s", self.name, text)
        self._touch()

    def told(self, error: Exception) -> str:
        """Return the text of an error. Log the trace of an unforeseen error, once in a row."""
        if isinstance(error, RingfenceError | KafkaError | OSError | StoppedError):
            return said(error)
        text = unforeseen(error)
        if not any(text in fault.text for fault in self._faults.values()):
            log.error("bridge %s: %s", self.name, text, exc_info=error)
        return text

    def recover(self, kind: str) -> None:
        """Remove a problem that is over."""
        if self._faults.pop(kind, None) is not None:
            if not self._faults:
                log.info("bridge %s: forwards again", self.name)
            self._touch()

    def stop(self, kind: str, partition: int, text: str) -> None:
        """Note that a partition stops while others go on. A row of stops is logged once, and has the time of the first."""
        standing = self._stops[kind].get(partition)
        if standing is not None and standing.text == text:
            return
        since = Standing(text) if standing is None else replace(standing, text=text)
        self._stops[kind][partition] = since
        log.error("bridge %s: partition %d waits, others continue: %s", self.name, partition, text)
        if partition in self.partitions:
            self.partitions[partition].dirty = True

    def go_on(self, kind: str, partition: int) -> None:
        """Note that a partition continues."""
        if self._stops[kind].pop(partition, None) is not None:
            log.info("bridge %s: partition %d continues", self.name, partition)
            if partition in self.partitions:
                self.partitions[partition].dirty = True

    def close(self) -> None:
        """All partitions are given away."""
        self.assigned = None
        self.partitions.clear()
        self.waiting.clear()
        self.lags.clear()
        for stops in self._stops.values():
            stops.clear()

    @property
    def stops(self) -> dict[int, Standing]:
        """Partitions that go no further, and why."""
        return self._stops[UNREADABLE] | self._stops[REFUSED] | self._stops[LOST]

    def _touch(self) -> None:
        for partition in self.partitions.values():
            partition.dirty = True

    def looks_awake(self) -> bool:
        """Whether this process has run all the time since :meth:`joined`: one that was stopped may have been replaced."""
        now = time.monotonic()
        self._slept = self._slept or now - self.seen_awake > ASLEEP_S
        self.seen_awake = now
        return not self._slept

    def joined(self) -> None:
        """Note that the bridge has joined the group just now."""
        self._slept, self.seen_awake = False, time.monotonic()

    @property
    def ready(self) -> bool:
        """Whether all its partitions are forwarded."""
        return self.assigned is not None and not self.reasons

    @property
    def reasons(self) -> dict[str, str]:
        """Reasons why partitions are not forwarded, by partition, or for all."""
        found = {} if self.fault is None else {"all": self.fault.text}
        if self.source_faults:
            found.setdefault("all", "source: " + "; ".join(self.source_faults))
        if self.assigned is None:
            found.setdefault("all", "no partitions yet: joining the consumer group at the source")
        if not self.reached:
            found.setdefault("all", "connecting to the target")
        stops = {number: stop.text for number, stop in self.stops.items()}
        return found | {str(number): why for number, why in sorted((self.waiting | stops).items())}

"""State of a bridge for status and metrics: problems, and counts by source partition."""

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
"""Kinds of problems. Each ends independently of the others."""

ASLEEP_S: Final = 5.0
"""Half of the group's session timeout, in seconds."""

LOST: Final = "lost"
REFUSED: Final = "refused"
UNREADABLE: Final = "unreadable"
"""Reasons that stop one partition: its log lost its end, no topic takes its next record, or that record cannot be read."""


@dataclass(slots=True)
class Problem:
    """Problem, and the time it began."""

    text: str
    since_ms: int = field(default_factory=lambda: round(time.time() * 1000))


@dataclass(slots=True)
class PartitionState:
    """State of one source partition of this process."""

    note: OffsetMetadata
    """Metadata at the opening; later counts are added to it."""
    counts: Counter[str] = field(default_factory=Counter)
    """Records since the opening: forwarded, retried, filtered, returned, quarantined."""
    dirty: bool = True
    """Whether something is not committed yet."""


class BridgeState:
    """State of one bridge in this process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.partitions: dict[int, PartitionState] = {}
        self.totals: dict[int, Counter[str]] = {}
        """Counts by partition since the start of the process, including partitions that it no longer has."""
        self.lags: dict[int, int] = {}
        self.waiting: dict[int, str] = {}
        """Reasons of assigned partitions that are not forwarded."""
        self._stops: dict[str, dict[int, Problem]] = {kind: {} for kind in (UNREADABLE, REFUSED, LOST)}
        self.assigned: set[int] | None = None
        """Assigned partitions; None = the group has not assigned any yet."""
        self.first_topic_id = ""
        """Kafka ID of the source topic at the start of this process."""
        self.reached = False
        """Whether a producer is connected to the target, or was when a failure occurred."""
        self.source_faults: list[str] = []
        """Problems of the source topic and its consumer group."""
        self.seen_awake = time.monotonic()
        """Monotonic time at which this process last ran, in seconds. While connected it is updated twice a second."""
        self._slept = False
        self._faults: dict[str, Problem] = {}

    def count(self, partition: int, what: str, number: int) -> None:
        """Add to a count of a partition."""
        if number:
            self.totals.setdefault(partition, Counter())[what] += number
            if partition in self.partitions:
                self.partitions[partition].counts[what] += number
                self.partitions[partition].dirty = True

    @property
    def fault(self) -> Problem | None:
        """Oldest problem that stops all partitions; None if there is none."""
        return min(self._faults.values(), key=lambda each: each.since_ms, default=None)

    def fail(self, kind: str, text: str) -> None:
        """Record and log a problem once. It keeps the start time of the first of several in a row."""
        known = self._faults.get(kind)
        if known is None:
            self._faults[kind] = Problem(text)
        elif known.text != text:
            known.text = text
        else:
            return
        log.warning("bridge %s: trying again, nothing is lost: %s", self.name, text)
        self._touch()

    def error_text(self, error: Exception) -> str:
        """Return the text of an error. The traceback of an unexpected error is logged once."""
        if isinstance(error, RingfenceError | KafkaError | OSError | StoppedError):
            return said(error)
        text = unforeseen(error)
        if not any(text in fault.text for fault in self._faults.values()):
            log.error("bridge %s: %s", self.name, text, exc_info=error)
        return text

    def recover(self, kind: str) -> None:
        """Remove a problem that is solved."""
        if self._faults.pop(kind, None) is not None:
            if not self._faults:
                log.info("bridge %s: forwards again", self.name)
            self._touch()

    def stop(self, kind: str, partition: int, text: str) -> None:
        """Record that a partition stops while others continue. A repeated stop is logged once and keeps its start time."""
        known = self._stops[kind].get(partition)
        if known is not None and known.text == text:
            return
        since = Problem(text) if known is None else replace(known, text=text)
        self._stops[kind][partition] = since
        log.error("bridge %s: partition %d waits, others continue: %s", self.name, partition, text)
        if partition in self.partitions:
            self.partitions[partition].dirty = True

    def go_on(self, kind: str, partition: int) -> None:
        """Record that a partition continues."""
        if self._stops[kind].pop(partition, None) is not None:
            log.info("bridge %s: partition %d continues", self.name, partition)
            if partition in self.partitions:
                self.partitions[partition].dirty = True

    def close(self) -> None:
        """Remove all partitions: they were revoked."""
        self.assigned = None
        self.partitions.clear()
        self.waiting.clear()
        self.lags.clear()
        for stops in self._stops.values():
            stops.clear()

    @property
    def stops(self) -> dict[int, Problem]:
        """Stopped partitions, with the reasons."""
        return self._stops[UNREADABLE] | self._stops[REFUSED] | self._stops[LOST]

    def _touch(self) -> None:
        for partition in self.partitions.values():
            partition.dirty = True

    def was_never_suspended(self) -> bool:
        """Return whether this process was never suspended since :meth:`joined`. After a suspension another process may have its partitions."""
        now = time.monotonic()
        self._slept = self._slept or now - self.seen_awake > ASLEEP_S
        self.seen_awake = now
        return not self._slept

    def joined(self) -> None:
        """Record that the bridge joined the group."""
        self._slept, self.seen_awake = False, time.monotonic()

    @property
    def ready(self) -> bool:
        """Whether all partitions of this process are forwarded."""
        return self.assigned is not None and not self.reasons

    @property
    def reasons(self) -> dict[str, str]:
        """Reasons for which partitions are not forwarded, by partition or for "all"."""
        found = {} if self.fault is None else {"all": self.fault.text}
        if self.source_faults:
            found.setdefault("all", "source: " + "; ".join(self.source_faults))
        if self.assigned is None:
            found.setdefault("all", "no partitions yet: joining the consumer group at the source")
        if not self.reached:
            found.setdefault("all", "connecting to the target")
        stops = {number: stop.text for number, stop in self.stops.items()}
        return found | {str(number): why for number, why in sorted((self.waiting | stops).items())}

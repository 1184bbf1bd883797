"""Partitions of which a fetch was refused a moment ago."""

import logging
import time
from typing import Final

log: Final = logging.getLogger("ringfence.worker")

UNREADABLE_S: Final = 5.0
"""A partition counts as unreadable for so long after a fetch was refused; the next comes much sooner."""


class Unreadable:
    """Refused partitions: the consumer's thread notes them, others ask."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, int], tuple[float, str]] = {}
        """By topic and partition: when last, by the monotonic clock, and why."""

    def note(self, topic: str, partition: int, reason: str) -> None:
        """Note that a fetch of a partition was refused; it is tried again. From any thread."""
        if self.why(topic, partition) is None:
            log.warning("%s/%d may not be read, its lane waits: %s", topic, partition, reason)
        self._refused[topic, partition] = (time.monotonic(), reason)

    def why(self, topic: str, partition: int) -> str | None:
        """Why a partition cannot be read now; None = it can."""
        when, reason = self._refused.get((topic, partition), (0.0, ""))
        if not reason or time.monotonic() - when > UNREADABLE_S:
            return None
        return f"{topic}/{partition} may not be read: {reason}"

    def all(self) -> dict[tuple[str, int], str]:
        """Those that cannot be read now, with why."""
        told = {item: self.why(*item) for item in list(self._refused)}
        return {item: why for item, why in told.items() if why is not None}

"""Partitions whose last fetch was refused."""

import logging
import time
from typing import Final

log: Final = logging.getLogger("ringfence.worker")

UNREADABLE_S: Final = 5.0
"""Time that a partition counts as unreadable after a refused fetch, in seconds. The next fetch comes much sooner."""


class Unreadable:
    """Refused partitions. The consumer's thread records them, other threads read them."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, int], tuple[float, str]] = {}
        """Monotonic time and reason of the last refusal, by topic and partition."""

    def note(self, topic: str, partition: int, reason: str) -> None:
        """Record that a fetch of a partition was refused; it will be tried again. Thread-safe."""
        if self.why(topic, partition) is None:
            log.warning("%s/%d may not be read, its lane waits: %s", topic, partition, reason)
        self._refused[topic, partition] = (time.monotonic(), reason)

    def why(self, topic: str, partition: int) -> str | None:
        """Return why a partition cannot be read now; None if it can."""
        when, reason = self._refused.get((topic, partition), (0.0, ""))
        if not reason or time.monotonic() - when > UNREADABLE_S:
            return None
        return f"{topic}/{partition} may not be read: {reason}"

    def all(self) -> dict[tuple[str, int], str]:
        """Return the reasons of all partitions that cannot be read now."""
        told = {item: self.why(*item) for item in list(self._refused)}
        return {item: why for item, why in told.items() if why is not None}

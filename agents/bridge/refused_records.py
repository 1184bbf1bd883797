"""What is known of records that a target has refused for good. Pure."""

import math
from dataclasses import dataclass, field

from agents.bridge.window import Place
from ringfence_kafka import clock

At = tuple[Place, int]
"""A record: the opening of its source partition, and its offset. What is known of one says nothing of the next topic of that name."""


@dataclass(slots=True)
class Refused:
    """Records that the target has refused, and why.

    A topic bounds how far a timestamp may be from its broker's clock, and that moves on by itself. So of one record that was refused for
    that follows what is refused later, whatever our clocks say: what is as far ahead or farther, and what is as old or older. Else a
    producer that mistakes microseconds for milliseconds would cost a search for each of its records.
    """

    by_target: dict[At, str] = field(default_factory=dict)
    by_all: dict[At, str] = field(default_factory=dict)
    """The quarantine topic does not take these either."""
    ahead_ms: float = math.inf
    """The least by which a timestamp that is too far ahead was before :func:`ringfence_kafka.clock.now`."""
    oldest_ms: float = -math.inf
    """The latest timestamp that is too old."""

    def learn_time(self, timestamp: int, asked_at: float, wall_ms: float) -> None:
        """The target has refused a record for its timestamp, in ms, asked not before ``asked_at``; ``wall_ms``: what time it is."""
        if timestamp > wall_ms:
            self.ahead_ms = min(self.ahead_ms, timestamp - asked_at * 1000)
        else:
            self.oldest_ms = max(self.oldest_ms, timestamp)

    def times(self) -> tuple[float, float]:
        """What lies between these two may be taken now, ms."""
        return self.oldest_ms, self.ahead_ms + clock.now() * 1000

    def clear(self) -> None:
        """The target may take all of it now."""
        self.by_target.clear()
        self.by_all.clear()
        self.ahead_ms, self.oldest_ms = math.inf, -math.inf


class RefusedError(Exception):
    """Nothing takes a record, not even the quarantine."""

    def __init__(self, offset: int, text: str) -> None:
        super().__init__(text)
        self.offset = offset

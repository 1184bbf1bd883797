"""Pause of a transactional ID between two transactions. Pure.

The coordinator answers the end of a transaction before its markers are written, and refuses the next transaction until they are. The
broker of the partition then waits 20 ms before it retries (``add.partitions.to.txn.retry.backoff.ms``), although markers take one or two
milliseconds, or ten with replicas. A producer that starts a little later therefore finishes sooner.
"""

import math
from typing import Final

REFUSED_S: Final = 0.018
"""Minimum time of a write whose transaction is refused at first, in seconds."""
REFUSED_MORE_S: Final = 0.015
"""Minimum extra time of such a write over a quick one, in seconds."""
FIRST_S: Final = 0.002
LEAST_S: Final = 0.0005
MOST_S: Final = 0.015
"""A longer pause would cost nearly as much as the refusal."""
TIMER_S: Final = 0.001
"""Largest delay of a timer, in seconds."""
LONGER: Final = 1.3
SHORTER: Final = 0.985
"""Factor of the pause after each refused first write, and after each other one: about one in twenty is refused."""
SLOWER: Final = 1.02
"""Factor of the quick time after each slower write, because brokers may have become slower."""


class MarkerDelay:
    """Pause between two transactions of one producer, in which the markers of the first are written."""

    def __init__(self) -> None:
        self.seconds = FIRST_S
        """Minimum time from the end of a transaction to the first write of the next one."""
        self._quick_s = math.inf

    def wrote(self, seconds: float, since_s: float) -> None:
        """Record the duration of a transaction's first write, and its distance from the end of the transaction before, in seconds."""
        self._quick_s = min(seconds, self._quick_s * SLOWER)
        if seconds >= max(REFUSED_S, self._quick_s + REFUSED_MORE_S):
            # Not up to ``since_s``: a single write may be slow for many reasons.
            self.seconds = min(MOST_S, self.seconds * LONGER)
        elif since_s < self.seconds * LONGER + TIMER_S:
            # A longer distance says nothing about a shorter pause.
            self.seconds = max(LEAST_S, self.seconds * SHORTER)

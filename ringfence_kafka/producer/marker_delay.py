"""Pause of a transactional ID between two transactions. Pure.

The coordinator answers the end of a transaction before its markers are written, and refuses the next one until they are. The broker of the
partition then waits 20 ms before it asks again (``add.partitions.to.txn.retry.backoff.ms``), although markers take a millisecond or two, or
ten with replicas. A producer that begins a little later is therefore done sooner.
"""

import math
from typing import Final

REFUSED_S: Final = 0.018
"""No write whose transaction is refused at first takes less, ..."""
REFUSED_MORE_S: Final = 0.015
"""... and none less than so much more than a quick one."""
FIRST_S: Final = 0.002
LEAST_S: Final = 0.0005
MOST_S: Final = 0.015
"""A longer gap would cost nearly as much as the refusal."""
TIMER_S: Final = 0.001
"""Largest delay of a timer, in seconds."""
LONGER: Final = 1.3
SHORTER: Final = 0.985
"""With each first write that was refused, and with each that was not: so one in some twenty is."""
SLOWER: Final = 1.02
"""By so much what counts as quick grows with each write that is not: brokers may have become slower."""


class MarkerDelay:
    """Pause between two transactions of one producer, for the markers of the first."""

    def __init__(self) -> None:
        self._gap_s = FIRST_S
        self._quick_s = math.inf

    @property
    def seconds(self) -> float:
        """Least time from the end of a transaction to the first write of the next one."""
        return self._gap_s

    def wrote(self, seconds: float, since_s: float) -> None:
        """Note the seconds of a transaction's first write, and since the end of the one before."""
        self._quick_s = min(seconds, self._quick_s * SLOWER)
        if seconds >= max(REFUSED_S, self._quick_s + REFUSED_MORE_S):
            # Not to ``since_s``, whatever that is: one write may be slow for many reasons.
            self._gap_s = min(MOST_S, self._gap_s * LONGER)
        elif since_s < self._gap_s * LONGER + TIMER_S:  # else it says nothing of a shorter gap
            self._gap_s = max(LEAST_S, self._gap_s * SHORTER)

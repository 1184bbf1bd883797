"""Dead-lettered messages of one partition that are processed again. Pure."""

from collections.abc import Container
from typing import Final

from ringfence_client.progress.progress_record import Progress

AGAIN_MAX: Final = 10_000
"""Limit of redriven messages that wait. Later redrives are refused until some are finished."""
REDRIVEN_MAX: Final = 1_000
"""Redrive counts that are kept for finished messages. Every progress record contains them.

A redrive command records its settled dead letters before it requests more redrives than this.
"""


class RedriveQueue:
    """Finished messages that are processed again, and messages that block their groups until they are redriven."""

    def __init__(self, progress: Progress) -> None:
        self.counts: dict[int, int] = dict(progress.redriven)
        self.blocked: set[int] = set(progress.blocked)
        """Unfinished messages whose dead letters are written. They are not tried, and their groups wait."""
        self.owed: dict[int, bool] = dict.fromkeys(progress.again, False)
        """Messages that count as finished and are processed again; the value is whether the record is fetched."""

    def redrive(self, offset: int, number: int, *, finished: bool, unfinished: Container[int]) -> bool:
        """Schedule a finished or blocked message to be processed again. ``number``: number of this redrive of the message, from 1.

        ``finished``: whether the watermark counts it as finished. The counts of ``unfinished`` messages are kept. Returns False if this redrive
        was requested before, or if the message is unfinished in any case. Raises OverflowError if too many redriven messages wait.
        """
        if self.counts.get(offset, 0) >= number:
            return False
        if offset in self.blocked:
            self.blocked.discard(offset)
        elif not finished or offset in self.owed:
            return False
        elif len(self.owed) >= AGAIN_MAX:
            raise OverflowError(f"{AGAIN_MAX} redriven messages wait already")
        else:
            self.owed[offset] = False
        self.counts.pop(offset, None)
        self.counts[offset] = number
        for item in list(self.counts)[: max(0, len(self.counts) - REDRIVEN_MAX)]:
            if item not in self.owed and item not in unfinished:
                del self.counts[item]
        return True

    def missing(self) -> list[int]:
        """Return the offsets of redriven messages whose records are not fetched, in order."""
        return sorted(offset for offset, is_here in self.owed.items() if not is_here)

    def arrive(self, offset: int) -> bool:
        """Record that a redriven record is fetched; return whether it was missing."""
        if self.owed.get(offset, True):
            return False
        self.owed[offset] = True
        return True

    def forget(self, offset: int) -> None:
        """Delete the entries of a finished message, except its redrive count."""
        self.owed.pop(offset, None)
        self.blocked.discard(offset)

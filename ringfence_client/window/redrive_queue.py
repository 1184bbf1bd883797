"""Messages of one partition that are done again after their dead letters. Pure."""

from collections.abc import Container
from typing import Final

from ringfence_client.progress.progress_record import Progress

AGAIN_MAX: Final = 10_000
"""Redriven messages that wait; more have to come later."""
REDRIVEN_MAX: Final = 1_000
"""Redriven messages whose count is remembered, beside those that wait. They stand in every progress record.

A redrive notes what is settled before it asks for more than these."""


class RedriveQueue:
    """Finished messages that are done once more, and messages that block their groups until they are redriven."""

    def __init__(self, progress: Progress) -> None:
        self.counts: dict[int, int] = dict(progress.redriven)
        """How often an offset was redriven."""
        self.blocked: set[int] = set(progress.blocked)
        """Unfinished messages whose dead letters are written. They are not tried, and their groups wait."""
        self.owed: dict[int, bool] = dict.fromkeys(progress.again, False)
        """Messages that count as finished and are done once more, and whether their records are here."""

    def redrive(self, offset: int, number: int, *, finished: bool, undone: Container[int]) -> bool:
        """Have a finished or blocked message done once more, for the ``number``-th time.

        Args:
            offset: Its.
            number: Which time this is.
            finished: Whether the watermark calls it finished.
            undone: Messages whose counts are kept.

        Returns:
            False: this was asked for before, or it is done in any case.

        Raises:
            OverflowError: too many wait.
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
            if item not in self.owed and item not in undone:
                del self.counts[item]
        return True

    def missing(self) -> list[int]:
        """Return the offsets of redriven messages whose records are not here, in order."""
        return sorted(offset for offset, is_here in self.owed.items() if not is_here)

    def arrive(self, offset: int) -> bool:
        """Note that a record is here; whether it was missing."""
        if self.owed.get(offset, True):
            return False
        self.owed[offset] = True
        return True

    def forget(self, offset: int) -> None:
        """Forget a message that is finished; how often it was redriven is kept."""
        self.owed.pop(offset, None)
        self.blocked.discard(offset)

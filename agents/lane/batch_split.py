"""How many records of a batch go into one transaction: fewer and fewer while it fails. Pure.

What fails for its own sake fails each time, with all that came with it. Divided, what stands before the record that it is about goes through,
and what is too much for the time that a transaction has becomes less.
"""

from typing import Final

from agents.batch.batch import BATCH_RECORDS_MAX

WHOLE_TRIES: Final = 2
"""Nearly always something else has failed, and is well again soon."""


class BatchSplit:
    """Of one lane."""

    def __init__(self) -> None:
        """Batches are whole."""
        self.records_max = BATCH_RECORDS_MAX
        self._failures = 0

    def failed(self, count: int) -> bool:
        """A transaction of so many records did, for whatever reason. Returns whether the next one will have fewer."""
        self._failures += 1
        if self._failures < WHOLE_TRIES or count <= 1:
            return False
        self.records_max = count // 2
        return True

    def succeeded(self) -> None:
        """One was committed."""
        self._failures = 0
        self.records_max = min(BATCH_RECORDS_MAX, 2 * self.records_max)

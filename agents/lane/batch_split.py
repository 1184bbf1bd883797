"""Halves the batches of a lane while its transactions fail. Pure.

A poison record fails its whole transaction every time. Halving the batch lets the records before it through.
"""

from typing import Final

from agents.batch.batch import TRANSACTION_RECORDS_MAX

WHOLE_TRIES: Final = 2
"""Nearly always something else has failed, and is well again soon."""


class BatchSplit:
    """Limit for the batches of one lane after a refused commit."""

    def __init__(self) -> None:
        self.records_max = TRANSACTION_RECORDS_MAX
        self._failures = 0

    def failed(self, count: int) -> bool:
        """Note a failed transaction of so many records. Return whether the next one will have fewer."""
        self._failures += 1
        if self._failures < WHOLE_TRIES or count <= 1:
            return False
        self.records_max = count // 2
        return True

    def succeeded(self) -> None:
        """Note that a batch was committed."""
        self._failures = 0
        self.records_max = min(TRANSACTION_RECORDS_MAX, 2 * self.records_max)

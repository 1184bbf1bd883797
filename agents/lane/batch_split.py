"""Halves the batches of a lane while its transactions fail. Pure.

A poison record fails its whole transaction every time. Halving the batch lets the records before it through.
"""

from typing import Final

from agents.batch.batch import TRANSACTION_RECORDS_MAX

WHOLE_TRIES: Final = 2
"""Failures in a row before a batch is halved. Most failures have another cause than a record, and pass soon."""


class BatchSplit:
    """Limit of records in each transaction of one lane, lowered after failed commits."""

    def __init__(self) -> None:
        self.records_max = TRANSACTION_RECORDS_MAX
        self._failures = 0

    def failed(self, count: int) -> bool:
        """Record a failed transaction of ``count`` records. Return whether the next transaction will be smaller."""
        self._failures += 1
        if self._failures < WHOLE_TRIES or count <= 1:
            return False
        self.records_max = count // 2
        return True

    def succeeded(self) -> None:
        """Record a committed transaction: the limit doubles, up to its maximum."""
        self._failures = 0
        self.records_max = min(TRANSACTION_RECORDS_MAX, 2 * self.records_max)

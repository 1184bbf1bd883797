"""Batches that wait for a lane, in order for each input. Pure."""

from collections import deque
from typing import Final

from agents.batch.batch import JOINED_BYTES_MAX, TRANSACTION_RECORDS_MAX, FetchedBatch

MAIL_MAX: Final = 2
"""Maximum number of batches, besides the first batch of each partition. Further batches wait in Faust's buffer, then in the broker."""


class Inbox:
    """Waiting batches of one lane. A batch that continues the last one of its partition is joined to it.

    A transaction costs the same for one record as for a hundred. A lane with a lag therefore catches up with larger transactions. A lane
    with several partitions takes batches of all of them into one.
    """

    def __init__(self) -> None:
        self._batches: deque[FetchedBatch] = deque()

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, batch: FetchedBatch) -> bool:
        """Add a batch. Return whether there was room."""
        for number in reversed(range(len(self._batches))):
            if _place(self._batches[number]) == _place(batch):
                joined = self._batches[number].joined(batch)
                if joined is not None:
                    self._batches[number] = joined
                    return True
                if len(self._batches) >= MAIL_MAX:
                    return False
                break  # batches of one partition stay in order
        self._batches.append(batch)
        return True

    def pop_batches(self) -> list[FetchedBatch]:
        """Remove and return the first batch, and the first batch of each other partition that fits into the same transaction."""
        if not self._batches:
            return []
        taken = [self._batches.popleft()]
        seen = {_place(taken[0])}
        count, size = len(taken[0].records), taken[0].bytes
        left: deque[FetchedBatch] = deque()
        for batch in self._batches:
            place = _place(batch)
            fits = (
                count + len(batch.records) <= TRANSACTION_RECORDS_MAX
                and size + batch.bytes <= JOINED_BYTES_MAX
            )
            if place in seen or batch.topic != taken[0].topic or not fits:
                left.append(batch)
            else:
                taken.append(batch)
                count, size = count + len(batch.records), size + batch.bytes
            seen.add(place)
        self._batches = left
        return taken

    def clear(self) -> None:
        """Discard all batches."""
        self._batches.clear()


def _place(batch: FetchedBatch) -> tuple[str, int]:
    return batch.topic, batch.partition

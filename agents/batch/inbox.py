"""What waits for a lane: batches of both its inputs, in the order of each. Pure."""

from collections import deque
from typing import Final

from agents.batch.batch import FetchedBatch

MAIL_MAX: Final = 2
"""Batches; more wait in Faust's buffer and then in the broker."""


class Inbox:
    """Of one lane. A batch that goes on where one of its topic ends becomes one with it.

    So a lane that is behind catches up by larger transactions, and not by more of them: one costs the same for a record
    as for a hundred.
    """

    def __init__(self) -> None:
        self._batches: deque[FetchedBatch] = deque()

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, batch: FetchedBatch) -> bool:
        """Whether there was room."""
        for number in reversed(range(len(self._batches))):
            if self._batches[number].topic == batch.topic:
                joined = self._batches[number].joined(batch)
                if joined is not None:
                    self._batches[number] = joined
                    return True
                break  # nothing of a topic overtakes what came before it
        if len(self._batches) == MAIL_MAX:
            return False
        self._batches.append(batch)
        return True

    def take(self) -> FetchedBatch | None:
        """The one that came first; None = there is none."""
        return self._batches.popleft() if self._batches else None

    def clear(self) -> None:
        """Drop all."""
        self._batches.clear()

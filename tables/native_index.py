"""The index in memory, with the core doing what is done to it for each ID."""

from collections.abc import Sequence

import native
from tables.ring import ResidentIndex


class NativeIndex(ResidentIndex):
    """The same dict and the same order: only who goes over them is another."""

    def add(self, first_sequence: int, ids: Sequence[bytes], times: Sequence[int], low: int) -> None:
        """Note new IDs and forget what lies below ``low``."""
        if native.core is None or self._times:
            super().add(first_sequence, ids, times, low)
            return
        native.core.note(self._sequences, self._order, first_sequence, list(ids), self._low, low)
        self._low = max(self._low, low)

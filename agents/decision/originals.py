"""Looks up the accepted messages that the duplicates of one batch repeat."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ringfence_kafka.protocol import wire_names
from tables.codec import Slot

Find = Callable[[Sequence[int]], Sequence[Slot | None]]
"""Returns the committed slots of some sequence numbers."""


class Originals:
    """Originals of one batch; each slot is looked up once."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._slots: dict[int, Slot | None] = {}

    def digests(self, sequences: Iterable[int]) -> dict[int, int]:
        """Return the digests of the originals' values by sequence number; 0 = unknown."""
        return {sequence: slot.digest if slot else 0 for sequence, slot in self._looked_up(sequences).items()}

    def sources(self, sequences: Iterable[int], topic: str) -> dict[int, bytes]:
        """Return the sources of the originals whose slots exist. ``topic``: input topic of the lane."""
        return {
            sequence: wire_names.source(topic, slot.origin.partition) + b"%d" % slot.origin.offset
            for sequence, slot in self._looked_up(sequences).items()
            if slot is not None
        }

    def _looked_up(self, sequences: Iterable[int]) -> Mapping[int, Slot | None]:
        if wanted := sorted(set(sequences) - self._slots.keys()):
            self._slots.update(zip(wanted, self._find(wanted), strict=True))
        return self._slots

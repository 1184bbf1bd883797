"""The partitions of an input that each lane of an address owns. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


def lane_of(partition: int, lanes: int) -> int:
    """Return the lane of an input partition for the key ``lanes`` of an address; 0 = each partition is a lane."""
    return partition % lanes if lanes else partition


@dataclass(frozen=True, slots=True)
class LaneLayout:
    """Partition p of the input belongs to lane p modulo the number of lanes."""

    partitions: int
    """Partitions of the input topic."""
    lanes: int
    """Lanes of the address."""

    @classmethod
    def of(cls, lanes: int, partitions: int) -> Self:
        """Return the layout for the key ``lanes`` of an address; 0 = each partition is a lane."""
        return cls(partitions, lanes or partitions)

    def lane_of(self, partition: int) -> int:
        """Return the lane of an input partition."""
        return lane_of(partition, self.lanes)

    def partitions_of(self, lane: int) -> range:
        """Return the input partitions of a lane, in rising order."""
        return range(lane, self.partitions, self.lanes)

    def lanes_of(self, partitions: Iterable[int]) -> list[int]:
        """Return the lanes of input partitions, in rising order."""
        return sorted({self.lane_of(partition) for partition in partitions})

    def keeps_homes(self, former: "LaneLayout") -> bool:
        """Return whether each group and each ID has the same home as in a former layout.

        The home is a hash modulo the partitions, modulo the lanes. Only multiples of the lanes give the same remainder.
        """
        if former.lanes != self.lanes:
            return False
        return former.partitions == self.partitions or (
            former.partitions % self.lanes == 0 and self.partitions % self.lanes == 0
        )

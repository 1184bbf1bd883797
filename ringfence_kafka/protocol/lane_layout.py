"""Partitions of an input that each lane of an address owns. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


def lane_of(partition: int, lanes: int) -> int:
    """Return the lane of an input partition. ``lanes``: setting of the address, 0 = each partition is a lane."""
    return partition % lanes if lanes else partition


@dataclass(frozen=True, slots=True)
class LaneLayout:
    """Layout in which partition p of the input belongs to lane p modulo the number of lanes."""

    partitions: int
    """Partition count of the input topic."""
    lanes: int
    """Number of lanes of the address."""

    @classmethod
    def from_setting(cls, lanes: int, partitions: int) -> Self:
        """Return the layout for the setting ``lanes`` of an address; 0 = each partition is a lane."""
        return cls(partitions, lanes or partitions)

    def lane_of(self, partition: int) -> int:
        """Return the lane of an input partition."""
        return lane_of(partition, self.lanes)

    def partitions_of(self, lane: int) -> range:
        """Return the input partitions of a lane, in ascending order."""
        return range(lane, self.partitions, self.lanes)

    def lanes_of(self, partitions: Iterable[int]) -> list[int]:
        """Return the lanes of input partitions, in ascending order."""
        return sorted({self.lane_of(partition) for partition in partitions})

    def keeps_homes(self, former: "LaneLayout") -> bool:
        """Return whether each group and each ID has the same home as in a former layout.

        The home is a hash modulo the partition count, modulo the number of lanes. Only multiples of the number of lanes keep the remainder.
        """
        if former.lanes != self.lanes:
            return False
        return former.partitions == self.partitions or (
            former.partitions % self.lanes == 0 and self.partitions % self.lanes == 0
        )

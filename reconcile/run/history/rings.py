"""Numbers of an address's rings, including rings from before its lanes were regrouped. Pure.

A lane has a ring. `rings regroup` starts new rings. A run numbers them after the old ones, so that each
number means one ring. Without a regrouping, a ring has the number of its lane.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from operator import attrgetter
from typing import NamedTuple

from ringfence_kafka.protocol.lane_layout import LaneLayout


class Regrouped(NamedTuple):
    """Journal record that a new lane writes at a regrouping."""

    number: int  # offset in the journal
    lane: int
    before: int  # number of lanes before; ``after``: number of lanes now
    after: int
    nexts: Sequence[int]
    """First offset of each input partition that its new lane judged. Only the lane's own partitions count."""
    forward_next: int
    lanes: int  # configuration key of the address; 0 = one lane for each partition


@dataclass(frozen=True)
class Regroup:
    """Change of the number of lanes."""

    number: int  # journal offset of its first record
    before: int  # number of lanes before; ``after``: number of lanes now
    after: int
    nexts: Mapping[int, int]  # input partition → first offset that its new lane judged
    forward_nexts: Mapping[int, int]  # forward partition → first offset that its new lane judged
    lanes: int  # configuration key of the address

    @classmethod
    def from_records(cls, records: Sequence[Regrouped]) -> "Regroup":
        """Return the change that these records describe, one record for each new lane."""
        first = records[0]
        nexts = {
            partition: item.nexts[partition]
            for item in records
            for partition in range(item.lane, len(item.nexts), item.after)
        }
        forward = {item.lane: item.forward_next for item in records}
        return cls(first.number, first.before, first.after, nexts, forward, first.lanes)


def regroups(records: Iterable[Regrouped]) -> list[Regroup]:
    """Group records into changes, in order. Two in a row have different numbers of lanes."""
    alike = groupby(sorted(records), key=attrgetter("before", "after", "lanes"))
    return [Regroup.from_records([*several]) for _, several in alike]


@dataclass(frozen=True)
class Rings:
    """All rings of an address."""

    layout: LaneLayout  # layout of the present lanes
    regroups: tuple[Regroup, ...] = ()
    fixed: bool = False  # whether the address sets `lanes`: accepted records then have sequence numbers

    @classmethod
    def from_settings(cls, lanes: int, partitions: int, changes: Sequence[Regroup] = ()) -> "Rings":
        """Return the rings of an address with these settings and changes.

        The last change in the journal decides about the number of lanes, because the file may be newer than
        the workers.
        """
        now = changes[-1].lanes if changes else lanes
        return cls(LaneLayout.from_setting(now, partitions), tuple(changes), fixed=lanes > 0)

    @cached_property
    def starts(self) -> list[int]:
        """First ring of each layout, the present layout last."""
        return [0, *accumulate(change.before for change in self.regroups)]

    @property
    def start(self) -> int:
        """First present ring."""
        return self.starts[-1]

    @property
    def now(self) -> range:
        """Present rings."""
        return range(self.start, self.start + self.layout.lanes)

    @property
    def all(self) -> range:
        """All rings, including former ones."""
        return range(self.now.stop)

    @property
    def lanes(self) -> list[int]:
        """Number of lanes in each layout, the present layout last."""
        return [*(change.before for change in self.regroups), self.layout.lanes]

    def of_partition(self, partition: int) -> int:
        """Return the present ring of an input partition."""
        return self.start + self.layout.lane_of(partition)

    def partitions_of(self, ring: int) -> range:
        """Return the input partitions of a present ring."""
        return self.layout.partitions_of(ring - self.start)

    @cached_property
    def ancestors(self) -> dict[int, frozenset[int]]:
        """Ring → former rings whose newest IDs it holds, also through other rings."""
        found: dict[int, frozenset[int]] = {ring: frozenset() for ring in range(self.lanes[0])}
        for epoch, (former, later) in enumerate(zip(self.lanes, self.lanes[1:], strict=False)):
            here, there = self.starts[epoch], self.starts[epoch + 1]
            for lane in range(later):
                parents = {here + p % former for p in range(self.layout.partitions) if p % later == lane}
                found[there + lane] = frozenset(parents).union(*(found[parent] for parent in parents))
        return found

    def heirs(self, ring: int) -> list[int]:
        """Return the present rings that may know the IDs of a ring, itself included."""
        return [now for now in self.now if ring == now or ring in self.ancestors[now]]

    def knowing(self, ring: int) -> list[int]:
        """Return all rings, past and present, that may know the IDs of a ring, itself included."""
        return [other for other in self.all if ring == other or ring in self.ancestors.get(other, ())]

    def settled(self, ring: int) -> int:
        """Return the only present ring that may know the IDs of a ring; the ring itself if several may."""
        heirs = self.heirs(ring)
        return heirs[0] if len(heirs) == 1 else ring

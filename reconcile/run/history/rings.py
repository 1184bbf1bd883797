"""Numbers of an address's rings, also of those that it had before its lanes were regrouped. Pure.

A lane has a ring. `rings regroup` begins new rings: in a run they have numbers behind the old ones, so that no number stands for two
rings. Without a regroup the number of a ring is that of its lane.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from ringfence_kafka.protocol.lane_layout import LaneLayout


class Regrouped(NamedTuple):
    """A journal record of a new lane."""

    number: int  # offset in the journal
    lane: int
    before: int  # lanes
    after: int
    nexts: Sequence[int]
    """By input partition: the first offset that its new lane judged. Only partitions of the lane count."""
    forward_next: int
    lanes: int  # the key of the address; 0 = a lane for each partition


@dataclass(frozen=True)
class Regroup:
    """A change of the number of lanes."""

    number: int  # offset of its first record in the journal
    before: int  # lanes
    after: int
    nexts: Mapping[int, int]  # input partition → first offset that new lanes judged
    forward_nexts: Mapping[int, int]  # the same, of the forward topic
    lanes: int  # the key of the address

    @classmethod
    def of(cls, records: Sequence[Regrouped]) -> "Regroup":
        """Return the change that these records are of: one for each new lane."""
        first = records[0]
        nexts = {
            partition: item.nexts[partition]
            for item in records
            for partition in range(item.lane, len(item.nexts), item.after)
        }
        forward = {item.lane: item.forward_next for item in records}
        return cls(first.number, first.before, first.after, nexts, forward, first.lanes)


def regroups(records: Iterable[Regrouped]) -> list[Regroup]:
    """Return the changes in order. One change follows another only to other lanes, so equal records are of one change."""
    found: list[list[Regrouped]] = []
    for record in sorted(records):
        last = found[-1][-1] if found else None
        if last is None or (last.before, last.after, last.lanes) != (
            record.before,
            record.after,
            record.lanes,
        ):
            found.append([])
        found[-1].append(record)
    return [Regroup.of(several) for several in found]


@dataclass(frozen=True)
class Rings:
    """The rings of an address."""

    layout: LaneLayout  # of its lanes now
    regroups: tuple[Regroup, ...] = ()
    fixed: bool = False  # the address sets `lanes`: accepted records have the sequence numbers of their IDs

    @classmethod
    def of(cls, lanes: int, partitions: int, changes: Sequence[Regroup] = ()) -> "Rings":
        """Return the rings of an address with this key ``lanes``, this many partitions, and these changes.

        The journal says how many lanes there are since the last change. The file may say something else before workers do.
        """
        now = changes[-1].lanes if changes else lanes
        return cls(LaneLayout.of(now, partitions), tuple(changes), fixed=lanes > 0)

    @cached_property
    def starts(self) -> list[int]:
        """The first ring of each layout, the present one last."""
        return [0, *accumulate(change.before for change in self.regroups)]

    @property
    def start(self) -> int:
        """The first present ring."""
        return self.starts[-1]

    @property
    def now(self) -> range:
        """The present rings."""
        return range(self.start, self.start + self.layout.lanes)

    @property
    def all(self) -> range:
        """All rings, also former ones."""
        return range(self.now.stop)

    @property
    def lanes(self) -> list[int]:
        """Lanes of each layout, the present one last."""
        return [*(change.before for change in self.regroups), self.layout.lanes]

    def of_partition(self, partition: int) -> int:
        """Return the present ring of an input partition."""
        return self.start + self.layout.lane_of(partition)

    def partitions_of(self, ring: int) -> range:
        """Return the input partitions of a present ring."""
        return self.layout.partitions_of(ring - self.start)

    def at(self, number: int) -> int:
        """Return the first ring of the layout that was in force at an offset of the journal."""
        return self.starts[sum(change.number <= number for change in self.regroups)]

    @cached_property
    def ancestors(self) -> dict[int, frozenset[int]]:
        """Ring → former rings of which it holds the newest IDs, also by way of others."""
        found: dict[int, frozenset[int]] = {ring: frozenset() for ring in range(self.lanes[0])}
        for epoch, (former, later) in enumerate(zip(self.lanes, self.lanes[1:], strict=False)):
            here, there = self.starts[epoch], self.starts[epoch + 1]
            for lane in range(later):
                parents = {here + p % former for p in range(self.layout.partitions) if p % later == lane}
                found[there + lane] = frozenset(parents).union(*(found[parent] for parent in parents))
        return found

    def heirs(self, ring: int) -> list[int]:
        """Present rings that may know the IDs of a ring, itself included."""
        return [now for now in self.now if ring == now or ring in self.ancestors[now]]

    def knowing(self, ring: int) -> list[int]:
        """All rings that may know the IDs of a ring, or did, itself included."""
        return [other for other in self.all if ring == other or ring in self.ancestors.get(other, ())]

    def settled(self, ring: int) -> int:
        """Return the present ring that took over all IDs of a ring; if there are several, the ring itself."""
        heirs = self.heirs(ring)
        return heirs[0] if len(heirs) == 1 else ring

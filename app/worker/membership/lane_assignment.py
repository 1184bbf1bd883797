"""Balanced, sticky assignment of lanes to workers.

A lane is a partition of all topics of an address. Faust's own assignor goes by topics of one partition count: it gives partition 0
of all of them to one worker, so that of ten addresses with four partitions each a fifth worker gets nothing. It also depends on
the order in which members are named, so nobody can predict it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class AssignedLane(NamedTuple):
    """A partition of topics that go together."""

    unit: str
    """Name of the topics that go together."""
    partition: int


@dataclass(frozen=True, slots=True)
class Unit:
    """Topics whose partitions of one number go to one member."""

    partitions: int
    members: Sequence[str]
    """Who may have some of it; at least one."""


def assign_lanes(
    units: Mapping[str, Unit], held: Mapping[str, Collection[AssignedLane]]
) -> dict[str, list[AssignedLane]]:
    """Assign all lanes; pure. The order of ``held`` breaks ties.

    Args:
        units: All units.
        held: What each member reports to have. Where two report the same lane, the first keeps it.

    Returns:
        The lanes of each member. Of a unit the members who may have it get equal numbers, or one more or less. Where all may have
        all, that holds of all units together too. No other lane moves.
    """
    balancer = _Balancer(units, list(held))
    for member, lanes in held.items():
        for lane in sorted(lanes):
            if balancer.is_free(lane) and member in units[lane.unit].members:
                balancer.assign(lane, member)
    for name, unit in sorted(units.items()):
        for number in range(unit.partitions):
            if balancer.is_free(lane := AssignedLane(name, number)):
                balancer.assign(lane, balancer.emptiest(name))
    for name in sorted(units):
        balancer.even_out(name)
    balancer.even_out_all()
    return balancer.assignment()


class _Balancer:
    """The lanes of each member, and how many they are."""

    def __init__(self, units: Mapping[str, Unit], members: Sequence[str]) -> None:
        self._units = units
        self._places = {member: place for place, member in enumerate(members)}
        self._owned: dict[str, dict[str, set[int]]] = {
            name: {member: set() for member in unit.members} for name, unit in units.items()
        }
        self._assigned: set[AssignedLane] = set()
        self._totals: Counter[str] = Counter()

    def is_free(self, lane: AssignedLane) -> bool:
        """Whether it exists and has no owner."""
        unit = self._units.get(lane.unit)
        return unit is not None and 0 <= lane.partition < unit.partitions and lane not in self._assigned

    def assign(self, lane: AssignedLane, member: str) -> None:
        """Assign a free lane."""
        self._owned[lane.unit][member].add(lane.partition)
        self._assigned.add(lane)
        self._totals[member] += 1

    def emptiest(self, unit: str) -> str:
        """The member with the fewest lanes of a unit, and of all."""
        return min(self._owned[unit], key=lambda member: self._load(unit, member))

    def even_out(self, unit: str) -> None:
        """Move lanes until no member has two more of a unit than another."""
        owned = self._owned[unit]
        while True:
            fullest = max(owned, key=lambda member: self._load(unit, member))
            emptiest = self.emptiest(unit)
            if len(owned[fullest]) - len(owned[emptiest]) <= 1:
                return
            self._move(unit, fullest, emptiest)

    def even_out_all(self) -> None:
        """Move lanes until no member has two more than another, as far as units stay even."""
        while move := self._uneven():
            self._move(*move)

    def assignment(self) -> dict[str, list[AssignedLane]]:
        """The lanes of each member."""
        return {
            member: sorted(
                AssignedLane(name, number)
                for name, owned in self._owned.items()
                for number in owned.get(member, ())
            )
            for member in self._places
        }

    def _load(self, unit: str, member: str) -> tuple[int, int, int]:
        return len(self._owned[unit][member]), self._totals[member], self._places[member]

    def _uneven(self) -> tuple[str, str, str] | None:
        by_total = sorted(self._places, key=lambda member: (self._totals[member], self._places[member]))
        for full in reversed(by_total):
            for empty in by_total:
                if self._totals[full] - self._totals[empty] <= 1:
                    break
                for name, owned in sorted(self._owned.items()):
                    if full in owned and empty in owned and len(owned[full]) > len(owned[empty]):
                        return name, full, empty
        return None

    def _move(self, unit: str, giver: str, taker: str) -> None:
        owned = self._owned[unit]
        last = max(owned[giver])
        owned[giver].remove(last)
        owned[taker].add(last)
        self._totals[giver] -= 1
        self._totals[taker] += 1


def units_of(
    subscribed: Mapping[str, Collection[str]], pairs: Iterable[Collection[str]], counts: Mapping[str, int]
) -> tuple[dict[str, Unit], dict[str, list[str]]]:
    """Units, and the topics of each.

    Other topics go together if the same members subscribe to them and they have as many partitions: they may be an address of
    a member with more addresses than this worker. So do those of a pair that nobody subscribes to as a whole.

    Args:
        subscribed: Topics of each member.
        pairs: Topics that are known to go together.
        counts: Partitions of each topic. A topic without partitions is left out.
    """
    takers: dict[str, tuple[str, ...]] = {
        topic: tuple(member for member in subscribed if topic in subscribed[member])
        for topic in sorted({name for names in subscribed.values() for name in names})
        if counts.get(topic)
    }
    units: dict[str, Unit] = {}
    topics: dict[str, list[str]] = {}
    for pair in pairs:
        there = sorted(topic for topic in pair if topic in takers)
        whole = [member for member in subscribed if all(member in takers[topic] for topic in there)]
        if there and whole:
            units[there[0]] = Unit(max(counts[topic] for topic in there), whole)
            topics[there[0]] = there
    known = {topic for names in topics.values() for topic in names}
    others: dict[tuple[tuple[str, ...], int], list[str]] = {}
    for topic, members in takers.items():
        if topic not in known:
            others.setdefault((members, counts[topic]), []).append(topic)
    for (members, partitions), names in others.items():
        units[names[0]] = Unit(partitions, members)
        topics[names[0]] = names
    return units, topics

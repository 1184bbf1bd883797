"""Which worker gets which lanes: of each address about as many, of all addresses about as many, and each keeps what it has as far as that goes.

A lane is a partition of all topics of an address. Faust's own assignor goes by topics of one partition count: it gives partition 0 of all of
them to one worker, so that of ten addresses with four partitions each a fifth worker gets nothing; and it goes by the order in which members
are named, so that nobody can say beforehand what it will decide.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class AssignedLane(NamedTuple):
    """A partition of topics that go together."""

    unit: str
    """Name of what they make up."""
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
    """Share out; pure. The order of ``held`` decides where nothing else does.

    Args:
        units: What there is.
        held: What each member says it has. Where two say so of one, the first keeps it.

    Returns:
        What each member gets: of a unit as many as any other who may have some of it, or one more or less. Where all may have all,
        that holds of all units together too. Nothing moves that need not for that.
    """
    sharing = _Balancer(units, list(held))
    for member, items in held.items():
        for item in sorted(items):
            if sharing.is_free(item) and member in units[item.unit].members:
                sharing.give(item, member)
    for name, unit in sorted(units.items()):
        for number in range(unit.partitions):
            if sharing.is_free(AssignedLane(name, number)):
                sharing.give(AssignedLane(name, number), sharing.emptiest(name))
    for name in sorted(units):
        sharing.even_out(name)
    sharing.even_out_all()
    return sharing.shares()


class _Balancer:
    """Who has what, and how much."""

    def __init__(self, units: Mapping[str, Unit], members: Sequence[str]) -> None:
        self._units = units
        self._places = {member: place for place, member in enumerate(members)}
        self._owned: dict[str, dict[str, set[int]]] = {
            name: {member: set() for member in unit.members} for name, unit in units.items()
        }
        self._given: set[AssignedLane] = set()
        self._totals: Counter[str] = Counter()

    def is_free(self, each: AssignedLane) -> bool:
        """Whether it exists, and nobody has it."""
        unit = self._units.get(each.unit)
        return unit is not None and 0 <= each.partition < unit.partitions and each not in self._given

    def give(self, each: AssignedLane, member: str) -> None:
        """Hand over what is free."""
        self._owned[each.unit][member].add(each.partition)
        self._given.add(each)
        self._totals[member] += 1

    def emptiest(self, unit: str) -> str:
        """Who has least of it, and of all."""
        owned = self._owned[unit]
        return min(owned, key=lambda each: (len(owned[each]), self._totals[each], self._places[each]))

    def even_out(self, unit: str) -> None:
        """Until nobody has two more of it than somebody else."""
        owned = self._owned[unit]
        while True:
            fullest = max(owned, key=lambda each: (len(owned[each]), self._totals[each], self._places[each]))
            emptiest = self.emptiest(unit)
            if len(owned[fullest]) - len(owned[emptiest]) <= 1:
                return
            self._move(unit, fullest, emptiest)

    def even_out_all(self) -> None:
        """Until nobody has two more than somebody else, as far as that is to be had with units as even as they are."""
        while found := self._uneven():
            self._move(*found)

    def _uneven(self) -> tuple[str, str, str] | None:
        by_total = sorted(self._places, key=lambda each: (self._totals[each], self._places[each]))
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

    def shares(self) -> dict[str, list[AssignedLane]]:
        """What it came to, by member."""
        return {
            member: sorted(
                AssignedLane(name, number)
                for name, owned in self._owned.items()
                for number in owned.get(member, ())
            )
            for member in self._places
        }


def units_of(
    subscribed: Mapping[str, Collection[str]], pairs: Iterable[Collection[str]], counts: Mapping[str, int]
) -> tuple[dict[str, Unit], dict[str, list[str]]]:
    """Units, and the topics of each.

    Args:
        subscribed: Topics of each member.
        pairs: Topics that are known to go together.
        counts: Partitions of each topic. What has none is left out.

    Those that are not known to go together do if the same members subscribe to them and they have as many partitions: then they may be
    an address of somebody's who has more addresses than we. So do those of a pair that nobody subscribes to as a whole.
    """
    takers: dict[str, tuple[str, ...]] = {
        topic: tuple(member for member in subscribed if topic in subscribed[member])
        for topic in sorted({name for value in subscribed.values() for name in value})
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
    known = {topic for value in topics.values() for topic in value}
    others: dict[tuple[tuple[str, ...], int], list[str]] = {}
    for topic, members in takers.items():
        if topic not in known:
            others.setdefault((members, counts[topic]), []).append(topic)
    for (members, partitions), other in others.items():
        units[other[0]] = Unit(partitions, members)
        topics[other[0]] = other
    return units, topics

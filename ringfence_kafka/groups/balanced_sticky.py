"""Balanced, sticky assignment of partitions to the members of a group. Pure.

The assignors of workers and consumers use it. Members may run other versions: the group's leader decides for all, so versions must agree
on the messages of their assignors, but not on the result.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class UnitPartition(NamedTuple):
    """Partition of topics that belong together."""

    unit: str
    """Name of the unit."""
    partition: int


@dataclass(frozen=True, slots=True)
class Unit:
    """Topics whose partitions with the same number go to the same member."""

    partitions: Sequence[int]
    members: Sequence[str]
    """Members that may have partitions of the unit; at least one."""
    weight: int = 1
    """Load of one partition, for the balance over all units."""


def balanced_sticky(
    units: Mapping[str, Unit],
    held: Mapping[str, Iterable[UnitPartition]],
    rank: Callable[[str, UnitPartition], Any] = lambda _, item: item.partition,
) -> dict[str, list[UnitPartition]]:
    """Assign all partitions. The order of ``held`` decides between equal choices.

    Args:
        units: All partitions, and the members that may have them.
        held: Partitions that each member states to have. If two state the same one, the first keeps it.
        rank: A member gives up its partition with the highest rank first.

    Returns:
        Partitions of each member. Within a unit the numbers of eligible members differ by at most one. If all members may have all units
            and all weights are equal, this also holds over all units together. No partition moves without need.
    """
    balance = _Balance(units, list(held), rank)
    for member, items in held.items():
        for item in sorted(items):
            if balance.is_free(item) and member in units[item.unit].members:
                balance.give(item, member)
    for name, unit in sorted(units.items(), key=lambda item: (-item[1].weight, item[0])):
        for number in unit.partitions:
            if balance.is_free(UnitPartition(name, number)):
                balance.give(UnitPartition(name, number), balance.emptiest(name))
    for name in sorted(units):
        balance.even_out(name)
    balance.even_out_all()
    return balance.assigned()


class _Balance:
    def __init__(
        self, units: Mapping[str, Unit], members: Sequence[str], rank: Callable[[str, UnitPartition], Any]
    ) -> None:
        self._places = {member: place for place, member in enumerate(members)}
        self._rank = rank
        self._weights = {name: unit.weight for name, unit in units.items()}
        self._owned: dict[str, dict[str, set[int]]] = {
            name: {member: set() for member in unit.members} for name, unit in units.items()
        }
        self._free = {
            UnitPartition(name, number) for name, unit in units.items() for number in unit.partitions
        }
        self._totals: Counter[str] = Counter()

    def is_free(self, item: UnitPartition) -> bool:
        """Return whether the partition exists and no member has it."""
        return item in self._free

    def give(self, item: UnitPartition, member: str) -> None:
        """Assign a free partition."""
        self._free.remove(item)
        self._owned[item.unit][member].add(item.partition)
        self._totals[member] += self._weights[item.unit]

    def _load(self, unit: str, member: str) -> tuple[int, int, int]:
        return len(self._owned[unit][member]), self._totals[member], self._places[member]

    def emptiest(self, unit: str) -> str:
        """Return the member with the fewest partitions of a unit, and then the smallest load."""
        return min(self._owned[unit], key=lambda member: self._load(unit, member))

    def even_out(self, unit: str) -> None:
        """Move partitions until the members' numbers within a unit differ by at most one."""
        owned = self._owned[unit]
        while True:
            fullest = max(owned, key=lambda member: self._load(unit, member))
            emptiest = self.emptiest(unit)
            if len(owned[fullest]) - len(owned[emptiest]) <= 1:
                return
            self._move(unit, fullest, emptiest)

    def even_out_all(self) -> None:
        """Move units until the loads of members are as even as the balance within units allows."""
        while move := self._next_move():
            self._move(*move)

    def _next_move(self) -> tuple[str, str, str] | None:
        by_total = sorted(self._places, key=lambda member: (self._totals[member], self._places[member]))
        for full in reversed(by_total):
            for empty in by_total:
                more = self._totals[full] - self._totals[empty]
                if more <= 1:
                    break
                for name, owned in sorted(self._owned.items()):
                    both = full in owned and empty in owned and len(owned[full]) > len(owned[empty])
                    if both and more > self._weights[name]:
                        return name, full, empty
        return None

    def _move(self, unit: str, giver: str, taker: str) -> None:
        owned = self._owned[unit]
        number = max(owned[giver], key=lambda number: self._rank(giver, UnitPartition(unit, number)))
        owned[giver].remove(number)
        owned[taker].add(number)
        self._totals[giver] -= self._weights[unit]
        self._totals[taker] += self._weights[unit]

    def assigned(self) -> dict[str, list[UnitPartition]]:
        """Return the partitions of each member, sorted."""
        return {
            member: sorted(
                UnitPartition(name, number)
                for name, owned in self._owned.items()
                for number in owned.get(member, ())
            )
            for member in self._places
        }

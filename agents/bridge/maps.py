"""When a strict connection may share groups out among other members. Pure.

A message goes to the member that its group belongs to. Each member's bridge stands at an offset of its own; were the members changed while
these differ, messages between them would go to nobody, or to two. So a change waits until all stand at one offset a partition.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from agents.bridge.note import Map

Standing = Mapping[int, tuple[int, Map | None]]
"""What the group of one member's bridge has committed: by source partition, the offset, and the members that it was forwarded by."""


@dataclass(frozen=True, slots=True)
class Run:
    """All is as it was: go on."""

    map: Map


@dataclass(frozen=True, slots=True)
class Adopt:
    """Commit these offsets for all members' groups, and then go on."""

    map: Map
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Refuse:
    """They stand apart."""

    former: tuple[str, ...]
    """Those whose bridges must be brought together; empty = not known."""
    partition: int
    offsets: Mapping[str, int | None]
    """Of that partition, by member."""


def former(members: Collection[str], found: Mapping[str, Standing]) -> Map | None:
    """The latest members that these bridges were run with; None = it is not known."""
    maps = [each for member in members for _, each in found.get(member, {}).values() if each is not None]
    return max(maps, key=lambda each: each.number, default=None)


def decide(
    members: tuple[str, ...], found: Mapping[str, Standing], starts: Mapping[int, int]
) -> Run | Adopt | Refuse:
    """Whether it may go on with these members.

    Args:
        members: As configured, sorted.
        found: Of each of them, and of each former one.
        starts: Where each source partition begins.
    """
    top = former(members, found)
    if not any(found.get(each) for each in members):
        return Adopt(Map(1, members), starts)
    if top is None:
        agreed = _agreed(members, found)
        return agreed if isinstance(agreed, Refuse) else Adopt(Map(1, members), agreed)
    if top.members == members:
        began = [each for each in members if _runs_by(top, found.get(each, {}))]
        if len(began) == len(members):
            return Run(top)
        agreed = _agreed(tuple(began), found)  # a change that was cut short: nobody has forwarded by it yet
        return agreed if isinstance(agreed, Refuse) else Adopt(top, agreed)
    agreed = _agreed(top.members, found)
    return agreed if isinstance(agreed, Refuse) else Adopt(Map(top.number + 1, members), agreed)


def _runs_by(top: Map, standing: Standing) -> bool:
    """An operator's own commit says nothing of members, and changes none."""
    maps = [each for _, each in standing.values() if each is not None]
    return bool(standing) and (not maps or max(each.number for each in maps) == top.number)


def _agreed(members: tuple[str, ...], found: Mapping[str, Standing]) -> dict[int, int] | Refuse:
    partitions = sorted({number for each in members for number in found.get(each, {})})
    agreed = {}
    for number in partitions:
        offsets = {
            each: None if (at := found.get(each, {}).get(number)) is None else at[0] for each in members
        }
        (first, *others) = set(offsets.values())
        if others or first is None:
            return Refuse(members, number, offsets)
        agreed[number] = first
    return agreed

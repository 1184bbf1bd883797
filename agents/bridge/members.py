"""Members of a strict cluster connection: the owner of each group, and the conditions for a change of members. Pure.

Rendezvous hashing finds the owner. Members change only while all bridges have the same offset: otherwise messages would reach no member,
or two.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from agents.bridge.offsets import NOT_BEGUN, Map
from agents.decision.partitioner import GroupCache


def owner(members: Iterable[str], group: bytes) -> str:
    """Return the member that owns a group. Among equal hashes the last name wins."""
    return max(members, key=lambda member: (_weight(member.encode(), group), member))


def _weight(member: bytes, group: bytes) -> bytes:
    return blake2b(b"%d/%b/%b" % (len(member), member, group), digest_size=8).digest()


class Owner(GroupCache[str]):
    """Cache of :func:`owner`: ``owner[group]``."""

    def __init__(self, members: Iterable[str]) -> None:
        super().__init__()
        self._members = tuple(members)

    def find(self, key: bytes) -> str:
        """Return the owner of a group."""
        return owner(self._members, key)


class MemberPosition(NamedTuple):
    """Committed position of one member's bridge in a source partition."""

    offset: int
    map: Map | None
    """Members at the time of the commit; None = a person set the offset, which is trusted."""
    still: str
    """Value of :attr:`agents.bridge.offsets.OffsetMetadata.still`."""


MemberPositions = Mapping[int, MemberPosition]


@dataclass(frozen=True, slots=True)
class Run:
    """Decision: the members did not change, and the bridges continue."""

    map: Map


@dataclass(frozen=True, slots=True)
class Adopt:
    """Decision: commit these offsets for the groups of all members, then run."""

    map: Map
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Refuse:
    """Decision: do not run, because bridges have different offsets or may have sent more than they committed."""

    partition: int
    offsets: Mapping[str, int | None]


def former(members: Collection[str], found: Mapping[str, MemberPositions]) -> Map | None:
    """Return the latest members that these bridges ran with; None = not known."""
    maps = [item for member in members for _, item, _ in found.get(member, {}).values() if item is not None]
    return max(maps, key=lambda each: each.number, default=None)


def decide(
    members: tuple[str, ...], found: Mapping[str, MemberPositions], starts: Mapping[int, int]
) -> Run | Adopt | Refuse:
    """Decide whether bridges may run with these sorted members. ``found``: positions of present and former members; ``starts``: log starts."""
    top = former(members, found)
    if not any(found.get(member) for member in members):
        return Adopt(Map(1, members), starts)
    if top is None:
        return _adopted(Map(1, members), members, found)
    if top.members == members:
        began = [member for member in members if _runs_by(top, found.get(member, {}))]
        if len(began) == len(members):
            return Run(top)
        if not all(value.still == NOT_BEGUN for member in began for value in found[member].values()):
            number = min(number for member in began for number in found[member])
            # Another member's offset would skip messages.
            return Refuse(number, _offsets(members, found, number))
        return _adopted(top, began, found)  # an interrupted change: nothing is forwarded yet
    return _adopted(Map(top.number + 1, members), top.members, found)


def _runs_by(top: Map, positions: MemberPositions) -> bool:
    """Return whether the commits name this map. A commit of an operator names no members and changes none."""
    maps = [value.map for value in positions.values() if value.map is not None]
    return bool(positions) and (not maps or max(map_.number for map_ in maps) == top.number)


def _adopted(map_: Map, members: Collection[str], found: Mapping[str, MemberPositions]) -> Adopt | Refuse:
    """Adopt a map at the offsets on which these members agree."""
    partitions = sorted({number for member in members for number in found.get(member, {})})
    agreed = {}
    for number in partitions:
        offsets = _offsets(members, found, number)
        (first, *others) = set(offsets.values())
        positions = [found[member][number] for member in members if number in found.get(member, {})]
        if (
            others
            or first is None
            or not all(position.still or position.map is None for position in positions)
        ):
            return Refuse(number, offsets)
        agreed[number] = first
    return Adopt(map_, agreed)


def _offsets(
    members: Collection[str], found: Mapping[str, MemberPositions], number: int
) -> dict[str, int | None]:
    return {
        member: None if (at := found.get(member, {}).get(number)) is None else at.offset for member in members
    }

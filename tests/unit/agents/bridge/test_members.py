"""When the members of a strict connection may change, and who owns a group."""

from collections import Counter

import pytest

from agents.bridge.member_admission import member_position
from agents.bridge.members import Adopt, MemberPosition, MemberPositions, Owner, Refuse, Run, decide, owner
from agents.bridge.offsets import AT_REST, NOT_BEGUN, Map, OffsetMetadata, encode
from ringfence_kafka.groups.committed_offsets import Committed

TWO = ("berlin", "paris")
THREE = ("berlin", "paris", "rome")
ONE = Map(1, TWO)


def _at(offset: int, shared: Map | None = ONE, still: str = AT_REST) -> MemberPositions:
    return {0: MemberPosition(offset, shared, still)}


FORMER = Map(2, THREE)
OF_THREE = {"berlin": _at(9, FORMER), "paris": _at(9, FORMER), "rome": _at(5, FORMER)}


@pytest.mark.parametrize(
    ("members", "found", "decision"),
    [
        pytest.param(TWO, {}, Adopt(ONE, {0: 3, 1: 3}), id="first start: at the begin of the log"),
        pytest.param(
            THREE, {"berlin": {}, "paris": {}}, Adopt(Map(1, THREE), {0: 3, 1: 3}), id="all have lost their offsets"
        ),
        pytest.param(TWO, {"berlin": _at(5), "paris": _at(9)}, Run(ONE), id="same members, wherever they are"),
        pytest.param(TWO, {"berlin": _at(5, None), "paris": _at(9)}, Run(ONE), id="an operator has set an offset"),
        pytest.param(
            ("berlin",), {name: _at(40, None, "") for name in TWO}, Adopt(Map(1, ("berlin",)), {0: 40}),
            id="an operator has set the offsets of all, and a member leaves",
        ),
        pytest.param(
            THREE, {"berlin": _at(5), "paris": _at(9)}, Refuse(0, {"berlin": 5, "paris": 9}),
            id="changed at different offsets: the records between would go to nobody or to two",
        ),
        pytest.param(
            TWO, OF_THREE, Refuse(0, {"berlin": 9, "paris": 9, "rome": 5}), id="a member that leaves lacks its share"
        ),
        pytest.param(TWO, OF_THREE | {"rome": _at(9, FORMER)}, Adopt(Map(3, TWO), {0: 9}), id="a member leaves"),
        pytest.param(
            THREE, OF_THREE | {name: _at(20, Map(3, TWO)) for name in TWO}, Adopt(Map(4, THREE), {0: 20}),
            id="the offset of a returned member, of former members, is ignored",
        ),
        pytest.param(
            THREE, {"berlin": _at(9, FORMER, NOT_BEGUN), "paris": _at(9), "rome": {}}, Adopt(FORMER, {0: 9}),
            id="a change cut short is completed: nobody has forwarded under it",
        ),
        pytest.param(
            TWO, {"berlin": _at(1_000), "paris": {}}, Refuse(0, {"berlin": 1_000, "paris": None}),
            id="a lost offset is no change cut short: another one would skip messages",
        ),
        pytest.param(
            TWO, {"berlin": _at(1_000, still=""), "paris": {}}, Refuse(0, {"berlin": 1_000, "paris": None}),
            id="a lost offset while the other member runs",
        ),
        pytest.param(
            THREE, {"berlin": _at(9), "paris": _at(9, still="")}, Refuse(0, {"berlin": 9, "paris": 9}),
            id="a member died: what it sent beyond its offset would be sent again, to another member",
        ),
        pytest.param(
            THREE, {"berlin": {**_at(9), 1: MemberPosition(2, ONE, AT_REST)}, "paris": _at(9)},
            Refuse(1, {"berlin": 2, "paris": None}), id="only one has begun a new partition",
        ),
    ],
)  # fmt: skip
def test_members(members: tuple[str, ...], found: dict[str, MemberPositions], decision: object) -> None:
    """Members change only if each message goes to exactly one of them; with the same members a bridge runs as before."""
    assert decide(members, found, {0: 3, 1: 3}) == decision


def test_source_recreated_and_members_changed() -> None:
    """Offsets of a deleted topic do not count for the new one, which all members begin at its start."""
    old = Committed(1_000, encode(OffsetMetadata("T" * 22, 1, map=ONE, still=AT_REST)))
    found = {name: {0: member_position(old, "U" * 22, 3)} for name in TWO}

    assert decide(THREE, found, {0: 3}) == Adopt(Map(2, THREE), {0: 3})
    assert member_position(old, "T" * 22, 3) == MemberPosition(1_000, ONE, AT_REST)
    assert member_position(Committed(7, ""), "T" * 22, 3) == MemberPosition(7, None, "")


def test_each_group_has_one_owner() -> None:
    """Each group has the same owner for every bridge, and groups are spread evenly. A new member takes over some of them, no more."""
    groups = [b"g%d" % index for index in range(3_000)]
    found = Owner(THREE)
    counts = Counter(found[group] for group in groups)

    assert all(found[group] == owner(reversed(THREE), group) for group in groups)
    assert all(900 < counts[name] < 1_100 for name in THREE)
    assert all(found[group] in {owner(TWO, group), "rome"} for group in groups)

"""When the members of a strict connection may change, and who owns a group."""

import weakref
from collections import Counter
from pathlib import Path

import pytest

from agents.bridge.member_admission import member_position
from agents.bridge.members import Adopt, MemberPosition, MemberPositions, Owner, Refuse, Run, decide, owner
from agents.bridge.offsets import AT_REST, NOT_BEGUN, Map, OffsetMetadata, encode
from agents.decision import partitioner
from agents.decision.partitioner import GroupCache, Partitioner
from ringfence_kafka.groups.committed_offsets import Committed
from ringfence_kafka.protocol.hop import Source
from tables.codec import Route
from tables.hops import Arrival, HopMemory

TWO = ("berlin", "paris")
THREE = ("berlin", "paris", "rome")
ONE = Map(1, TWO)


def _at(offset: int, shared: Map | None = ONE, still: str = AT_REST) -> MemberPositions:
    return {0: MemberPosition(offset, shared, still)}


def test_first_start() -> None:
    """A first start begins at the begin of the log in every member, and records that before any member begins."""
    assert decide(TWO, {}, {0: 3, 1: 0}) == Adopt(ONE, {0: 3, 1: 0})


def test_all_have_lost_their_offsets() -> None:
    """Members that have all lost their offsets start at the begin of the log, even under other names.

    The page docs/bridges.md warns of it.
    """
    assert decide(THREE, {"berlin": {}, "paris": {}}, {0: 3}) == Adopt(Map(1, THREE), {0: 3})
    assert decide(("oslo", "rome"), {}, {0: 3}) == Adopt(Map(1, ("oslo", "rome")), {0: 3})
    document = (Path(__file__).parents[4] / "docs" / "bridges.md").read_text("utf-8")
    assert "**If the groups of all members have lost their offsets" in document


def test_same_members() -> None:
    """A bridge with the same members runs as before, wherever each of them is."""
    assert decide(TWO, {"berlin": _at(5), "paris": _at(9)}, {0: 0}) == Run(ONE)


def test_operator_commit() -> None:
    """An offset that somebody set has no metadata, and changes no members."""
    assert decide(TWO, {"berlin": _at(5, None), "paris": _at(9)}, {0: 0}) == Run(ONE)


def test_changed_apart() -> None:
    """A change of members at different offsets is refused, because the records between would go to nobody or to two."""
    found = {"berlin": _at(5), "paris": _at(9)}

    assert decide(THREE, found, {0: 0}) == Refuse(0, {"berlin": 5, "paris": 9})


def test_removed_member_counts() -> None:
    """A member that leaves must have received its share first."""
    found = {"berlin": _at(9, Map(2, THREE)), "paris": _at(9, Map(2, THREE)), "rome": _at(5, Map(2, THREE))}

    assert decide(TWO, found, {0: 0}) == Refuse(0, {"berlin": 9, "paris": 9, "rome": 5})
    assert decide(TWO, found | {"rome": _at(9, Map(2, THREE))}, {0: 0}) == Adopt(Map(3, TWO), {0: 9})


def test_returned_member_is_not_asked() -> None:
    """The offset of a returned member, committed long ago under other members, is ignored."""
    now = Map(3, TWO)
    found = {"berlin": _at(20, now), "paris": _at(20, now), "rome": _at(9, Map(2, THREE))}

    assert decide(THREE, found, {0: 0}) == Adopt(Map(4, THREE), {0: 20})


def test_cut_short() -> None:
    """A change that was recorded by some members only is completed, because nobody has forwarded under it."""
    now = Map(2, THREE)
    found = {"berlin": _at(9, now, NOT_BEGUN), "paris": _at(9), "rome": {}}

    assert decide(THREE, found, {0: 0}) == Adopt(now, {0: 9})


def test_lost_offset_is_no_change_cut_short() -> None:
    """A member that has begun proves that the change was complete.

    Adopting its offset would skip the earlier messages of the other member.
    """
    for still in ("", AT_REST):
        found = {"berlin": _at(1_000, ONE, still), "paris": {}}

        assert decide(TWO, found, {0: 0}) == Refuse(0, {"berlin": 1_000, "paris": None})


def test_stand_in_for_a_lost_member() -> None:
    """A member_position-in for a lost member takes its share under a separate name, whose messages are not known yet.

    Offsets that are set back lose that share.
    """
    source, topic = "eu.berlin.%s.orders", "A" * 22
    stands = {"berlin": _at(100), "paris": _at(40, still="")}
    memory = HopMemory(20_000)
    own, lost = (Route(Source(source % name, topic, 0), 0) for name in TWO)
    memory.apply(memory.check([Arrival(own, 101, 100)]))
    waiting = range(40, 100)

    assert decide(TWO, stands, {0: 0}) == Run(ONE)
    assert not any(memory.check([Arrival(lost, number, 40) for number in waiting]).known)
    back = {name: _at(40, None, "") for name in TWO}
    assert decide(("berlin",), back, {0: 0}) == Adopt(Map(1, ("berlin",)), {0: 40})
    assert all(memory.check([Arrival(own, number, 40) for number in waiting]).known)


def test_died_at_one_offset() -> None:
    """A drain has to precede a change of members after a crash.

    Messages sent beyond the common offset would be sent again, to other members.
    """
    found = {"berlin": _at(9), "paris": _at(9, still="")}

    assert decide(THREE, found, {0: 0}) == Refuse(0, {"berlin": 9, "paris": 9})
    assert decide(TWO, found, {0: 0}) == Run(ONE)


def test_source_recreated_and_members_changed() -> None:
    """Offsets of a deleted topic do not count for the new one, which all members begin at its start."""
    old = Committed(1_000, encode(OffsetMetadata("T" * 22, 1, map=ONE, still=AT_REST)))
    found = {name: {0: member_position(old, "U" * 22, 3)} for name in TWO}

    assert decide(THREE, found, {0: 3}) == Adopt(Map(2, THREE), {0: 3})
    assert member_position(old, "T" * 22, 3) == MemberPosition(1_000, ONE, AT_REST)
    assert member_position(Committed(7, ""), "T" * 22, 3) == MemberPosition(7, None, "")


def test_partition_that_one_has_not_begun() -> None:
    """A new partition that only one member has begun counts as different offsets."""
    found: dict[str, MemberPositions] = {
        "berlin": {0: MemberPosition(9, ONE, AT_REST), 1: MemberPosition(2, ONE, AT_REST)},
        "paris": _at(9),
    }

    assert decide(THREE, found, {0: 0, 1: 0}) == Refuse(1, {"berlin": 2, "paris": None})


def test_each_group_has_one_owner() -> None:
    """Each group has the same owner for every bridge, and groups are spread evenly."""
    groups = [b"g%d" % index for index in range(3_000)]
    found = Owner(THREE)
    counts = Counter(found[group] for group in groups)

    assert all(found[group] == owner(reversed(THREE), group) for group in groups)
    assert all(900 < counts[name] < 1_100 for name in THREE)


def test_owners_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory for owners and homes stays within one limit, however long group names are, and every owner is right."""
    monkeypatch.setattr(partitioner, "MEMO_BYTES_MIN", 0)
    monkeypatch.setattr(partitioner, "MEMO_BYTES_MAX", 2 * 10 * (partitioner.KEY_BYTES + 1_000))
    monkeypatch.setattr(GroupCache, "_living", weakref.WeakValueDictionary())
    homes, found = Partitioner(4), Owner(THREE)
    groups = [b"%1000d" % index for index in range(45)]
    sizes = []
    for group in groups:
        assert found[group] == owner(THREE, group)
        homes[group]
        sizes.append((len(found), len(homes)))

    assert max(sizes) == (10, 10)


def test_a_member_moves_its_share_alone() -> None:
    """A third member takes over some groups; all others stay with their former owner."""
    groups = [b"g%d" % index for index in range(3_000)]

    assert all(owner(THREE, group) in {owner(TWO, group), "rome"} for group in groups)

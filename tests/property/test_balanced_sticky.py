"""Which member gets which partitions."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_client.consumer.assignor import _said, share
from ringfence_kafka.groups.balanced_sticky import Unit, UnitPartition, balanced_sticky

NAMES = ["a", "b", "c", "d", "e", "f"]


def _spread(values: Mapping[str, int]) -> int:
    return max(values.values()) - min(values.values())


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, Unit], dict[str, set[UnitPartition]]]:
    """Addresses and workers, each of which may have all; what they say they have may be of no unit, or another's too."""
    members = NAMES[: draw(st.integers(1, 6))]
    units = {
        f"u{number}": Unit(range(draw(st.integers(1, 7))), members)
        for number in range(draw(st.integers(1, 6)))
    }
    lanes = st.builds(UnitPartition, st.sampled_from([*units, "gone"]), st.integers(0, 8))
    return units, {member: draw(st.sets(lanes, max_size=20)) for member in members}


@given(worlds())
def test_all_is_given_once_and_evenly(world: tuple[dict[str, Unit], dict[str, set[UnitPartition]]]) -> None:
    """Each lane has one worker, and the numbers of lanes differ by at most one, for each address and in total."""
    units, held = world
    shares = balanced_sticky(units, held)

    given_ = sorted(item for share in shares.values() for item in share)
    assert given_ == sorted(
        UnitPartition(name, number) for name, unit in units.items() for number in unit.partitions
    )
    assert _spread({member: len(share) for member, share in shares.items()}) <= 1
    for name in units:
        assert _spread({m: sum(item.unit == name for item in share) for m, share in shares.items()}) <= 1


@given(worlds())
def test_what_is_even_stays(world: tuple[dict[str, Unit], dict[str, set[UnitPartition]]]) -> None:
    """A balanced assignment stays as it is when assigned again, in any order of the members' lanes."""
    units, held = world
    shares = balanced_sticky(units, held)
    assert balanced_sticky(units, {member: set(share) for member, share in shares.items()}) == shares


def test_a_newcomer_takes_its_part_of_many_addresses() -> None:
    units = {f"u{number:02}": Unit(range(1), ["a", "b"]) for number in range(12)}
    before = balanced_sticky(units, {"a": [], "b": []})
    after = balanced_sticky({name: Unit(range(1), ["a", "b", "c"]) for name in units}, before | {"c": []})
    assert Counter(len(value) for value in after.values()) == {4: 3}
    assert set(after["a"]) < set(before["a"])
    assert set(after["b"]) < set(before["b"])


# -- of one topic, by what members hold ------------------------------------------------------------------------------


@st.composite
def groups(draw: st.DrawFn) -> tuple[int, dict[str, dict[int, int]]]:
    """Draw a number of partitions, and the ownership that each member claims, which may be contested or of missing partitions."""
    partitions = draw(st.integers(0, 30))
    members = draw(st.lists(st.sampled_from("abcdefghijkl"), min_size=1, unique=True))
    had = st.dictionaries(st.integers(0, partitions + 3), st.integers(0, 3))
    return partitions, {member: draw(had) for member in members}


def _owners(owned: dict[str, dict[int, int]]) -> dict[int, str]:
    everyone = [(number, token, member) for member, had in owned.items() for number, token in had.items()]
    return {number: member for number, _, member in sorted(everyone)}


@given(groups())
def test_even_and_as_few_moves_as_can_be(group: tuple[int, dict[str, dict[int, int]]]) -> None:
    """Each partition has one member, no member has two more than another, and no even assignment moves fewer."""
    partitions, owned = group
    found = share(range(partitions), owned)
    sizes = [len(value) for value in found.values()]
    owners = {number: member for number, member in _owners(owned).items() if number < partitions}
    kept = sum(member == owners.get(number) for member, items in found.items() for number in items)
    least, more = divmod(partitions, len(owned))
    had = sorted(Counter(owners.values()).values(), reverse=True)
    most = sum(min(item, least + (number < more)) for number, item in enumerate(had))

    assert sorted(number for value in found.values() for number in value) == list(range(partitions))
    assert found.keys() == owned.keys()
    assert max(sizes) - min(sizes) <= 1
    assert kept == most


def test_who_had_it_last() -> None:
    """The newer token counts when two members claim a partition, and a member first gives away partitions that it does not hold yet."""
    woken = {"a": {0: 1, 1: 1}, "b": {0: 2, 1: 2, 2: 1, 3: 1}}

    assert share(range(4), woken) == {"a": [2, 3], "b": [0, 1]}
    assert share(range(4), {"a": {0: 0, 1: 3, 2: 0, 3: 3}, "b": {}}) == {"a": [1, 3], "b": [0, 2]}


@pytest.mark.parametrize("said", [b"", b"\xff", b"[]", b'{"T": 7}', b'{"T": {"x": 1}}'], ids=repr)
def test_what_a_member_says_cannot_be_read(said: bytes) -> None:
    """A member whose claim cannot be read gets partitions as if it had nothing."""
    assert _said(said.replace(b"T", b"topic"), "topic") == {}

"""Which member gets which partitions."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

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
    """A newcomer takes its part of many addresses, and no other lane moves."""
    units = {f"u{number:02}": Unit(range(1), ["a", "b"]) for number in range(12)}
    before = balanced_sticky(units, {"a": [], "b": []})
    after = balanced_sticky({name: Unit(range(1), ["a", "b", "c"]) for name in units}, before | {"c": []})
    assert Counter(len(value) for value in after.values()) == {4: 3}
    assert set(after["a"]) < set(before["a"])
    assert set(after["b"]) < set(before["b"])

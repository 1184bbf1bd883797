"""Which worker gets which lanes."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from app.worker.membership.assignor import Joined, deal
from app.worker.membership.lane_assignment import AssignedLane, Unit, assign_lanes, units_of

NAMES = ["a", "b", "c", "d", "e", "f"]


def _spread(values: Mapping[str, int]) -> int:
    return max(values.values()) - min(values.values())


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, Unit], dict[str, set[AssignedLane]]]:
    """Addresses and workers, each of which may have all; what they say they have may be of no unit, or another's too."""
    members = NAMES[: draw(st.integers(1, 6))]
    units = {
        f"u{number}": Unit(draw(st.integers(1, 7)), members) for number in range(draw(st.integers(1, 6)))
    }
    lanes = st.builds(AssignedLane, st.sampled_from([*units, "gone"]), st.integers(0, 8))
    return units, {member: draw(st.sets(lanes, max_size=20)) for member in members}


@given(worlds())
def test_all_is_given_once_and_evenly(world: tuple[dict[str, Unit], dict[str, set[AssignedLane]]]) -> None:
    """Each lane has one worker; nobody has two more than somebody else, of one address and of all."""
    units, held = world
    shares = assign_lanes(units, held)

    given_ = sorted(item for share in shares.values() for item in share)
    assert given_ == sorted(
        AssignedLane(name, number) for name, unit in units.items() for number in range(unit.partitions)
    )
    assert _spread({member: len(share) for member, share in shares.items()}) <= 1
    for name in units:
        assert _spread({m: sum(item.unit == name for item in share) for m, share in shares.items()}) <= 1


@given(worlds())
def test_what_is_even_stays(world: tuple[dict[str, Unit], dict[str, set[AssignedLane]]]) -> None:
    """Shared out again, nothing moves, in whatever order the group names its members' lanes."""
    units, held = world
    shares = assign_lanes(units, held)
    assert assign_lanes(units, {member: set(share) for member, share in shares.items()}) == shares


@given(worlds())
def test_who_leaves_moves_only_what_it_had_and_what_evens_out(
    world: tuple[dict[str, Unit], dict[str, set[AssignedLane]]],
) -> None:
    """Of one address, a worker that goes moves its own lanes alone."""
    units, held = world
    if len(held) == 1:
        return
    only = dict([next(iter(units.items()))])
    shares = assign_lanes(only, held)
    (gone, _), *left = shares.items()
    after = assign_lanes(
        {name: Unit(unit.partitions, [member for member, _ in left]) for name, unit in only.items()},
        dict(left),
    )
    for member, item in left:
        assert set(item) <= set(after[member]), gone


@given(worlds())
def test_who_joins_takes_no_more_than_its_share(
    world: tuple[dict[str, Unit], dict[str, set[AssignedLane]]],
) -> None:
    """Of one address, lanes move to the newcomer and to nobody else."""
    units, held = world
    only = dict([next(iter(units.items()))])
    shares = assign_lanes(only, held)
    grown = {name: Unit(unit.partitions, [*held, "new"]) for name, unit in only.items()}
    after = assign_lanes(grown, shares | {"new": []})
    for member in held:
        assert set(after[member]) <= set(shares[member])


def test_addresses_of_few_partitions_are_spread() -> None:
    """Of twelve addresses with one partition each, each of three workers has four."""
    units = {f"u{number:02}": Unit(1, ["a", "b", "c"]) for number in range(12)}
    shares = assign_lanes(units, {"a": [], "b": [], "c": []})
    assert [len(share) for share in shares.values()] == [4, 4, 4]


def test_a_newcomer_takes_its_part_of_many_addresses() -> None:
    """And nothing else moves."""
    units = {f"u{number:02}": Unit(1, ["a", "b"]) for number in range(12)}
    before = assign_lanes(units, {"a": [], "b": []})
    after = assign_lanes({name: Unit(1, ["a", "b", "c"]) for name in units}, before | {"c": []})
    assert Counter(len(value) for value in after.values()) == {4: 3}
    assert set(after["a"]) < set(before["a"])
    assert set(after["b"]) < set(before["b"])


def test_topics_that_go_together() -> None:
    """Those of an address. What only others know goes by its subscribers and its count, and what is missing is left out."""
    subscribed = {"one": {"in", "forward", "gone"}, "two": {"in", "forward", "more", "more-forward", "odd"}}
    counts = {"in": 8, "forward": 4, "more": 3, "more-forward": 3, "odd": 2, "gone": 0}
    units, topics = units_of(subscribed, [("in", "forward"), ("gone", "gone-forward")], counts)

    assert sorted(map(sorted, topics.values())) == [["forward", "in"], ["more", "more-forward"], ["odd"]]
    assert {
        tuple(sorted(topics[name])): (unit.partitions, *unit.members) for name, unit in units.items()
    } == {("forward", "in"): (8, "one", "two"), ("more", "more-forward"): (3, "two"), ("odd",): (2, "two")}


def test_halves_that_nobody_has_both_of() -> None:
    """Each is given to somebody all the same, who says what is missing."""
    units, topics = units_of(
        {"one": {"in"}, "two": {"forward"}}, [("in", "forward")], {"in": 2, "forward": 2}
    )
    assert {name: unit.members for name, unit in units.items()} == {"in": ("one",), "forward": ("two",)}
    assert topics == {"in": ["in"], "forward": ["forward"]}


def test_a_half_that_has_grown() -> None:
    """The lanes that are whole stay where they are."""
    joined: dict[str, Joined] = {
        "m1": ("http://a", {"in", "forward"}, {("in", 0), ("forward", 0)}),
        "m2": ("http://b", {"in", "forward"}, {("in", 1), ("forward", 1)}),
    }
    assert deal(joined, [("in", "forward")], {"in": 4, "forward": 2}) == {
        "m1": {"in": [0, 2], "forward": [0]},
        "m2": {"in": [1, 3], "forward": [1]},
    }


def test_order_is_that_of_urls() -> None:
    """Member IDs are dice."""
    topics, counts = {"in", "forward"}, {"in": 1, "forward": 1}
    for first, second in (("m1", "m2"), ("m2", "m1")):
        dealt = deal(
            {first: ("http://b", topics, ()), second: ("http://a", topics, ())}, [("in", "forward")], counts
        )
        assert dealt == {first: {}, second: {"in": [0], "forward": [0]}}

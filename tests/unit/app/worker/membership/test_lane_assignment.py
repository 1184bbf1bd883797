"""Which worker gets which lanes."""

from app.worker.membership.lane_assignment import Joined, deal, units_of


def test_topics_that_go_together() -> None:
    """Those of an address. What only others know goes by its subscribers and its count, and what is missing is left out."""
    subscribed = {"one": {"in", "forward", "gone"}, "two": {"in", "forward", "more", "more-forward", "odd"}}
    counts = {"in": 8, "forward": 4, "more": 3, "more-forward": 3, "odd": 2, "gone": 0}
    units, topics = units_of(subscribed, [("in", "forward"), ("gone", "gone-forward")], counts)

    assert sorted(map(sorted, topics.values())) == [["forward", "in"], ["more", "more-forward"], ["odd"]]
    assert {
        tuple(sorted(topics[name])): (unit.partitions, *unit.members) for name, unit in units.items()
    } == {
        ("forward", "in"): (range(8), "one", "two"),
        ("more", "more-forward"): (range(3), "two"),
        ("odd",): (range(2), "two"),
    }


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

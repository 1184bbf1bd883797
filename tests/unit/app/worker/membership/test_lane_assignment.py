from app.worker.membership.lane_assignment import Joined, LaneTopics, deal, units_of

PAIR = LaneTopics("in", "forward")


def test_topics_that_go_together() -> None:
    subscribed = {"one": {"in", "forward", "gone"}, "two": {"in", "forward", "more", "more-forward", "odd"}}
    counts = {"in": 8, "forward": 4, "more": 3, "more-forward": 3, "odd": 2, "gone": 0}
    units, groups = units_of(subscribed, [PAIR, LaneTopics("gone", "gone-forward")], counts)

    assert sorted(
        (sorted(groups[name].there), unit.partitions, *unit.members) for name, unit in units.items()
    ) == [
        (["forward", "in"], range(8), "one", "two"),
        (["more", "more-forward"], range(3), "two"),
        (["odd"], range(2), "two"),
    ]


def test_lanes_of_unlike_sizes() -> None:
    """A half of a lane that has grown leaves the whole lanes where they are.

    A worker with the one lane of twelve partitions gets less of the others.
    """
    joined: dict[str, Joined] = {
        "m1": ("http://a", {"in", "forward"}, {("in", 0), ("forward", 0)}),
        "m2": ("http://b", {"in", "forward"}, {("in", 1), ("forward", 1)}),
    }
    assert deal(joined, [PAIR], {"in": 4, "forward": 2}) == {
        "m1": {"in": [0, 2], "forward": [0]},
        "m2": {"in": [1, 3], "forward": [1]},
    }

    small = [f"small-{index}" for index in range(12)]
    counts = dict.fromkeys(small, 1) | {"large": 12}
    joined = {name: (f"http://{name}", list(counts), ()) for name in ("a", "b")}
    dealt = deal(joined, [LaneTopics(topic, lanes=1) for topic in ("large", *small)], counts)
    assert dealt["a"] == {"large": list(range(12))}
    assert sorted(dealt["b"]) == sorted(small)


def test_lanes_of_several_partitions() -> None:
    """A lane goes to one worker with all its partitions, and its partition of the forward topic, and stays there.

    The assignment follows the order of URLs, because member IDs are random.
    """
    topics = ("in", "forward")
    first, second = {"in": [0, 2, 4], "forward": [0]}, {"in": [1, 3], "forward": [1]}
    held = {"m2": {("in", 1), ("in", 3), ("forward", 1)}, "m1": {("in", 0), ("in", 2), ("forward", 0)}}
    urls = {"m2": "http://a", "m1": "http://b"}
    for again, dealt in ((False, {"m2": first, "m1": second}), (True, {"m2": second, "m1": first})):
        joined: dict[str, Joined] = {
            name: (urls[name], topics, had if again else ()) for name, had in held.items()
        }
        assert deal(joined, [LaneTopics("in", "forward", 2)], {"in": 5, "forward": 2}) == dealt

"""IDs that were accepted more than once: on small frames, without Kafka."""

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from reconcile.anomalies.finders import lane_moves, repeated_ids, ring_ranks
from reconcile.anomalies.names import Anomaly, rows
from reconcile.run.frames import ring_numbers
from reconcile.run.history.rings import Regrouped, Rings, regroups
from reconcile.run.verdict import anomaly_search
from tests.reconcile.rows import Frames, cut, named


@pytest.mark.parametrize(("capacity", "expected"), [(2, "OVERRUN"), (3, "FORGOTTEN")])
def test_distance(frames: Frames, capacity: int, expected: str) -> None:
    """A ring of three still holds an ID after two others."""
    ids = frames.ids({"id": b"a"}, {"id": b"b"}, {"id": b"c"}, {"id": b"a"})

    assert _repeated(ids, frames.rules(), capacity=capacity) == [(expected, 3)]


@pytest.mark.parametrize(
    ("between", "timestamp", "expected"),
    [
        ([0], 10, "FORGOTTEN"),
        ([0], 11, "OVERRUN"),
        ([11], 0, "OVERRUN"),  # a late message: its ring has let go of what was too old for the newest record
        ([5, 10], 3, "FORGOTTEN"),
        ([0, 0, 0], 0, "OVERRUN"),  # beyond id_cache_size_max
        ([], 99, "FORGOTTEN"),  # within id_cache_size
    ],
)
@pytest.mark.parametrize("sequenced", [False, True])
def test_a_promise_in_time(
    frames: Frames, between: list[int], timestamp: int, expected: str, sequenced: bool
) -> None:
    """Beyond id_cache_size, an ID is FORGOTTEN if it was young enough for the newest record of its lane, and room was left for it."""
    times = [0, *between, timestamp, 1_000]
    of = [b"a", *(b"%d" % number for number in range(len(between))), b"a", b"later"]
    ids = frames.ids(
        *(
            {"id": id_, "timestamp": time, **({"sequence": number} if sequenced else {})}
            for number, (id_, time) in enumerate(zip(of, times, strict=True))
        )
    )
    rules, rings = frames.rules(min_age_ms=10, size=1), Rings.of(1, 1) if sequenced else None

    assert _repeated(ids, rules, capacity=3, rings=rings, promised=True) == [(expected, len(between) + 1)]


def test_whose_it_was(frames: Frames) -> None:
    """A row gets its group from the input of this run, as kept IDs have only its digest. Two outputs of an input give one row."""
    evidence = frames.evidence(
        {"offset": 3, "group": b"g3"}, {"offset": 3, "group": b"g3", "nth": 2}, {"offset": 4, "group": b"g4"}
    )
    found = rows(frames.ids({"id": b"a", "offset": 3}), Anomaly.OVERRUN, F.lit("why"))

    assert [
        (row["offset"], row["id"], row["group"])
        for row in anomaly_search.with_groups(found, evidence).collect()
    ] == [(3, b"a", b"g3")]


def test_what_was_forwarded_may_have_come_between(frames: Frames) -> None:
    """Any forwarded record may have come between two others, unless another output partition shows otherwise."""
    between = [
        {"id": b"%d" % n, "partition": 1, "offset": n, "forward_offset": n, "out_partition": 1}
        for n in range(3)
    ]
    hidden = frames.ids({"id": b"a"}, *between, {"id": b"a", "offset": 1, "out_offset": 1})
    shown = frames.ids(
        {"id": b"a"}, *(value | {"out_partition": 0, "out_offset": 9 + n} for n, value in enumerate(between)),
        {"id": b"a", "offset": 1, "out_offset": 1},
    )  # fmt: skip

    assert _repeated(hidden, frames.rules()) == [("OVERRUN", 1)]
    assert _repeated(shown, frames.rules(), capacity=1) == [("FORGOTTEN", 1)]


def test_forgotten_or_not_where_ids_between_are_gone(frames: Frames) -> None:
    """A repeated ID is a GAP if an earlier run lacks IDs between; beyond the promise, or after that run, the verdict is certain."""
    old = {"id": b"a", "run": 0}
    near = frames.ids(old, {"id": b"a"})
    far = frames.ids(old, {"id": b"b"}, {"id": b"a"})
    gone = frames.rules(whole_since=1)

    assert _repeated(near, gone) == [("GAP", 1)]
    assert _repeated(near, frames.rules()) == [("FORGOTTEN", 1)]
    assert _repeated(far, gone, capacity=1) == [("OVERRUN", 2)]
    assert _repeated(frames.ids({"id": b"a"}, {"id": b"a"}), gone) == [("FORGOTTEN", 1)]


def test_events(frames: Frames) -> None:
    """An event between two records excuses the second; an earlier or later event gives the capacity in force."""
    ids = frames.ids({"id": b"a"}, {"id": b"b"}, {"id": b"a"})

    def judged(offset: int, before: int, after: int) -> list[tuple[str, int | None]]:
        events = frames.events({"input_next": offset, "forward_next": 0, "before": before, "after": after})
        return _repeated(ids, frames.rules(), events)

    assert judged(1, 3, 3) == [("OVERRUN", 2)]
    assert judged(3, 1, 9) == [("OVERRUN", 2)]
    assert judged(0, 9, 0) == []


@pytest.mark.parametrize(
    ("event", "before", "after", "expected"),
    [
        ("resized", 2, 9, "FORGOTTEN"),
        ("resized", 9, 2, "FORGOTTEN"),
        ("resized", 1, 9, "OVERRUN"),
        ("resized", 9, 0, "OVERRUN"),
        ("forgotten", 9, 8, "OVERRUN"),
    ],
)
def test_another_size(frames: Frames, event: str, before: int, after: int, expected: str) -> None:
    """A ring that changed its size between keeps its newest IDs, as many as the smaller size holds.

    With one other ID since, the first is one of two. A ring in memory only is empty.
    """
    ids = frames.ids({"id": b"a"}, {"id": b"b"}, {"id": b"a"})
    told = {"event": event, "input_next": 2, "forward_next": 0, "before": before, "after": after}

    assert _repeated(ids, frames.rules(), frames.events(told), capacity=9) == [(expected, 2)]


def test_what_a_lane_has_handed_on(frames: Frames) -> None:
    """The distance over two growths, from two lanes to four and eight, counts the IDs of lanes 0, 2 and 6.

    Lane 6 succeeds lane 0 through lane 2.
    """
    grown = frames.events({"before": 2, "after": 4}, {"before": 4, "after": 8})

    def judged(capacity: int, between: int, *, lane: int = 6) -> list[tuple[str, int | None]]:
        heir = {"lane": 6, "partition": 6}
        ids = frames.ids(
            {"id": b"x", "run": 0}, {"id": b"0", "run": 0},
            *({"id": b"%d" % n, "lane": lane, "partition": lane} for n in range(1, between + 1)),
            {"id": b"x", **heir, "offset": 90}, {"id": b"y", **heir, "offset": 91},
        )  # fmt: skip
        return _repeated(ids, frames.rules(), grown=grown, capacity=capacity)

    assert judged(3, 2) == [("OVERRUN", 90)]
    assert judged(4, 2) == [("FORGOTTEN", 90)]
    assert judged(3, 2, lane=2) == [("OVERRUN", 90)]
    assert judged(2, 2, lane=4) == [("FORGOTTEN", 90)]


@pytest.mark.parametrize(
    ("lane", "offset", "expected"),
    [(0, 1, "OVERRUN"), (0, 0, "FORGOTTEN"), (2, 5, "OVERRUN"), (2, 9, "FORGOTTEN")],
)
def test_events_of_two_lanes(frames: Frames, lane: int, offset: int, expected: str) -> None:
    """Events of the first lane count before it handed its IDs on, and events of the second lane since; no others do."""
    ids = frames.ids({"id": b"x", "run": 0}, {"id": b"x", "lane": 2, "partition": 2, "offset": 8})
    event = {"lane": lane, "input_next": offset, "forward_next": 0, "before": 3, "after": 3}

    assert _repeated(ids, frames.rules(), frames.events(event), frames.events({"before": 2})) == [
        (expected, 8)
    ]


def test_another_partitioner(frames: Frames) -> None:
    """A new home does not know IDs that a lane accepted before homes moved; an ID of one lane, or a later one, is known."""
    away = frames.ids({"id": b"x"}, {"id": b"x", "lane": 1, "partition": 1, "offset": 8, "run": 1})
    here = frames.ids({"id": b"x"}, {"id": b"x"})

    assert _repeated(away, frames.rules(moved=1)) == [("OVERRUN", 8)]
    assert _repeated(away, frames.rules()) == [("FORGOTTEN", 8)]
    assert _repeated(here, frames.rules(moved=1)) == [("FORGOTTEN", 1)]


def test_cross_lane(frames: Frames) -> None:
    """An ID of another group in another lane is CROSS-LANE; the same group is of the same lane, on any route."""
    other = frames.ids({"id": b"a"}, {"id": b"a", "lane": 1, "partition": 1, "group_digest": 2})
    same = frames.ids({"id": b"a"}, {"id": b"a", "lane": 1, "partition": 1})
    earlier = frames.ids(
        {"id": b"a"}, {"id": b"a", "lane": 1, "partition": 1, "group_digest": 2}, {"id": b"a", "run": 2}
    )

    def found(ids: DataFrame, run: int = 1) -> list[tuple[str, int | None]]:
        return named(repeated_ids.cross_lane(repeated_ids.repeated(ids, run), run, frames.rules(), ["t"]))

    assert found(other) == [("CROSS-LANE", 1)]
    assert found(same) == []
    assert found(earlier, 2) == []


def test_cross_lane_after_the_age(frames: Frames) -> None:
    """An expired ID is allowed in another lane too; its age counts from the nearest earlier record, not from the first."""
    away = {"id": b"a", "lane": 1, "partition": 1, "group_digest": 2}
    ids = frames.ids(
        {"id": b"a"}, {**away, "timestamp": 20},
        *({**row, "id": b"b"} for row in ({}, {"timestamp": 15}, {**away, "timestamp": 20})),
        # On another run: it is known which was first, whatever the clocks say.
        {"id": b"c", "run": 0, "timestamp": 20}, {**away, "id": b"c", "timestamp": 0},
    )  # fmt: skip
    found = repeated_ids.cross_lane(repeated_ids.repeated(ids, 1), 1, frames.rules(max_age_ms=10), ["t"])

    assert named(found) == [("CROSS-LANE", 4), ("CROSS-LANE", 6), ("OVERRUN", 1)]


def _in_one_lane(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    """IDs of a lane with several partitions, in the order in which it accepted them; each is in an output partition of its own."""
    offsets = Counter[int]()
    made = []
    for number, row in enumerate(rows):
        partition = row.get("partition", 0)
        plain = {"offset": 100 * partition + offsets[partition], "out_partition": number, "sequence": number}
        offsets[partition] += 1
        made.append({**plain, "group_digest": 10 * number, **row})
    return made


@pytest.mark.parametrize(("capacity", "expected"), [(2, "OVERRUN"), (3, "FORGOTTEN")])
def test_sequence_numbers_count_exactly(frames: Frames, capacity: int, expected: str) -> None:
    """Sequence numbers give the exact distance between two groups in two partitions, whose outputs show no order.

    Evidence of an ID between is gone.
    """
    rows = _in_one_lane(
        {"id": b"a"}, {"id": b"b", "partition": 1}, {"id": b"c"}, {"id": b"a", "partition": 1}
    )
    one_lane, gone = Rings.of(1, 2), frames.rules(whole_since=2)
    ids = frames.ids(*rows[:2], *rows[3:])

    assert _repeated(ids, gone, capacity=capacity, rings=one_lane) == [(expected, 101)]
    assert named(
        repeated_ids.cross_lane(repeated_ids.repeated(ids, 1), 1, frames.rules(), ["t"])
    ) == []  # fmt: skip


def test_a_ring_that_was_begun_anew(frames: Frames) -> None:
    """Numbers that fall along a partition give no order any more: offsets and outputs decide."""
    rows = _in_one_lane({"id": b"a"}, {"id": b"b"}, {"id": b"c", "sequence": 0}, {"id": b"a", "sequence": 1})
    ids = frames.ids(*({**row, "out_partition": 0} for row in rows))

    assert _repeated(ids, frames.rules(), capacity=2, rings=Rings.of(1, 2)) == [("OVERRUN", 3)]
    # Where the journal tells that the ring was emptied, numbers since then count.
    again = frames.ids(*rows, {"id": b"a", "offset": 101, "partition": 1, "sequence": 2, "out_partition": 9})
    events = frames.events({"nexts": [2, 0], "input_next": 0, "forward_next": 0, "before": 9, "after": 9})
    found = _repeated(again, frames.rules(), events, capacity=1, rings=Rings.of(1, 2))
    assert found == [("FORGOTTEN", 101), ("OVERRUN", 3)]


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [(1, "OVERRUN"), (2, "OVERRUN"), (3, "FORGOTTEN")],
)
def test_what_a_merge_of_rings_must_forget(frames: Frames, capacity: int, expected: str) -> None:
    """IDs of both merged lanes count after a merge, unless the output shows that they are older; so do IDs since then."""
    changes = regroups([Regrouped(5, 0, 2, 1, (2, 2), 0, 1)])
    ids = frames.ids(
        {"id": b"old", "lane": 1, "partition": 1},
        {"id": b"x", "lane": 0},
        {"id": b"young", "lane": 1, "partition": 1, "offset": 1},
        {"id": b"y", "lane": 2, "offset": 2, "sequence": 70},
        {
            "id": b"x",
            "lane": 2,
            "partition": 1,
            "offset": 2,
            "sequence": 71,
            "group_digest": 7,
        },
    )

    assert _repeated(ids, frames.rules(), capacity=capacity, rings=Rings.of(1, 2, changes)) == [(expected, 2)]
    assert named(
        repeated_ids.cross_lane(
            repeated_ids.repeated(ids, 1, ring_numbers.settled([Rings.of(1, 2, changes)])), 1, frames.rules(), ["t"]
        )
    ) == []  # fmt: skip


@pytest.mark.parametrize("now", [1, 2])
def test_what_former_lanes_accepted_apart(frames: Frames, now: int) -> None:
    """An ID that three unconnected lanes accepted gives one CROSS-LANE row. The lane that took over from all of them knows it."""
    changes = regroups([Regrouped(5 + lane, lane, 6, now, (1,) * 6, 0, now) for lane in range(now)])
    rings = Rings.of(now, 6, changes)
    apart = [
        {"id": b"x", "lane": lane, "partition": lane, "group_digest": lane + 1, "out_partition": lane}
        for lane in (0, 2, 4)
    ]
    late = {
        "id": b"x",
        "lane": 6,
        "partition": 2,
        "offset": 9,
        "sequence": 7,
        "group_digest": 9,
        "out_partition": 2,
    }

    assert _repeated(frames.ids(*apart), frames.rules(), rings=rings, capacity=9) == [("CROSS-LANE", 1)]
    found = _repeated(frames.ids(*apart, late), frames.rules(), rings=rings, capacity=9)
    assert found == [("CROSS-LANE", 1), ("FORGOTTEN", 9)]


def _repeated(
    ids: DataFrame,
    rules: DataFrame,
    events: DataFrame | None = None,
    grown: DataFrame | None = None,
    *,
    capacity: int = 3,
    rings: Rings | None = None,
    promised: bool = False,
) -> list[tuple[str, int | None]]:
    return named(judged(ids, rules, events, grown, capacity=capacity, rings=rings, promised=promised))


def judged(
    ids: DataFrame,
    rules: DataFrame,
    events: DataFrame | None = None,
    grown: DataFrame | None = None,
    *,
    capacity: int = 3,
    rings: Rings | None = None,
    promised: bool = False,
) -> DataFrame:
    """``rings``: of an address that sets `lanes`; ``promised``: the rules have a promise in time."""
    item = rings or Rings.of(0, 1)
    regrouped = bool(item.regroups)
    several = cut(repeated_ids.repeated(ids, 1, ring_numbers.settled([item]) if regrouped else None))
    lanes = several.select("address", "lane").distinct()
    ranked = ring_ranks.ranks(ids, lanes, events, sequenced=item.fixed, promised=promised)
    pairs = cut(lane_moves.with_lanes(repeated_ids.pairs(several, ranked, 1), grown, [item]))
    between = cut(repeated_ids.between(lane_moves.with_passed(pairs, ids, regrouped=regrouped)))
    return repeated_ids.remembered(repeated_ids.promised(between, events, rules, F.lit(capacity)))

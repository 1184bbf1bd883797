"""IDs that were accepted more than once: on small frames, without Kafka."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconcile.anomalies.finders import lane_moves, repeated_ids, ring_ranks
from reconcile.anomalies.names import Anomaly, rows
from reconcile.run.frames import ring_numbers
from reconcile.run.history.rings import Regrouped, Rings, regroups
from reconcile.run.verdict import anomaly_search
from tests.reconcile.rows import Frames, cut


class Case(NamedTuple):
    """One history, and what is found in it. All cases of a test are judged together, each as an address."""

    ids: Sequence[dict[str, Any]]
    """Rows of accepted IDs; a test states only the fields that matter to it."""
    expected: list[tuple[str, int]]
    """Anomaly and input offset."""
    capacity: int = 3
    rules: dict[str, Any] = {}  # noqa: RUF012
    events: Sequence[dict[str, Any]] = ()
    grown: Sequence[dict[str, Any]] = ()
    rings: Rings = Rings.of(0, 1)


def _ids(names: str) -> list[dict[str, Any]]:
    """IDs of one letter in their order."""
    return [{"id": name.encode()} for name in names]


def test_distance(frames: Frames) -> None:
    """A ring of three still holds an ID after two others; a ring of two does not."""
    _check(
        frames,
        Case(_ids("abca"), [("OVERRUN", 3)], capacity=2),
        Case(_ids("abca"), [("FORGOTTEN", 3)], capacity=3),
    )


@pytest.mark.parametrize("sequenced", [False, True])
def test_a_promise_in_time(frames: Frames, sequenced: bool) -> None:
    """Beyond id_cache_size, an ID is FORGOTTEN if it was young enough for the newest record of its lane, and room was left for it."""

    def promised(between: list[int], timestamp: int, expected: str) -> Case:
        times = [0, *between, timestamp, 1_000]
        of = [b"a", *(b"%d" % number for number in range(len(between))), b"a", b"later"]
        rows = [
            {"id": id_, "timestamp": time, **({"sequence": number} if sequenced else {})}
            for number, (id_, time) in enumerate(zip(of, times, strict=True))
        ]
        rings = Rings.of(1, 1) if sequenced else Rings.of(0, 1)
        rules = {"min_age_ms": 10, "size": 1}
        return Case(rows, [(expected, len(between) + 1)], rules=rules, rings=rings)

    _check(
        frames,
        promised([0], 10, "FORGOTTEN"),
        promised([0], 11, "OVERRUN"),
        # A late message: its ring has let go of what was too old for the newest record.
        promised([11], 0, "OVERRUN"),
        promised([5, 10], 3, "FORGOTTEN"),
        promised([0, 0, 0], 0, "OVERRUN"),  # beyond id_cache_size_max
        promised([], 99, "FORGOTTEN"),  # within id_cache_size
        promised=True,
    )


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
    last: dict[str, Any] = {"id": b"a", "offset": 1, "out_offset": 1}
    hidden: list[dict[str, Any]] = [{"id": b"a"}, *between, last]
    shown: list[dict[str, Any]] = [
        {"id": b"a"},
        *(value | {"out_partition": 0, "out_offset": 9 + n} for n, value in enumerate(between)),
        last,
    ]

    _check(frames, Case(hidden, [("OVERRUN", 1)]), Case(shown, [("FORGOTTEN", 1)], capacity=1))


def test_forgotten_or_not_where_ids_between_are_gone(frames: Frames) -> None:
    """A repeated ID is a GAP if an earlier run lacks IDs between; beyond the promise, or after that run, the verdict is certain."""
    old: dict[str, Any] = {"id": b"a", "run": 0}
    near: list[dict[str, Any]] = [old, {"id": b"a"}]
    far: list[dict[str, Any]] = [old, {"id": b"b"}, {"id": b"a"}]
    gone = {"whole_since": 1}

    _check(
        frames,
        Case(near, [("GAP", 1)], rules=gone),
        Case(near, [("FORGOTTEN", 1)]),
        Case(far, [("OVERRUN", 2)], rules=gone, capacity=1),
        Case(_ids("aa"), [("FORGOTTEN", 1)], rules=gone),
    )


def test_events(frames: Frames) -> None:
    """An event between two records excuses the second; an earlier or later event gives the capacity in force."""

    def told(offset: int, before: int, after: int, *expected: tuple[str, int]) -> Case:
        event = {"input_next": offset, "forward_next": 0, "before": before, "after": after}
        return Case(_ids("aba"), list(expected), events=[event])

    _check(frames, told(1, 3, 3, ("OVERRUN", 2)), told(3, 1, 9, ("OVERRUN", 2)), told(0, 9, 0))


def test_another_size(frames: Frames) -> None:
    """A ring that changed its size between keeps its newest IDs, as many as the smaller size holds.

    With one other ID since, the first is one of two. A ring in memory only is empty.
    """

    def told(event: str, before: int, after: int, expected: str) -> Case:
        row = {"event": event, "input_next": 2, "forward_next": 0, "before": before, "after": after}
        return Case(_ids("aba"), [(expected, 2)], events=[row], capacity=9)

    _check(
        frames,
        told("resized", 2, 9, "FORGOTTEN"),
        told("resized", 9, 2, "FORGOTTEN"),
        told("resized", 1, 9, "OVERRUN"),
        told("resized", 9, 0, "OVERRUN"),
        told("forgotten", 9, 8, "OVERRUN"),
    )


def test_what_a_lane_has_handed_on(frames: Frames) -> None:
    """The distance over two growths, from two lanes to four and eight, counts the IDs of lanes 0, 2 and 6.

    Lane 6 succeeds lane 0 through lane 2.
    """
    grown = [{"before": 2, "after": 4}, {"before": 4, "after": 8}]

    def handed(capacity: int, lane: int, expected: str) -> Case:
        heir = {"lane": 6, "partition": 6}
        ids = [
            {"id": b"x", "run": 0}, {"id": b"0", "run": 0},
            *({"id": b"%d" % n, "lane": lane, "partition": lane} for n in (1, 2)),
            {"id": b"x", **heir, "offset": 90}, {"id": b"y", **heir, "offset": 91},
        ]  # fmt: skip
        return Case(ids, [(expected, 90)], grown=grown, capacity=capacity)

    _check(
        frames,
        handed(3, 6, "OVERRUN"),
        handed(4, 6, "FORGOTTEN"),
        handed(3, 2, "OVERRUN"),
        handed(2, 4, "FORGOTTEN"),
    )


def test_events_of_two_lanes(frames: Frames) -> None:
    """Events of the first lane count before it handed its IDs on, and events of the second lane since; no others do."""
    ids: list[dict[str, Any]] = [{"id": b"x", "run": 0}, {"id": b"x", "lane": 2, "partition": 2, "offset": 8}]

    def told(lane: int, offset: int, expected: str) -> Case:
        event = {"lane": lane, "input_next": offset, "forward_next": 0, "before": 3, "after": 3}
        return Case(ids, [(expected, 8)], events=[event], grown=[{"before": 2}])

    _check(
        frames,
        told(0, 1, "OVERRUN"),
        told(0, 0, "FORGOTTEN"),
        told(2, 5, "OVERRUN"),
        told(2, 9, "FORGOTTEN"),
    )


def test_another_partitioner(frames: Frames) -> None:
    """A new home does not know IDs that a lane accepted before homes moved; an ID of one lane, or a later one, is known."""
    away: list[dict[str, Any]] = [
        {"id": b"x"},
        {"id": b"x", "lane": 1, "partition": 1, "offset": 8, "run": 1},
    ]

    _check(
        frames,
        Case(away, [("OVERRUN", 8)], rules={"moved": 1}),
        Case(away, [("FORGOTTEN", 8)]),
        Case(_ids("xx"), [("FORGOTTEN", 1)], rules={"moved": 1}),
    )


def test_cross_lane(frames: Frames) -> None:
    """An ID of another group in another lane is CROSS-LANE; the same group is of the same lane, on any route."""
    first: dict[str, Any] = {"id": b"a", "run": 2}
    other = [first, {**first, "lane": 1, "partition": 1, "group_digest": 2}]
    same: list[dict[str, Any]] = [first, {**first, "lane": 1, "partition": 1}]
    earlier: list[dict[str, Any]] = [
        {"id": b"a"},
        {"id": b"a", "lane": 1, "partition": 1, "group_digest": 2},
        first,
    ]
    cases = [Case(other, [("CROSS-LANE", 1)]), Case(same, []), Case(earlier, [])]

    assert _cross_lane(frames, *cases, run=2) == [case.expected for case in cases]


def test_cross_lane_after_the_age(frames: Frames) -> None:
    """An expired ID is allowed in another lane too; its age counts from the nearest earlier record, not from the first."""
    away = {"id": b"a", "lane": 1, "partition": 1, "group_digest": 2}
    ids: list[dict[str, Any]] = [
        {"id": b"a"}, {**away, "timestamp": 20},
        *({**row, "id": b"b"} for row in ({}, {"timestamp": 15}, {**away, "timestamp": 20})),
        # On another run: it is known which was first, whatever the clocks say.
        {"id": b"c", "run": 0, "timestamp": 20}, {**away, "id": b"c", "timestamp": 0},
    ]  # fmt: skip

    [found] = _cross_lane(frames, Case(ids, [], rules={"max_age_ms": 10}))
    assert found == [("CROSS-LANE", 4), ("CROSS-LANE", 6), ("OVERRUN", 1)]


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


def test_sequence_numbers_count_exactly(frames: Frames) -> None:
    """Sequence numbers give the exact distance between two groups in two partitions, whose outputs show no order.

    Evidence of an ID between is gone.
    """
    rows = _in_one_lane(
        {"id": b"a"}, {"id": b"b", "partition": 1}, {"id": b"c"}, {"id": b"a", "partition": 1}
    )
    ids = [*rows[:2], *rows[3:]]
    two, three = (
        Case(
            ids,
            [(expected, 101)],
            capacity=capacity,
            rules={"whole_since": 2},
            rings=Rings.of(1, 2),
        )
        for capacity, expected in ((2, "OVERRUN"), (3, "FORGOTTEN"))
    )

    _check(frames, two, three)
    assert _cross_lane(frames, two) == [[]]


def test_a_ring_that_was_begun_anew(frames: Frames) -> None:
    """Numbers that fall along a partition give no order any more: offsets and outputs decide."""
    rows = _in_one_lane({"id": b"a"}, {"id": b"b"}, {"id": b"c", "sequence": 0}, {"id": b"a", "sequence": 1})
    # Where the journal tells that the ring was emptied, numbers since then count.
    again = {"id": b"a", "offset": 101, "partition": 1, "sequence": 2, "out_partition": 9}
    emptied = {"nexts": [2, 0], "input_next": 0, "forward_next": 0, "before": 9, "after": 9}
    one_lane = Rings.of(1, 2)

    _check(
        frames,
        Case([{**row, "out_partition": 0} for row in rows], [("OVERRUN", 3)], capacity=2, rings=one_lane),
        Case(
            [*rows, again],
            [("FORGOTTEN", 101), ("OVERRUN", 3)],
            events=[emptied],
            capacity=1,
            rings=one_lane,
        ),
    )


def test_what_a_merge_of_rings_must_forget(frames: Frames) -> None:
    """IDs of both merged lanes count after a merge, unless the output shows that they are older; so do IDs since then."""
    changes = regroups([Regrouped(5, 0, 2, 1, (2, 2), 0, 1)])
    ids = [
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
    ]
    cases = [
        Case(ids, [(expected, 2)], capacity=capacity, rings=Rings.of(1, 2, changes))
        for capacity, expected in ((1, "OVERRUN"), (2, "OVERRUN"), (3, "FORGOTTEN"))
    ]

    _check(frames, *cases)
    assert _cross_lane(frames, cases[0]) == [[]]


def test_what_former_lanes_accepted_apart(frames: Frames) -> None:
    """An ID that three unconnected lanes accepted gives one CROSS-LANE row. The lane that took over from all of them knows it."""
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
    cases = []
    for now in (1, 2):
        changes = regroups([Regrouped(5 + lane, lane, 6, now, (1,) * 6, 0, now) for lane in range(now)])
        rings = Rings.of(now, 6, changes)
        cases += [
            Case(apart, [("CROSS-LANE", 1)], rings=rings, capacity=9),
            Case([*apart, late], [("CROSS-LANE", 1), ("FORGOTTEN", 9)], rings=rings, capacity=9),
        ]

    _check(frames, *cases)


def _check(frames: Frames, *cases: Case, promised: bool = False) -> None:
    """Judge the cases together, and compare what is found in each."""
    events = _numbered(case.events for case in cases)
    grown = _numbered(case.grown for case in cases)
    capacities = F.array(*(F.lit(case.capacity) for case in cases))
    found = judged(
        _frame(frames, cases),
        frames.rules_of(*(case.rules for case in cases)),
        frames.events(*events) if events else None,
        frames.events(*grown) if grown else None,
        capacity=F.get(capacities, F.col("address")),
        rings=[case.rings for case in cases],
        promised=promised,
    )
    assert _by_case(found, cases) == [case.expected for case in cases]


def _numbered(events: Iterable[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the events of all cases: each case is an address."""
    return [
        {"address": at, "number": n, **row} for at, rows in enumerate(events) for n, row in enumerate(rows)
    ]


def _cross_lane(frames: Frames, *cases: Case, run: int = 1) -> list[list[tuple[str, int]]]:
    """Return what is found in each case across lanes."""
    rings = [case.rings for case in cases]
    settled = ring_numbers.settled(rings) if any(item.regroups for item in rings) else None
    several = repeated_ids.repeated(_frame(frames, cases), run, settled)
    rules = frames.rules_of(*(case.rules for case in cases))
    names = [f"t{at}" for at in range(len(cases))]
    return _by_case(repeated_ids.cross_lane(several, run, rules, names), cases)


def _frame(frames: Frames, cases: Sequence[Case]) -> DataFrame:
    """Return the IDs of all cases: each case is an address."""
    return frames.ids(
        *(
            {"address": at, "id_address": at, "out_address": at, "offset": n, "out_offset": n, **row}
            for at, case in enumerate(cases)
            for n, row in enumerate(case.ids)
        )
    )


def _by_case(found: DataFrame, cases: Sequence[Case]) -> list[list[tuple[str, int]]]:
    """Return anomalies and input offsets of each case, in order."""
    rows = sorted((row["address"], row["anomaly"], row["offset"]) for row in found.collect())
    return [[(name, offset) for at, name, offset in rows if at == case] for case in range(len(cases))]


def judged(
    ids: DataFrame,
    rules: DataFrame,
    events: DataFrame | None = None,
    grown: DataFrame | None = None,
    *,
    capacity: Column,
    rings: Sequence[Rings] = (Rings.of(0, 1),),
    promised: bool = False,
) -> DataFrame:
    """``rings``: of each address; ``promised``: some rules have a promise in time."""
    regrouped = any(item.regroups for item in rings)
    several = cut(repeated_ids.repeated(ids, 1, ring_numbers.settled(rings) if regrouped else None))
    lanes = several.select("address", "lane").distinct()
    ranked = ring_ranks.ranks(
        ids, lanes, events, sequenced=any(item.fixed for item in rings), promised=promised
    )
    pairs = cut(lane_moves.with_lanes(repeated_ids.pairs(several, ranked, 1), grown, rings))
    between = cut(repeated_ids.between(lane_moves.with_passed(pairs, ids, regrouped=regrouped)))
    return repeated_ids.remembered(repeated_ids.promised(between, events, rules, capacity))

"""IDs that were accepted more than once: on small frames, without Kafka.

Each case is an address. All cases are judged in one job for each plan that a run may build.
"""

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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

Row = dict[str, Any]
Found = list[tuple[str, int]]
"""Anomalies and input offsets, in order."""


class Case(NamedTuple):
    """One history, and what is found in it."""

    ids: Sequence[Row]
    """Rows of accepted IDs; a case states only the fields that matter to it."""
    expected: Found = []  # noqa: RUF012
    crossed: Found = []  # noqa: RUF012
    """Findings across lanes."""
    capacity: int = 3
    rules: Row = {}  # noqa: RUF012
    events: Sequence[Row] = ()
    grown: Sequence[Row] = ()
    rings: Rings = Rings.from_settings(0, 1)

    @property
    def numbered(self) -> bool:
        return self.rings.fixed or bool(self.rings.regroups)

    @property
    def promises(self) -> bool:
        return "min_age_ms" in self.rules


def _ids(names: str) -> list[Row]:
    """IDs of one letter in their order."""
    return [{"id": name.encode()} for name in names]


def _promised(between: list[int], timestamp: int, expected: str) -> Iterator[Case]:
    """Repeat an ID after others at these times, before a later record: without sequence numbers, and with them."""
    times = [0, *between, timestamp, 1_000]
    names = [b"a", *(b"%d" % number for number in range(len(between))), b"a", b"later"]
    plain = [{"id": name, "timestamp": time} for name, time in zip(names, times, strict=True)]
    numbered = [{**row, "sequence": number} for number, row in enumerate(plain)]
    rules = {"min_age_ms": 10, "size": 1}
    for ids, lanes in ((plain, 0), (numbered, 1)):
        yield Case(ids, [(expected, len(between) + 1)], rules=rules, rings=Rings.from_settings(lanes, 1))


def _told(ids: list[Row], *expected: tuple[str, int], capacity: int = 3, **event: Any) -> Case:
    return Case(ids, [*expected], events=[{"forward_next": 0, **event}], capacity=capacity)


def _resized(event: str, before: int, after: int, expected: str) -> Case:
    """With one other ID since, the first is one of two."""
    return _told(
        _ids("aba"), (expected, 2), event=event, input_next=2, before=before, after=after, capacity=9
    )


def _handed(capacity: int, lane: int, expected: str) -> Case:
    """Repeat an ID of lane 0 in lane 6, which succeeds it through lane 2; others between are of ``lane``."""
    heir = {"lane": 6, "partition": 6}
    between = [{"id": b"%d" % n, "lane": lane, "partition": lane} for n in (1, 2)]
    ids = [
        {"id": b"x", "run": 0}, {"id": b"0", "run": 0}, *between, {"id": b"x", **heir, "offset": 90}, {"id": b"y", **heir, "offset": 91},
    ]  # fmt: skip
    grown = [{"before": 2, "after": 4}, {"before": 4, "after": 8}]
    return Case(ids, [(expected, 90)], grown=grown, capacity=capacity)


def _of_two_lanes(lane: int, offset: int, expected: str) -> Case:
    ids = [{"id": b"x", "run": 0}, {"id": b"x", "lane": 2, "partition": 2, "offset": 8}]
    event = {"lane": lane, "input_next": offset, "before": 3, "after": 3}
    return _told(ids, (expected, 8), **event)._replace(grown=[{"before": 2}])


def _in_one_lane(*rows: Row) -> list[Row]:
    """IDs of a lane with several partitions, in the order in which it accepted them; each is in an output partition of its own."""
    offsets = Counter[int]()
    made = []
    for number, row in enumerate(rows):
        partition = row.get("partition", 0)
        plain = {"offset": 100 * partition + offsets[partition], "out_partition": number, "sequence": number}
        offsets[partition] += 1
        made.append({**plain, "group_digest": 10 * number, **row})
    return made


def _across() -> Iterator[Case]:
    first: Row = {"id": b"a"}
    away = {**first, "lane": 1, "partition": 1}
    yield Case([first, {**away, "group_digest": 2}], crossed=[("CROSS-LANE", 1)])
    yield Case([first, away], [("FORGOTTEN", 1)])
    yield Case([{**first, "run": 0}, {**away, "run": 0, "group_digest": 2}, first], [("FORGOTTEN", 2)])


def _across_after_the_age() -> Case:
    # The age counts from the nearest earlier record, not from the first.
    away = {"id": b"a", "lane": 1, "partition": 1, "group_digest": 2}
    ids: list[Row] = [
        {"id": b"a"}, {**away, "timestamp": 20},
        *({**row, "id": b"b"} for row in ({}, {"timestamp": 15}, {**away, "timestamp": 20})),
        # On another run: it is known which was first, whatever the clocks say.
        {"id": b"c", "run": 0, "timestamp": 20}, {**away, "id": b"c", "timestamp": 0},
    ]  # fmt: skip
    crossed = [("CROSS-LANE", 4), ("CROSS-LANE", 6), ("OVERRUN", 1)]
    return Case(ids, [("OVERRUN", 3)], crossed, rules={"max_age_ms": 10})


def _counted() -> Iterator[Case]:
    """Two groups in two partitions, whose outputs show no order; evidence of an ID between is gone."""
    rows = _in_one_lane(
        {"id": b"a"}, {"id": b"b", "partition": 1}, {"id": b"c"}, {"id": b"a", "partition": 1}
    )
    for capacity, expected in ((2, "OVERRUN"), (3, "FORGOTTEN")):
        yield Case(
            [*rows[:2], *rows[3:]],
            [(expected, 101)],
            capacity=capacity,
            rules={"whole_since": 2},
            rings=Rings.from_settings(1, 2),
        )


def _merged() -> Iterator[Case]:
    changes = regroups([Regrouped(5, 0, 2, 1, (2, 2), 0, 1)])
    ids: list[Row] = [
        {"id": b"old", "lane": 1, "partition": 1},
        {"id": b"x", "lane": 0},
        {"id": b"young", "lane": 1, "partition": 1, "offset": 1},
        {"id": b"y", "lane": 2, "offset": 2, "sequence": 70},
        {"id": b"x", "lane": 2, "partition": 1, "offset": 2, "sequence": 71, "group_digest": 7},
    ]
    for capacity, expected in ((1, "OVERRUN"), (2, "OVERRUN"), (3, "FORGOTTEN")):
        yield Case(ids, [(expected, 2)], capacity=capacity, rings=Rings.from_settings(1, 2, changes))


def _accepted_apart() -> Iterator[Case]:
    apart: list[Row] = [
        {"id": b"x", "lane": lane, "partition": lane, "group_digest": lane + 1, "out_partition": lane}
        for lane in (0, 2, 4)
    ]
    late = {
        "id": b"x", "lane": 6, "partition": 2, "offset": 9, "sequence": 7, "group_digest": 9, "out_partition": 2,
    }  # fmt: skip
    crossed = [("CROSS-LANE", 1)]
    for now in (1, 2):
        changes = regroups([Regrouped(5 + lane, lane, 6, now, (1,) * 6, 0, now) for lane in range(now)])
        rings = Rings.from_settings(now, 6, changes)
        yield Case(apart, crossed, rings=rings, capacity=9)
        yield Case([*apart, late], [*crossed, ("FORGOTTEN", 9)], rings=rings, capacity=9)


def _where(wanted: Callable[[Case], bool]) -> dict[str, list[Case]]:
    """Return the promises with cases that such a run may judge."""
    chosen = {promise: [*filter(wanted, cases)] for promise, cases in PROMISES.items()}
    return {promise: cases for promise, cases in chosen.items() if cases}


OLD: Row = {"id": b"a", "run": 0}
GONE = {"whole_since": 1}
AWAY: list[Row] = [{"id": b"x"}, {"id": b"x", "lane": 1, "partition": 1, "offset": 8}]
PROMISES: dict[str, list[Case]] = {
    "a ring of three holds an ID after two others": [
        Case(_ids("abca"), [("OVERRUN", 3)], capacity=2),
        Case(_ids("abca"), [("FORGOTTEN", 3)], capacity=3),
    ],
    # Beyond id_cache_size, an ID is FORGOTTEN if it was young enough for the newest record of its lane, and room was left for it.
    "a promise in time": [
        *_promised([0], 10, "FORGOTTEN"),
        *_promised([0], 11, "OVERRUN"),
        # A late message: its ring has let go of what was too old for the newest record.
        *_promised([11], 0, "OVERRUN"),
        *_promised([5, 10], 3, "FORGOTTEN"),
        *_promised([0, 0, 0], 0, "OVERRUN"),  # beyond id_cache_size_max
        *_promised([], 99, "FORGOTTEN"),  # within id_cache_size
    ],
    # A GAP if an earlier run lacks IDs between; beyond the promise, or after that run, the verdict is certain.
    "IDs between are gone": [
        Case([OLD, *_ids("a")], [("GAP", 1)], rules=GONE),
        Case([OLD, *_ids("a")], [("FORGOTTEN", 1)]),
        Case([OLD, *_ids("ba")], [("OVERRUN", 2)], rules=GONE, capacity=1),
        Case(_ids("aa"), [("FORGOTTEN", 1)], rules=GONE),
    ],
    "an event between excuses the second, another gives the capacity": [
        _told(_ids("aba"), ("OVERRUN", 2), input_next=1, before=3, after=3),
        _told(_ids("aba"), ("OVERRUN", 2), input_next=3, before=1, after=9),
        _told(_ids("aba"), input_next=0, before=9, after=0),
    ],
    # It keeps its newest IDs, as many as the smaller size holds. A ring in memory only is empty.
    "a ring changed its size between": [
        _resized("resized", 2, 9, "FORGOTTEN"),
        _resized("resized", 9, 2, "FORGOTTEN"),
        _resized("resized", 1, 9, "OVERRUN"),
        _resized("resized", 9, 0, "OVERRUN"),
        _resized("forgotten", 9, 8, "OVERRUN"),
    ],
    # From two lanes to four and eight, IDs of lanes 0, 2 and 6 count.
    "a lane handed its IDs on": [
        _handed(3, 6, "OVERRUN"),
        _handed(4, 6, "FORGOTTEN"),
        _handed(3, 2, "OVERRUN"),
        _handed(2, 4, "FORGOTTEN"),
    ],
    # Events of the first lane count before it handed its IDs on, and events of the second lane since; no others do.
    "events of two lanes": [
        _of_two_lanes(0, 1, "OVERRUN"),
        _of_two_lanes(0, 9, "OVERRUN"),
        _of_two_lanes(0, 0, "FORGOTTEN"),
        _of_two_lanes(2, 5, "OVERRUN"),
        _of_two_lanes(2, 9, "FORGOTTEN"),
    ],
    # A new home does not know IDs that a lane accepted before homes moved; an ID of one lane, or a later one, is known.
    "another partitioner": [
        Case(AWAY, [("OVERRUN", 8)], rules={"moved": 1}),
        Case(AWAY, [("FORGOTTEN", 8)]),
        Case(_ids("xx"), [("FORGOTTEN", 1)], rules={"moved": 1}),
    ],
    # The same group is of the same lane, on any route.
    "another group in another lane is CROSS-LANE": [*_across()],
    "an expired ID is allowed in another lane": [_across_after_the_age()],
    "sequence numbers count exactly": [*_counted()],
    # IDs of both merged lanes count, unless the output shows that they are older; so do IDs since then.
    "merged rings": [*_merged()],
    # One CROSS-LANE row for an ID that three unconnected lanes accepted. The lane that took over from all of them knows it.
    "former lanes accepted an ID apart": [*_accepted_apart()],
}
PLANS = {
    "all": PROMISES,
    "no sequence numbers": _where(lambda case: not case.numbered),
    "plain": _where(lambda case: not (case.numbered or case.events or case.grown or case.promises)),
}


@functools.cache
def _verdicts(frames: Frames, plan: str) -> dict[str, list[tuple[Found, Found]]]:
    """Return what is found in each case of a plan, and what across lanes: one job for all."""
    chosen = PLANS[plan]
    cases = [*itertools.chain.from_iterable(chosen.values())]
    found = zip(_found(frames, cases), _cross_lane(frames, cases), strict=True)
    return {promise: [*itertools.islice(found, len(of))] for promise, of in chosen.items()}


@pytest.mark.parametrize(
    ("plan", "promise"), [(plan, promise) for plan, chosen in PLANS.items() for promise in chosen]
)
def test_verdicts(frames: Frames, plan: str, promise: str) -> None:
    for case, found in zip(PLANS[plan][promise], _verdicts(frames, plan)[promise], strict=True):
        assert found == (case.expected, case.crossed), case


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


def _found(frames: Frames, cases: Sequence[Case]) -> list[Found]:
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
        promised=any(case.promises for case in cases),
    )
    return _by_case(found, cases)


def _numbered(events: Iterable[Sequence[Row]]) -> list[Row]:
    """Return the events of all cases: each case is an address."""
    return [
        {"address": at, "number": n, **row} for at, rows in enumerate(events) for n, row in enumerate(rows)
    ]


def _cross_lane(frames: Frames, cases: Sequence[Case]) -> list[Found]:
    """Return what is found in each case across lanes."""
    rings = [case.rings for case in cases]
    settled = ring_numbers.settled(rings) if any(item.regroups for item in rings) else None
    several = repeated_ids.repeated(_frame(frames, cases), 1, settled)
    rules = frames.rules_of(*(case.rules for case in cases))
    names = [f"t{at}" for at in range(len(cases))]
    return _by_case(repeated_ids.cross_lane(several, 1, rules, names), cases)


def _frame(frames: Frames, cases: Sequence[Case]) -> DataFrame:
    """Return the IDs of all cases: each case is an address."""
    return frames.ids(
        *(
            {"address": at, "id_address": at, "out_address": at, "offset": n, "out_offset": n, **row}
            for at, case in enumerate(cases)
            for n, row in enumerate(case.ids)
        )
    )


def _by_case(found: DataFrame, cases: Sequence[Case]) -> list[Found]:
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
    rings: Sequence[Rings] = (Rings.from_settings(0, 1),),
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

"""Originals of inputs that are not accepted, on small frames, without Kafka.

Each case is an address. All cases are judged in one job for each plan that a run may build.
"""

import functools
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from pyspark.sql import Row as SparkRow

from reconcile.anomalies.finders import lost_inputs, originals, ring_ranks
from reconcile.spark.schemas import DIVERTED, EVIDENCE
from tests.reconcile.rows import Frames, cut

Row = dict[str, Any]


class Case(NamedTuple):
    """Accepted IDs, inputs that are not accepted, and the offsets of those that repeat nothing."""

    ids: Sequence[Row]
    inputs: Sequence[Row]
    expected: Sequence[int] = ()
    rules: Row = {}  # noqa: RUF012
    missing: Sequence[tuple[str, int]] | None = None
    """Lost inputs and wrong verdicts, if the case looks at them."""
    events: Sequence[Row] = ()
    grown: Sequence[Row] = ()

    @property
    def plain(self) -> bool:
        return not (self.events or self.grown or any("sequence" in row for row in self.ids))


def _dropped(identifier: bytes, offset: int, **more: Any) -> Row:
    return {"id": identifier, "offset": offset, "fate": None, **more}


def _diverted(offset: int, original: int) -> Row:
    named = {"original": f"t/0/{original}", "original_partition": 0, "original_offset": original}
    return _dropped(b"a", offset, **named, fate=DIVERTED)


def _told(expected: list[int], *events: tuple[int, int, int], **event: Any) -> Case:
    """Return an ID and its resends before and after events: offset of the next input, and sizes before and after."""
    made = [
        {"input_next": offset, "forward_next": 0, "before": before, "after": after, **event}
        for offset, before, after in events
    ]
    return Case([A_AT_1], [_dropped(b"a", 2), _dropped(b"a", 4)], expected, {"largest": 99}, events=made)


def _several(lost: list[tuple[str, int]], wrong: str, **rules: Any) -> Case:
    """Return an original that is earlier, of the same lane or group, not too old, and the one that the row names."""
    inputs = [
        _dropped(b"a", 5), _dropped(b"a", 1), _dropped(b"a", 6, lane=1, group=b"h"), _diverted(7, 2), _diverted(8, 3),
        _dropped(b"a", 9, timestamp=11),
    ]  # fmt: skip
    rules["max_age_ms"] = 10
    return Case([{"id": b"a", "offset": 2}], inputs, [1, 6, 8, 9], rules, sorted([*lost, (wrong, 8)]))


def _each(anomaly: str, *offsets: int) -> list[tuple[str, int]]:
    return [(anomaly, offset) for offset in offsets]


def _handed_on(expected: list[int], *grown: Row) -> Case:
    ids = [
        A_AT_1,
        {"id": b"b", "offset": 3},
        {"id": b"c", "partition": 1, "offset": 9, "forward_offset": 4},
        {"id": b"d", "partition": 1, "offset": 9, "forward_offset": 5},
    ]
    inputs = [
        _dropped(name, 10 * lane + n, partition=lane, lane=lane, group=b"h")
        for lane in (1, 2, 3, 4)
        for n, name in enumerate((b"a", b"b", b"c", b"d"))
    ]
    return Case(ids, inputs, expected, grown=grown)


A_AT_1: Row = {"id": b"a", "offset": 1}
ASKING = [
    _dropped(b"a", 2, partition=1), _dropped(b"a", 9, partition=1), _dropped(b"a", 9), _dropped(b"e", 10, partition=1),
]  # fmt: skip
NUMBERED: list[Row] = [
    {"id": b"a", "sequence": 1, "run": 0},
    {"id": b"b", "partition": 1, "offset": 1, "sequence": 2},
    {"id": b"c", "partition": 1, "offset": 3, "sequence": 3},
    {"id": b"d", "partition": 1, "offset": 5, "sequence": 4},
    {"id": b"e", "offset": 7, "sequence": 5, "out_offset": 8},
]
FELL: list[Row] = [*NUMBERED[:-1], {**NUMBERED[-1], "out_offset": 0}]
TWICE: list[Row] = [{**NUMBERED[0], "sequence": 2}, *NUMBERED[1:]]
OF_TWO: Row = {"largest": 2}
GROWN: Row = {"input_next": 3, "forward_next": 5, "before": 2, "after": 5}
CASES = {
    "several": _several(_each("LOST", 1, 6, 9), "WRONG-VERDICT"),
    "diverted": _several(_each("LOST", 1, 5, 6, 9), "WRONG-VERDICT", divert=True),
    "IDs are gone": _several(_each("GAP", 1, 6, 9), "GAP", evidence_deleted=True),
    # Offset 6 came to lane 1, all IDs of which are known nevertheless.
    "IDs of lane 0 are gone": _several(
        [*_each("GAP", 1, 9), ("LOST", 6)], "GAP", evidence_deleted=True, lanes_whole=[1, 2]
    ),
    # What has a topic is there, whatever is known of IDs; unless that topic's evidence is gone.
    "diverted, and IDs are gone": _several(
        _each("LOST", 1, 5, 6, 9), "GAP", divert=True, evidence_deleted=True
    ),
    "diverted, and outputs are gone": _several(
        _each("GAP", 1, 5, 6, 9), "GAP", divert=True, outputs_gone=True
    ),
    # A ring of two has forgotten an ID two numbers later, by whatever partitions they came.
    "sequence numbers": Case(NUMBERED, ASKING, [9, 9], OF_TWO),
    "numbers that fall prove nothing": Case(FELL, ASKING, rules=OF_TWO),
    "numbers that fall after a run prove nothing": Case(TWICE, ASKING, rules=OF_TWO),
    # An original that stands after a record in the forward topic was accepted after it, from whatever partitions they came.
    "order of the forward topic": Case(
        [{"id": b"a", "partition": 1, "offset": 3, "forward_offset": 7}],
        [_dropped(b"a", 1, partition=2, forward_offset=6), _dropped(b"a", 2, partition=2, forward_offset=8)],
        [1],
    ),
    # An original is gone if its ring was cleared or switched off since; a ring that shrank, or was off earlier, may have it.
    "cleared": _told([4], (4, 9, 9)),
    "shrunk": _told([], (3, 9, 4)),
    "switched off": _told([4], (3, 9, 0)),
    "switched on": _told([2], (3, 0, 9)),
    "cleared before and after": _told([], (0, 9, 9), (9, 9, 9)),
    # A reopened ring that is in memory only is empty, whatever its size. A ring of another size has the newest IDs.
    "in memory only": _told([4], (3, 9, 8), event="forgotten", forward_next=2),
    "resized": _told([], (3, 9, 8), event="resized", forward_next=2),
    # Successor lanes know what their lane knew when the address got more lanes, and nothing later; lanes 2 and 4 succeed lane 0.
    "handed on": _handed_on([10, 11, 12, 13, 21, 23, 30, 31, 32, 33, 41, 43], GROWN),
    "not handed on": _handed_on([10 * lane + n for lane in (1, 2, 3, 4) for n in range(4)]),
}


PLANS = {"all": CASES, "plain": {name: case for name, case in CASES.items() if case.plain}}
SEED = 7
WORLDS = 400
RUN = 1


class Found(NamedTuple):
    """Inputs that repeat no original by any route, of them those that repeat none at all, and anomalies."""

    alone: list[SparkRow]
    orphans: list[SparkRow]
    missing: list[SparkRow]


def _judged(frames: Frames, cases: Sequence[Case]) -> Found:
    """Judge each case as an address."""

    def rows_of(field: str, *addresses: str) -> list[Row]:
        return [
            {"address": at, **dict.fromkeys(addresses, at), "offset": n, "out_offset": n, **row}
            for at, case in enumerate(cases)
            for n, row in enumerate(getattr(case, field))
        ]

    events, grown = (frames.events(*rows) if (rows := rows_of(of)) else None for of in ("events", "grown"))
    ids = cut(frames.ids(*rows_of("ids", "id_address", "out_address")))
    rules = frames.rules_of(*(case.rules for case in cases))
    evidence = cut(frames.evidence(*rows_of("inputs")))
    asking = (
        evidence if all(case.plain for case in cases) else ring_ranks.with_heads(evidence, ids, events, RUN)
    )
    known = cut(originals.with_heirs(ids, grown))
    near = cut(originals.without_near(asking, known, rules, events, RUN))
    alone = cut(originals.without_original(near, known, events, RUN))
    orphans = cut(originals.orphans(alone, known, ids, events, RUN).select(*EVIDENCE.names))
    lost = lost_inputs.lost(lost_inputs.unmatched(evidence), orphans, rules)
    missing = lost.unionByName(lost_inputs.wrong_verdict(orphans, evidence, rules))
    return Found(alone.collect(), orphans.collect(), missing.collect())


@functools.cache
def _found(frames: Frames, plan: str) -> Found:
    """Return what is found in the cases of a plan; with all, the last address has random worlds."""
    cases = [*PLANS[plan].values()]
    return _judged(frames, cases if plan == "plain" else [*cases, _worlds()])


@pytest.mark.parametrize(("plan", "name"), [(plan, name) for plan, cases in PLANS.items() for name in cases])
def test_originals(frames: Frames, plan: str, name: str) -> None:
    case, found = PLANS[plan][name], _found(frames, plan)
    at = [*PLANS[plan]].index(name)

    assert sorted(row["offset"] for row in found.orphans if row["address"] == at) == [*case.expected]
    if case.missing is not None:
        missing = sorted((row["anomaly"], row["offset"]) for row in found.missing if row["address"] == at)
        assert missing == case.missing


@functools.cache
def _worlds() -> Case:
    """Return many small histories, one for each ID."""
    rng = random.Random(SEED)
    ids: list[Row] = []
    inputs: list[Row] = []
    for world in range(WORLDS):
        places = rng.sample(range(40), 8)
        rows = [_row(rng, b"%d" % world, world * 100 + place) for place in places]
        ids += [{**row, "run": rng.choice((RUN - 1, RUN, RUN))} for row in rows[:4]]
        inputs += [_said(rng, row, ids[-4:]) for row in rows[4:]]
    told = {"input_next": WORLDS * 50, "forward_next": WORLDS * 50, "before": 9, "after": 9}
    return Case(ids, inputs, rules={"max_age_ms": 5, "largest": 9}, events=[told])


def test_like_each_pair(frames: Frames) -> None:
    """The finder agrees with a comparison of each pair, over many small histories, one for each ID.

    They vary lanes, inputs, runs, ages, groups and named originals; times are not in the order of places.
    """
    case, at = _worlds(), len(CASES)
    alone = {(row["partition"], row["offset"]) for row in _found(frames, "all").alone if row["address"] == at}
    by_id: dict[bytes, list[Row]] = defaultdict(list)
    for row in case.ids:
        by_id[row["id"]].append(row)
    expected = [
        item
        for item in case.inputs
        if not any(_repeats(item, one, **case.rules) for one in by_id[item["id"]])
    ]
    assert alone == {(item["partition"], item["offset"]) for item in expected}
    assert 100 < len(alone) < len(case.inputs) - 100


def _row(rng: random.Random, id_: bytes, place: int) -> dict[str, Any]:
    """Return a row in one of two lanes, at a place of its own: of the forward topic, if it is forwarded."""
    lane, partition = rng.randrange(2), rng.randrange(2)
    group = rng.randrange(3)
    forwarded = place if lane != partition or rng.random() < 0.2 else None
    return {
        "id": id_, "lane": lane, "partition": partition, "offset": place, "forward_offset": forwarded, "timestamp": rng.randrange(20),
        "group": b"%d" % group, "home_digest": group, "group_digest": group,
    }  # fmt: skip


def _said(rng: random.Random, row: dict[str, Any], ids: list[dict[str, Any]]) -> dict[str, Any]:
    kept = {name: item for name, item in row.items() if name != "group_digest"} | {"fate": None}
    if rng.random() < 0.7:
        return kept
    original = rng.choice(ids)
    return kept | {
        "original": "said", "original_partition": original["partition"], "original_offset": original["offset"],
    }  # fmt: skip


def _repeats(one: dict[str, Any], other: dict[str, Any], max_age_ms: int, largest: int) -> bool:
    """Whether ``other`` is an original of ``one``, by the rule in the documents."""

    def way(row: dict[str, Any]) -> bool:
        return row["forward_offset"] is not None

    def emptied(row: dict[str, Any]) -> bool:
        return bool(row["lane"] == 0 and row["offset"] >= WORLDS * 50)

    if "original" in one and (one["original_partition"], one["original_offset"]) != (
        other["partition"],
        other["offset"],
    ):
        return False
    same_lane = one["lane"] == other["lane"]
    same_way = same_lane and way(one) == way(other)
    if not same_lane and one["home_digest"] != other["home_digest"]:
        return False
    if same_lane and emptied(one) != emptied(other):
        return False
    earlier: bool = one["offset"] > other["offset"] or (
        not same_way and one["partition"] != other["partition"]
    )
    near: bool = not same_way or one["offset"] - other["offset"] <= largest
    before: bool = other["run"] < RUN or earlier
    young: bool = one["timestamp"] - other["timestamp"] <= max_age_ms
    return before and young and near

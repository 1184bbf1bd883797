"""Records that came over bridges, as the reconciliation reads and follows them: on small frames, without Kafka."""

import functools
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from agents.decision.bridge_headers import MalformedHopError, read_headers
from reconcile.anomalies.finders import bridge_hops, lost_inputs
from reconcile.anomalies.names import Anomaly, rows
from reconcile.run.frames import distributions, hops
from reconcile.spark import hops as read_hops
from reconcile.spark.columns import small
from reconcile.spark.envelopes import HEADERS
from reconcile.spark.schemas import DIVERTED, HOPS, QUARANTINED
from tests.reconcile.rows import Frames, cut, named, offsets
from tests.unit.agents.decision.test_decide import Given

SOURCE = "b/AAAAAAAAAAAAAAAAAAAAAA/0"
Headers = list[tuple[str, bytes | None]]
Found = list[tuple[str, int]]
"""Anomalies and offsets, in order."""
PIECES = (
    b"b", b"to-paris.1_x", b"", b"b b", b"A" * 22, b"A" * 21, b"-_" * 11, b"0", b"7", b"07", b"-1", b"2147483647", b"2147483648",
    b"9223372036854775806", b"9223372036854775807", b"9223372036854775808", b"99999999999999999999", b"7\n", b"\xff", "٣".encode(),
)  # fmt: skip
NUMBERS = (None, b"", b"0", b"7", b"8", b"07", b"7 ", b"x", b"9223372036854775806", b"99999999999999999999")
WORDS = (None, b"", b"ignore", b"Ignore", b"check", b"ignore\n")


def _headers(dice: random.Random) -> Headers:
    """Draw the headers of a bridge, mostly with one error."""
    pieces = [b"b", b"A" * 22, b"0", b"7"]
    if dice.random() < 0.5:
        pieces[dice.randrange(4)] = dice.choice(PIECES)
    hop: bytes | None = b"/".join(pieces)
    if dice.random() < 0.1:
        hop = dice.choice([None, b"", b"/" + b"/".join(pieces), b"/".join(pieces[1:])])
    found: Headers = [("_RF_BRIDGE_DUPL_ID", hop)]
    if dice.random() < 0.5:
        found.append(("_RF_BRIDGE_CONFIRMED", dice.choice(NUMBERS)))
    if dice.random() < 0.4:
        found.append(("_RF_BRIDGE_IDS", dice.choice(WORDS)))
    found += [("_RF_HOPS", dice.choice([None, b"berlin"]))] * dice.randrange(3)
    if dice.random() < 0.1:
        found.insert(0, ("_RF_BRIDGE_DUPL_ID", b"of repeats the last counts"))
    return found


def test_as_workers_read_them(spark: SparkSession) -> None:
    """The run reads source, offset, confirmation, use of the own ID and refusals as a lane does."""
    dice = random.Random(37)
    made = [_headers(dice) for _ in range(800)]
    over_none: Headers = [
        ("_RF_BRIDGE_CONFIRMED", b"x"),
        ("_RF_BRIDGE_IDS", b"ignore"),
        ("_RF_HOPS", b"berlin"),
    ]
    *found, other = _read(spark, *made, over_none)

    refused = 0
    for row, headers in zip(found, made, strict=True):
        try:
            step = read_headers(Given(0, None, headers))
        except MalformedHopError:
            refused += 1
            assert (row["hop_source"], row["ids_ignored"]) == (read_hops.MALFORMED, True), headers
            continue
        source = "/".join(map(str, step.hop.source))
        assert (row["hop_source"], row["hop_offset"], row["hop_confirmed"], row["ids_ignored"]) == (
            source, step.hop.offset, step.confirmed, step.ids_ignored,
        ), headers  # fmt: skip
        assert (row["passed_digest"] is None) == (not step.kept)
    assert 100 < refused < 700
    # Without a hop no other header of a bridge is read.
    names = ("hop_source", "hop_offset", "hop_confirmed", "passed_digest", "ids_ignored")
    assert [other[name] for name in names] == [None, None, None, None, False]


def _read(spark: SparkSession, *several: Headers) -> list[Row]:
    frame = spark.createDataFrame([*enumerate(several)], f"number int, headers {HEADERS}")
    return read_hops.with_hops(frame).withColumn("left", read_hops.left_behind()).orderBy("number").collect()


def _hop(offset: int, hop: int, confirmed: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "offset": offset, "hop_source": SOURCE, "hop_offset": hop, "hop_confirmed": confirmed, "id": None, **more,
    }  # fmt: skip


def _followed(
    frames: Frames, *made: dict[str, Any], kept: DataFrame | None = None, events: DataFrame | None = None
) -> DataFrame:
    return cut(hops.followed(frames.evidence(*made), kept, events))


def _again(followed: DataFrame, size: Column) -> DataFrame:
    found = bridge_hops.again(followed, size)
    return bridge_hops.forgotten(found, followed).unionByName(bridge_hops.apart(found, followed))


NOTHING: dict[str, Any] = {"fate": None}


class Case(NamedTuple):
    """Records that came over a bridge; what is found of them, if the case looks at it."""

    sent: Sequence[dict[str, Any]]
    resent: Sequence[int] = ()
    """Offsets of known hops, each part once."""
    again: Found | None = None
    missing: Found | None = None
    """Lost inputs, and wrong verdicts."""
    handed_on: Sequence[dict[str, Any]] | None = None
    """Hops for later runs: at most ``size`` of a route."""
    size: int = 20_000
    events: Sequence[dict[str, Any]] = ()
    kept: Sequence[dict[str, Any]] = ()
    rules: dict[str, Any] = {}  # noqa: RUF012


def _by_another_way(**other: Any) -> Case:
    return Case([_hop(0, 5, **other), _hop(1, 9, 8, **other), _hop(2, 5, **NOTHING), _hop(3, 7, **NOTHING)])


def _cleared(**event: Any) -> list[dict[str, Any]]:
    return [{"input_next": 2, "forward_next": 0, "before": 7, "after": 7, "event": "cleared", **event}]


def _ordered(resent: list[int], again: list[str], **event: Any) -> Case:
    """Return hops before and after an event; those of offsets 3 and 5 are accepted again."""
    sent = [_hop(0, 5), _hop(1, 9, 8), _hop(2, 5, **NOTHING), _hop(3, 9), _hop(4, 9, **NOTHING), _hop(5, 7)]
    found = sorted((name, 3 + 2 * n) for n, name in enumerate(again))
    return Case(sent, resent, found, events=_cleared(**event))


def _kept(hop: int | None, confirmed: int | None, offset: int, accepted: bool | None) -> dict[str, Any]:
    return {
        "lane": 0, "hop_source": SOURCE, "partition": 0, "offset": offset, "hop_offset": hop, "hop_confirmed": confirmed,
        "accepted": accepted,
    }  # fmt: skip


def _diverted(*wrong: int, **rules: Any) -> Case:
    original: dict[str, Any] = {"original": "t/0/0", "original_partition": 0, "original_offset": 0}
    sent = [
        _hop(0, 5),
        _hop(1, 5, fate=DIVERTED),
        _hop(2, 5, fate=DIVERTED, **original),
        _hop(3, 6, fate=DIVERTED),
    ]
    return Case(sent, [1], missing=[("WRONG-VERDICT", offset) for offset in wrong], rules=rules)


THERE: dict[str, Any] = {"partition": 1, "forward_offset": 3}
ENVELOPES = [
    {**_hop(offset, 5), "parts": 1, "part_number": part, "fate": None} for offset in (0, 1) for part in (0, 1)
]
CONFIRMED = [_hop(0, 9, 8), _hop(1, 7), _hop(2, 9)]
HIGHER = [_hop(0, 5), _hop(1, 6), _hop(2, 7), _hop(3, 7), _hop(4, 5)]
OF_OLD = [_kept(None, 8, -1, None), _kept(9, None, -1, True)]
ANEW = [_hop(0, 7, **NOTHING), _hop(1, 9), _hop(2, 9, **NOTHING)]
MANY = [
    _hop(0, 90), _hop(1, 5, 3), _hop(2, 2, 1, **NOTHING), _hop(3, 7, 4), _hop(4, 8, 4), _hop(5, 5, 0, **NOTHING),
    _hop(6, 30, fate=QUARANTINED), _hop(7, 40, 40, waiting=True, **NOTHING),
]  # fmt: skip
HANDED_ON = [
    _kept(30, None, 6, False),
    _kept(5, None, 1, True),
    _kept(7, None, 3, True),
    _kept(8, None, 4, True),
    _kept(None, 4, 4, None),
]
KEPT = (*_kept(0, 0, 0, None),)
CASES = {
    # A hop is known if an earlier record has it or confirms it, even one in quarantine; later and waiting records do not count.
    "a way": Case(
        [
            _hop(0, 5, **NOTHING), _hop(1, 9, 8), _hop(2, 7, **NOTHING), _hop(3, 9, **NOTHING), _hop(4, 8, **NOTHING), _hop(5, 8, **NOTHING),
            _hop(6, 20, fate=QUARANTINED), _hop(7, 20, **NOTHING),
            _hop(8, 30, waiting=True, **NOTHING), _hop(9, 30, waiting=True, **NOTHING),
        ],
        [2, 3, 5, 7],
        missing=[("LOST", 0), ("LOST", 4)],
    ),
    "another lane": _by_another_way(lane=1),
    "another address": _by_another_way(address=1),
    "another source": _by_another_way(hop_source=f"{SOURCE[:-1]}1"),
    # A lane knows the hops of another partition whose outputs show that they came, but not the confirmations there.
    "another partition": Case(
        [
            _hop(0, 5, **THERE), _hop(1, 9, 8, **THERE), _hop(2, 6, **THERE, **NOTHING),
            _hop(3, 5, **NOTHING), _hop(4, 6, **NOTHING), _hop(5, 7, **NOTHING),
        ],
        [2, 3],
    ),
    # A quarantined record has come: if it were accepted again, it would come twice. A later run knows it as well.
    "refused": Case(
        [
            _hop(0, 5, fate=QUARANTINED), _hop(1, 5), _hop(2, 6, fate=QUARANTINED), _hop(3, 6, fate=QUARANTINED),
            _hop(4, 9, 8, fate=QUARANTINED), _hop(5, 7),
        ],
        again=[("FORGOTTEN", 1), ("FORGOTTEN", 5)],
        handed_on=[_kept(9, None, 4, False), _kept(None, 8, 4, None)],
    ),
    # No part of an envelope precedes another; all parts of a resend are known.
    "parts are one hop": Case(ENVELOPES, [1, 1]),
    # A record diverted for its hop names no original; a diverted unknown hop without an ID is a wrong verdict.
    "diverted": _diverted(2, 3),
    "diverted where hops are not checked": _diverted(1, 2, 3, detects=False),
    # A cleared hop is forgotten, and a hop in memory only may be: both are excused. Another size keeps the confirmed hops.
    "ring cleared": _ordered([2, 4], ["FORGOTTEN", "FORGOTTEN"]),
    "hops cleared": _ordered([4], ["OVERRUN", "OVERRUN"], of_hops=True),
    "in memory only": _ordered([2, 4], ["OVERRUN", "OVERRUN"], event="forgotten"),
    "resized": _ordered([2, 4], ["OVERRUN", "FORGOTTEN"], event="resized", after=8),
    "switched off": _ordered([], [], event="resized", after=0),
    # A hop memory that is off notes nothing, in this run or a later one.
    "off and on": Case(
        [_hop(0, 5), _hop(1, 9, 8), _hop(2, 5), _hop(3, 7, **NOTHING)],
        again=[],
        handed_on=[_kept(5, None, 2, True), _kept(7, None, 3, False), _kept(None, 0, 3, None)],
        events=[
            {"input_next": 0, "forward_next": 0, "before": 7, "after": 0, "event": "resized"},
            {"input_next": 2, "forward_next": 0, "before": 0, "after": 7, "event": "resized"},
        ],
    ),
    # An unknown hop may have come until a lower one of its route is accepted; from there on a missing one is lost.
    "evidence is gone": Case(
        [
            _hop(0, 5, **NOTHING), _hop(1, 6), _hop(2, 5, **NOTHING), _hop(3, 7, **NOTHING), _hop(4, 8, id=b"x", **NOTHING),
            _hop(5, 9, hop_source=f"{SOURCE[:-1]}1", **NOTHING),
        ],
        [2],
        missing=[("GAP", 0), ("GAP", 2), ("GAP", 4), ("GAP", 5), ("LOST", 3)],
        rules={"evidence_deleted": True, "detects": False},
    ),
    # Hops kept from the old input are known and precede all of the new one.
    "created again": Case(ANEW, [0, 2], [("OVERRUN", 1)], kept=OF_OLD),
    "created again, and cleared": Case(ANEW, [2], kept=OF_OLD, events=_cleared(input_next=0, of_hops=True)),
    # A known or confirmed hop that is accepted again is OVERRUN only if higher unconfirmed hops pushed it out.
    "confirmed": Case(CONFIRMED, again=[("FORGOTTEN", 1), ("FORGOTTEN", 2)], size=1),
    "no ring": Case(CONFIRMED, again=[], size=0),
    "higher ones": Case(HIGHER, again=[("FORGOTTEN", 3), ("OVERRUN", 4)], size=2),
    "higher ones in a larger ring": Case(HIGHER, again=[("FORGOTTEN", 3), ("FORGOTTEN", 4)], size=3),
    # A run hands on, for each route, the largest confirmed hop and the highest above it, refused ones too, but no waiting or forgotten hop.
    "many handed on": Case(MANY, [2, 5], handed_on=HANDED_ON, size=9, events=_cleared(input_next=1, of_hops=True)),
    "one handed on": Case(
        MANY, [2, 5], handed_on=[HANDED_ON[0], HANDED_ON[-1]], size=1, events=_cleared(input_next=1, of_hops=True)
    ),
    "a later run": Case(
        [_hop(0, 3, **NOTHING), _hop(1, 8), _hop(2, 9, **NOTHING)], [0], [("FORGOTTEN", 1)], kept=HANDED_ON
    ),
    "a run without any": Case([], handed_on=HANDED_ON, kept=HANDED_ON, size=9),
}  # fmt: skip
PLANS = {
    "all": CASES,
    "plain": {name: case for name, case in CASES.items() if not (case.events or case.kept)},
}


@functools.cache
def _found(frames: Frames, plan: str) -> dict[str, dict[str, list[Any]]]:
    """Return what is found in each case: each has two addresses."""
    cases = PLANS[plan]

    def rows_of(field: str) -> list[dict[str, Any]]:
        return [
            {**row, "address": 2 * at + row.get("address", 0)}
            for at, case in enumerate(cases.values())
            for row in getattr(case, field)
        ]

    kept, events = rows_of("kept"), rows_of("events")
    followed = _followed(
        frames, *rows_of("sent"), kept=frames.hops(*kept) if kept else None, events=frames.events(*events) if events else None
    )  # fmt: skip
    sizes = distributions.by_address([case.size for case in cases.values() for _ in range(2)])
    rules = frames.rules_of(*({"address": 2 * at, **case.rules} for at, case in enumerate(cases.values())))
    evidence, nothing = hops.evidence_of(followed), frames.evidence()
    missing = lost_inputs.lost(lost_inputs.unmatched(evidence), nothing, rules)
    found = {
        "resent": followed.where("resent"),
        "again": _again(followed, sizes),
        "missing": missing.unionByName(lost_inputs.wrong_verdict(nothing, evidence, rules)),
        "handed_on": hops.kept_on(followed, sizes),
    }
    collected = {name: frame.collect() for name, frame in found.items()}
    assert found["handed_on"].columns == HOPS.names

    def of(field: str, at: int) -> list[Row]:
        return [row for row in collected[field] if row["address"] // 2 == at]

    return {
        name: {
            "resent": sorted(row["offset"] for row in of("resent", at)),
            **{kind: sorted((row["anomaly"], row["offset"]) for row in of(kind, at)) for kind in ("again", "missing")},
            "handed_on": sorted(({key: row[key] for key in KEPT} for row in of("handed_on", at)), key=_by_hop),
        }
        for at, name in enumerate(cases)
    }  # fmt: skip


def _by_hop(row: dict[str, Any]) -> str:
    return str(row["hop_offset"])


@pytest.mark.parametrize(("plan", "name"), [(plan, name) for plan, cases in PLANS.items() for name in cases])
def test_followed(frames: Frames, plan: str, name: str) -> None:
    """The run finds the resends, anomalies and kept hops of a case, also with cases that have neither events nor kept hops."""
    for kind, found in _found(frames, plan)[name].items():
        expected = getattr(PLANS[plan][name], kind)
        assert expected is None or found == [*expected], kind


def test_new_lanes_know_what_their_lane_knew(frames: Frames) -> None:
    """A growth copies hops to new lanes, which ignore them when they come again, unless the old lane forgot them before."""
    old = [_hop(4, 5), _hop(5, 6, fate=QUARANTINED), _hop(6, 7, **NOTHING)]
    new = [_hop(at, 5 + at, lane=3, partition=3, **NOTHING) for at in range(4)]
    growth: dict[str, Any] = {
        "number": 7,
        "input_next": 7,
        "forward_next": 0,
        "event": "grown",
        "before": 1,
        "after": 2,
    }
    again = {**growth, "number": 9, "before": 2, "after": 4}
    cleared = {**growth, "number": 8, "event": "cleared", "before": 7, "of_hops": True}
    twice, forgotten, from_another = range(3)
    evidence = frames.evidence(*({**row, "address": at} for at in range(3) for row in (*old, *new)))
    grown = [(twice, growth), (twice, again), (forgotten, growth), (forgotten, again), (from_another, again)]
    events = frames.events({**cleared, "address": forgotten})
    followed = cut(
        hops.followed(evidence, None, events, frames.events(*({**row, "address": at} for at, row in grown)))
    )

    resent = followed.where("resent and lane = 3").select("address", "offset").collect()
    assert sorted(map(tuple, resent)) == [(twice, 0), (twice, 1)]


@pytest.mark.long
def test_what_is_lost_makes_no_hop_known(spark: SparkSession, frames: Frames) -> None:
    """A lost hop is LOST alone and may be accepted later, in this run and in a later one. A duplicate by its own ID makes its hop known."""
    followed = _followed(
        frames,
        _hop(0, 5, **NOTHING), _hop(1, 5),
        _hop(2, 6, id=b"known", **NOTHING), _hop(3, 6),
        _hop(4, 7, id=b"new", **NOTHING), _hop(5, 7),
        _hop(6, 8, **NOTHING),
    )  # fmt: skip
    lost_ones = hops.lost(followed, frames.evidence({"offset": 4}), F.lit(True))
    told = cut(hops.without_lost(followed, lost_ones))

    assert sorted(row["offset"] for row in lost_ones.collect()) == [0, 4, 6]
    assert named(_again(followed, F.lit(9))) == [("FORGOTTEN", 1), ("FORGOTTEN", 3), ("FORGOTTEN", 5)]
    assert (offsets(told.where("resent")), named(_again(told, F.lit(9)))) == ([], [("FORGOTTEN", 3)])
    before = small(spark, [tuple(row) for row in hops.kept_on(told, F.lit(9)).collect()], HOPS)
    later = _followed(frames, _hop(7, 8), _hop(8, 7), _hop(9, 8, **NOTHING), kept=before)
    assert (offsets(later.where("resent")), named(_again(later, F.lit(9)))) == ([9], [("FORGOTTEN", 8)])


def test_named_once(frames: Frames) -> None:
    """A record that is named for its hop is not named for its ID besides, unless the former is excused."""
    by_id = rows(
        frames.evidence({"offset": 3}, {"offset": 4}, {"offset": 5}), Anomaly.FORGOTTEN, F.lit("text")
    )
    of_hops = rows(frames.evidence({"offset": 3}), Anomaly.FORGOTTEN, F.lit("text")).unionByName(
        rows(frames.evidence({"offset": 4}), Anomaly.OVERRUN, F.lit("text"))
    )

    assert named(bridge_hops.others(by_id, of_hops)) == [("FORGOTTEN", 4), ("FORGOTTEN", 5)]

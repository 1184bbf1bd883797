"""Records that came over bridges, as the reconciliation reads and follows them: on small frames, without Kafka."""

import random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from agents.decision.bridge_headers import MalformedHopError, read
from reconcile.anomalies.finders import bridge_hops, lost_inputs
from reconcile.anomalies.names import Anomaly, rows
from reconcile.run.frames import evidence as ev
from reconcile.run.frames import hops
from reconcile.spark import hops as read_hops
from reconcile.spark.columns import small
from reconcile.spark.schemas import DIVERTED, EVIDENCE, HOPS, QUARANTINED
from tests.reconcile.rows import Frames, cut, named
from tests.unit.agents.decision.test_decide import Given

SOURCE = "b/AAAAAAAAAAAAAAAAAAAAAA/0"
PIECES = (
    b"b", b"to-paris.1_x", b"", b"b b", b"A" * 22, b"A" * 21, b"-_" * 11, b"0", b"7", b"07", b"-1", b"2147483647", b"2147483648",
    b"9223372036854775806", b"9223372036854775807", b"9223372036854775808", b"99999999999999999999", b"7\n", b"\xff", "٣".encode(),
)  # fmt: skip
NUMBERS = (None, b"", b"0", b"7", b"8", b"07", b"7 ", b"x", b"9223372036854775806", b"99999999999999999999")
WORDS = (None, b"", b"ignore", b"Ignore", b"check", b"ignore\n")


def _headers(dice: random.Random) -> list[tuple[str, bytes | None]]:
    """Draw the headers of a bridge, mostly with one error."""
    pieces = [b"b", b"A" * 22, b"0", b"7"]
    if dice.random() < 0.5:
        pieces[dice.randrange(4)] = dice.choice(PIECES)
    hop: bytes | None = b"/".join(pieces)
    if dice.random() < 0.1:
        hop = dice.choice([None, b"", b"/" + b"/".join(pieces), b"/".join(pieces[1:])])
    found: list[tuple[str, bytes | None]] = [("_RF_BRIDGE_DUPL_ID", hop)]
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
    schema = "number int, headers array<struct<key:string,value:binary>>"
    found = (
        read_hops.with_hops(spark.createDataFrame(list(enumerate(made)), schema)).orderBy("number").collect()
    )

    refused = 0
    for row, headers in zip(found, made, strict=True):
        try:
            step = read(Given(0, None, headers))
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


def test_over_no_bridge(spark: SparkSession) -> None:
    """The run reads no other bridge header of a record without a hop."""
    headers = [("_RF_BRIDGE_CONFIRMED", b"x"), ("_RF_BRIDGE_IDS", b"ignore"), ("_RF_HOPS", b"berlin")]
    schema = "headers array<struct<key:string,value:binary>>"
    [row] = read_hops.with_hops(spark.createDataFrame([(headers,)], schema)).collect()

    assert (row["hop_source"], row["hop_offset"], row["hop_confirmed"], row["passed_digest"]) == (None,) * 4
    assert row["ids_ignored"] is False


def test_headers_that_are_left(spark: SparkSession) -> None:
    """An accepted record may keep the last header of its passed members; any other bridge header is one too many."""
    passed, other = ("_RF_HOPS", b"berlin"), ("_RF_HOPS", None)
    hop = ("_RF_BRIDGE_DUPL_ID", b"%b/7" % SOURCE.encode())
    left = ("_RF_BRIDGE_IDS", b"ignore")
    schema = "headers array<struct<key:string,value:binary>>"

    def asked(*headers: tuple[str, bytes | None]) -> Any:
        frame = spark.createDataFrame([([hop, *headers],)], schema)
        return read_hops.with_hops(frame).collect()[0]["passed_digest"]

    def got(*headers: tuple[str, bytes | None]) -> Any:
        frame = spark.createDataFrame([([("user", b"x"), ("_RF_SOURCE", b"t/0/1"), *headers],)], schema)
        return frame.select(read_hops.left_behind().alias("found")).collect()[0]["found"]

    assert asked(other, passed) == asked(passed) == got(passed) != asked(other) == got(other)
    assert asked() is got() is None
    assert (
        len({got(passed), got(passed, passed), got(left), got(passed, left), got(other, passed), None}) == 6
    )


def _hop(offset: int, hop: int, confirmed: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "offset": offset, "hop_source": SOURCE, "hop_offset": hop, "hop_confirmed": confirmed, "id": None, **more,
    }  # fmt: skip


def _followed(
    frames: Frames, *made: dict[str, Any], kept: DataFrame | None = None, events: DataFrame | None = None
) -> DataFrame:
    return cut(hops.followed(frames.evidence(*made), kept, events))


def _resent(followed: DataFrame) -> list[int]:
    return sorted(row["offset"] for row in followed.where("resent and part_number = 0").collect())


def _again(followed: DataFrame, size: int = 20_000) -> list[tuple[str, int | None]]:
    found = bridge_hops.again(followed, F.lit(size))
    return sorted(
        [*named(bridge_hops.forgotten(found, followed)), *named(bridge_hops.apart(found, followed))]
    )


NOTHING: dict[str, Any] = {"fate": None}


def test_a_way(frames: Frames) -> None:
    """A hop is known if an earlier record has it or confirms it, even one in quarantine; later and waiting records do not count."""
    followed = _followed(
        frames,
        _hop(0, 5, **NOTHING), _hop(1, 9, 8), _hop(2, 7, **NOTHING), _hop(3, 9, **NOTHING), _hop(4, 8, **NOTHING), _hop(5, 8, **NOTHING),
        _hop(6, 20, fate=QUARANTINED), _hop(7, 20, **NOTHING),
        _hop(8, 30, waiting=True, **NOTHING), _hop(9, 30, waiting=True, **NOTHING),
    )  # fmt: skip

    assert _resent(followed) == [2, 3, 5, 7]
    assert named(lost_inputs.lost(lost_inputs.unmatched(hops.evidence_of(followed)), frames.evidence(), frames.rules())) == [
        ("LOST", 0), ("LOST", 4),
    ]  # fmt: skip


@pytest.mark.parametrize("other", [{"lane": 1}, {"address": 1}, {"hop_source": "b/AAAAAAAAAAAAAAAAAAAAAA/1"}])
def test_other_ways(frames: Frames, other: dict[str, Any]) -> None:
    followed = _followed(
        frames, _hop(0, 5, **other), _hop(1, 9, 8, **other), _hop(2, 5, **NOTHING), _hop(3, 7, **NOTHING)
    )

    assert _resent(followed) == []


def test_another_partition(frames: Frames) -> None:
    """A lane knows the hops of another partition whose outputs show that they came, but not the confirmations there."""
    there: dict[str, Any] = {"partition": 1, "forward_offset": 3}
    followed = _followed(
        frames,
        _hop(0, 5, **there), _hop(1, 9, 8, **there), _hop(2, 6, **there, **NOTHING),
        _hop(3, 5, **NOTHING), _hop(4, 6, **NOTHING), _hop(5, 7, **NOTHING),
    )  # fmt: skip

    assert _resent(followed) == [2, 3]


def test_refused(frames: Frames) -> None:
    """A quarantined record has come: if it were accepted again, it would come twice. A later run knows it as well."""
    followed = _followed(
        frames,
        _hop(0, 5, fate=QUARANTINED), _hop(1, 5), _hop(2, 6, fate=QUARANTINED), _hop(3, 6, fate=QUARANTINED),
        _hop(4, 9, 8, fate=QUARANTINED), _hop(5, 7),
    )  # fmt: skip

    assert _again(followed) == [("FORGOTTEN", 1), ("FORGOTTEN", 5)]
    kept = [(row["hop_offset"], row["hop_confirmed"]) for row in hops.kept_on(followed, F.lit(9)).collect()]
    assert sorted(kept, key=str) == [(9, None), (None, 8)]


def test_refused_by_another_partition(frames: Frames) -> None:
    followed = _followed(
        frames, _hop(0, 5, fate=QUARANTINED, partition=1, forward_offset=3), _hop(3, 5, **NOTHING)
    )

    assert _resent(followed) == [3]


def test_parts_are_one_hop(frames: Frames) -> None:
    """No part of an envelope precedes another; all parts of a resend are known."""
    envelopes = [
        {**_hop(offset, 5), "parts": 1, "part_number": part, "fate": None}
        for offset in (0, 1)
        for part in (0, 1)
    ]
    known = _followed(frames, *envelopes).where("resent").collect()

    assert sorted((row["offset"], row["part_number"]) for row in known) == [(1, 0), (1, 1)]


def test_diverted(frames: Frames) -> None:
    """A record diverted for its hop names no original; a diverted unknown hop without an ID is a wrong verdict.

    If the address does not check hops, each of them is a wrong verdict.
    """
    original: dict[str, Any] = {"original": "t/0/0", "original_partition": 0, "original_offset": 0}
    followed = _followed(
        frames,
        _hop(0, 5),
        _hop(1, 5, fate=DIVERTED),
        _hop(2, 5, fate=DIVERTED, **original),
        _hop(3, 6, fate=DIVERTED),
    )
    evidence = hops.evidence_of(followed)

    def wrong(**rules: Any) -> list[tuple[str, int | None]]:
        return named(lost_inputs.wrong_verdict(frames.evidence(), evidence, frames.rules(**rules)))

    assert _resent(followed) == [1]
    assert wrong() == [("WRONG-VERDICT", 2), ("WRONG-VERDICT", 3)]
    assert wrong(detects=False) == [("WRONG-VERDICT", 1), ("WRONG-VERDICT", 2), ("WRONG-VERDICT", 3)]


@pytest.mark.long
def test_orders(frames: Frames) -> None:
    """A cleared hop is forgotten, and a hop in memory only may be: both are excused. Another size keeps the confirmed hops."""
    sent = [_hop(0, 5), _hop(1, 9, 8), _hop(2, 5, **NOTHING), _hop(3, 9), _hop(4, 9, **NOTHING), _hop(5, 7)]
    cleared = {"input_next": 2, "forward_next": 0, "before": 7, "after": 7, "event": "cleared"}

    def told(**event: Any) -> DataFrame:
        return _followed(frames, *sent, events=frames.events({**cleared, **event}))

    for event, resent, again in (
        ({}, [2, 4], ["FORGOTTEN", "FORGOTTEN"]),
        ({"of_hops": True}, [4], ["OVERRUN", "OVERRUN"]),
        ({"event": "forgotten"}, [2, 4], ["OVERRUN", "OVERRUN"]),
        ({"event": "resized", "after": 8}, [2, 4], ["OVERRUN", "FORGOTTEN"]),
        ({"event": "resized", "after": 0}, [], []),
    ):  # fmt: skip
        followed = told(**event)
        assert _resent(followed) == resent, event
        assert sorted(_again(followed), key=_offset) == [(name, 3 + 2 * n) for n, name in enumerate(again)], (
            event
        )
    assert _resent(told(of_hops=True, lane=1)) == [2, 4]


def _offset(found: tuple[str, int | None]) -> int:
    return found[1] or 0


def test_off_and_on(frames: Frames) -> None:
    """A hop memory that is off notes nothing: no hop or confirmation makes a later one known, in this run or a later one."""
    sizes = [
        {"input_next": 0, "forward_next": 0, "before": 7, "after": 0, "event": "resized"},
        {"input_next": 2, "forward_next": 0, "before": 0, "after": 7, "event": "resized"},
    ]
    followed = _followed(
        frames, _hop(0, 5), _hop(1, 9, 8), _hop(2, 5), _hop(3, 7, **NOTHING), events=frames.events(*sizes)
    )

    assert (_resent(followed), _again(followed)) == ([], [])
    assert [row["hop_offset"] for row in hops.kept_on(followed, F.lit(9)).orderBy("hop_offset").collect()] == [
        None, 5, 7,
    ]  # fmt: skip


def test_where_evidence_is_gone(frames: Frames) -> None:
    """An unknown hop may have come until a lower one of its route is accepted; from there on a missing one is lost."""
    followed = _followed(
        frames,
        _hop(0, 5, **NOTHING), _hop(1, 6), _hop(2, 5, **NOTHING), _hop(3, 7, **NOTHING), _hop(4, 8, id=b"x", **NOTHING),
        _hop(5, 9, hop_source=SOURCE[:-1] + "1", **NOTHING),
    )  # fmt: skip
    missing = lost_inputs.unmatched(hops.evidence_of(followed))
    rules = frames.rules(ids_gone=True, detects=False)

    assert named(lost_inputs.lost(missing, frames.evidence(), rules)) == [
        ("GAP", 0), ("GAP", 2), ("GAP", 4), ("GAP", 5), ("LOST", 3),
    ]  # fmt: skip


def test_more_than_fits(frames: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane keeps no more hops of a route than fit into a record, however large the ring is."""
    monkeypatch.setattr(bridge_hops, "KEPT_MAX", 2)
    followed = _followed(frames, _hop(0, 5), _hop(1, 6), _hop(2, 7), _hop(3, 5), _hop(4, 6))

    assert _again(followed, 9) == [("FORGOTTEN", 4), ("OVERRUN", 3)]


def test_an_input_that_was_created_again(frames: Frames, spark: SparkSession) -> None:
    """Hops kept from the old input are known and precede all of the new one; the run expects no verdict from them."""
    kept = small(
        spark,
        [
            (0, 0, SOURCE, 0, -1, None, None, 8, None, None),
            (0, 0, SOURCE, 0, -1, None, 9, None, True, None),
        ],
        HOPS,
    )
    event = {"input_next": 0, "forward_next": 0, "before": 7, "after": 7, "event": "cleared", "of_hops": True}
    sent = [_hop(0, 7, **NOTHING), _hop(1, 9), _hop(2, 9, **NOTHING)]
    followed = _followed(frames, *sent, kept=kept)

    assert (_resent(followed), _again(followed)) == ([0, 2], [("OVERRUN", 1)])
    assert _resent(_followed(frames, *sent, kept=kept, events=frames.events(event))) == [2]


@pytest.mark.long
def test_all_again(spark: SparkSession, frames: Frames) -> None:
    """A replay after a clear is judged as quickly as other records: 100,000 records, half of them of a bridge that confirms nothing."""
    count = 50_000
    number = F.col("number")
    plain = frames.evidence({**_hop(0, 0), "resent": False}).drop(
        "offset", "hop_offset", "hop_confirmed", "hop_source"
    )
    rows_of = [
        plain.crossJoin(spark.range(2 * count).toDF("number")).withColumns(
            {
                "offset": 2 * number + n,
                "hop_source": F.lit(f"{SOURCE[:-1]}{n}"),
                "hop_offset": number % count,
                "hop_confirmed": number % count * n,
            }
        )
        for n in range(2)
    ]
    evidence = rows_of[0].unionByName(rows_of[1]).select(*EVIDENCE.names)
    event = {
        "input_next": 2 * count, "forward_next": 0, "before": 20_000, "after": 20_000, "event": "cleared", "of_hops": True,
    }  # fmt: skip
    followed = hops.followed(evidence, None, frames.events(event)).cache()
    again = bridge_hops.again(followed, F.lit(20_000))
    found = bridge_hops.forgotten(again, followed).unionByName(bridge_hops.apart(again, followed))

    assert {row["anomaly"]: row["count"] for row in found.groupBy("anomaly").count().collect()} == {
        "OVERRUN": 2 * count
    }


def test_accepted_again(frames: Frames) -> None:
    """A known or confirmed hop that is accepted again is FORGOTTEN; it is OVERRUN only if higher unconfirmed hops pushed it out."""
    confirmed = _followed(frames, _hop(0, 9, 8), _hop(1, 7), _hop(2, 9))
    assert _again(confirmed, 1) == [("FORGOTTEN", 1), ("FORGOTTEN", 2)]
    assert _again(confirmed, 0) == []
    higher = _followed(frames, _hop(0, 5), _hop(1, 6), _hop(2, 7), _hop(3, 7), _hop(4, 5))
    assert _again(higher, 2) == [("FORGOTTEN", 3), ("OVERRUN", 4)]
    assert _again(higher, 3) == [("FORGOTTEN", 3), ("FORGOTTEN", 4)]


@pytest.mark.long
def test_what_is_lost_makes_no_hop_known(frames: Frames, spark: SparkSession) -> None:
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
    assert _again(followed) == [("FORGOTTEN", 1), ("FORGOTTEN", 3), ("FORGOTTEN", 5)]
    assert (_resent(told), _again(told)) == ([], [("FORGOTTEN", 3)])
    before = small(spark, [tuple(row) for row in hops.kept_on(told, F.lit(9)).collect()], HOPS)
    later = _followed(frames, _hop(7, 8), _hop(8, 7), _hop(9, 8, **NOTHING), kept=before)
    assert (_resent(later), _again(later)) == ([9], [("FORGOTTEN", 8)])


def test_named_once(frames: Frames) -> None:
    """A record that is named for its hop is not named for its ID besides, unless the former is excused."""
    by_id = rows(
        frames.evidence({"offset": 3}, {"offset": 4}, {"offset": 5}), Anomaly.FORGOTTEN, F.lit("text")
    )
    of_hops = rows(frames.evidence({"offset": 3}), Anomaly.FORGOTTEN, F.lit("text")).unionByName(
        rows(frames.evidence({"offset": 4}), Anomaly.OVERRUN, F.lit("text"))
    )

    assert named(bridge_hops.others(by_id, of_hops)) == [("FORGOTTEN", 4), ("FORGOTTEN", 5)]


@pytest.mark.long
def test_what_later_runs_have_to_know(frames: Frames, spark: SparkSession) -> None:
    """A run keeps, for each route, the largest confirmed hop and the highest above it, refused ones too.

    It keeps no waiting or forgotten hop.
    """
    event = {"input_next": 1, "forward_next": 0, "before": 7, "after": 7, "event": "cleared", "of_hops": True}
    sent = [
        _hop(0, 90), _hop(1, 5, 3), _hop(2, 2, 1, **NOTHING), _hop(3, 7, 4), _hop(4, 8, 4), _hop(5, 5, 0, **NOTHING),
        _hop(6, 30, fate=QUARANTINED), _hop(7, 40, 40, waiting=True, **NOTHING),
    ]  # fmt: skip
    followed = _followed(frames, *sent, events=frames.events(event))

    def kept(most: int) -> list[tuple[Any, ...]]:
        found = hops.kept_on(followed, F.lit(most))
        assert found.columns == HOPS.names
        return sorted(
            (
                (row["hop_offset"], row["hop_confirmed"], row["offset"], row["accepted"])
                for row in found.collect()
            ),
            key=str,
        )

    assert kept(9) == [
        (30, None, 6, False),
        (5, None, 1, True),
        (7, None, 3, True),
        (8, None, 4, True),
        (None, 4, 4, None),
    ]
    assert kept(1) == [(30, None, 6, False), (None, 4, 4, None)]
    written = [tuple(row) for row in hops.kept_on(followed, F.lit(9)).collect()]
    before = small(spark, written, HOPS)
    later = _followed(frames, _hop(0, 3, **NOTHING), _hop(1, 8), _hop(2, 9, **NOTHING), kept=before)
    assert (_resent(later), _again(later)) == ([0], [("FORGOTTEN", 1)])
    # A run without any hands on what it was given.
    again = hops.kept_on(_followed(frames, kept=before), F.lit(9)).collect()
    assert sorted(map(str, (row["hop_offset"] for row in again))) == ["30", "5", "7", "8", "None"]


def test_ids_that_are_not_looked_at_are_not_kept(frames: Frames) -> None:
    """Ignored IDs are null from the start, and the run neither judges nor keeps them."""
    evidence = hops.evidence_of(_followed(frames, _hop(0, 5), _hop(1, 6, id=b"x")))

    assert [row["id"] for row in ev.accepted_ids(evidence, 1).collect()] == [b"x"]

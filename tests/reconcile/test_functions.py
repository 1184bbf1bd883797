"""The functions of the nightly job on small frames, without Kafka."""

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import StructType

from reconcile.anomalies import fates, lost, order, originals, repeated, torn
from reconcile.anomalies.name import Anomaly, Doubt, doubted
from reconcile.read import concatenated
from reconcile.schemas import ACCEPTED, ACCEPTED_SPANS, DIVERTED, EVENTS, EVIDENCE, IDS, RULES, SPANS
from reconcile.small import small

pytestmark = pytest.mark.timeout(300)


class Frames:
    """Makes rows of which a test says what matters."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def evidence(self, *rows: dict[str, Any]) -> DataFrame:
        """Inputs of one group, accepted where they stand, unless a row says something else."""
        return self._frame(EVIDENCE, [_evidence(number, row) for number, row in enumerate(rows)])

    def ids(self, *rows: dict[str, Any]) -> DataFrame:
        """IDs accepted in lane 0, in order, in night 1."""
        plain = {
            "address": 0,
            "lane": 0,
            "partition": 0,
            "out_partition": 0,
            "group_digest": 1,
            "night": 1,
            "timestamp": 0,
        }
        return self._frame(
            IDS, [{**plain, "offset": n, "out_offset": n, **row} for n, row in enumerate(rows)]
        )

    def events(self, *rows: dict[str, Any]) -> DataFrame:
        """Of lane 0."""
        return self._frame(
            EVENTS, [{"address": 0, "lane": 0, "number": n, **row} for n, row in enumerate(rows)]
        )

    def rules(self, **changes: Any) -> DataFrame:
        """Of address 0."""
        rule = {
            "address": 0, "max_age_ms": 0, "largest": 20_000, "divert": False, "detects": True, "outputs_gone": False,
            "ids_gone": False, "whole_since": 0, **changes,
        }  # fmt: skip
        return small(self._spark, [tuple(rule.values())], RULES)

    def spans(self) -> DataFrame:
        """Partition 0: nothing before 10 was ever judged, this night judges 20 to 30, the log ends at 40."""
        return small(self._spark, [(0, 0, 10, 20, 20, 30, 40)], SPANS)

    def _frame(self, schema: StructType, rows: list[dict[str, Any]]) -> DataFrame:
        return small(self._spark, [tuple(row.get(each) for each in schema.names) for row in rows], schema)


def _evidence(number: int, row: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "address": 0, "partition": 0, "offset": number, "has_input": True, "timestamp": 0, "id": b"%d" % number,
        "group": b"g", "lane": 0, "waiting": False, "fate": ACCEPTED, "nth": 1, "out_partition": 0, "out_offset": number,
        "key_changed": False, "value_changed": False, "headers_changed": False,
    }  # fmt: skip
    found = plain | row
    if found["fate"] is None:
        found |= {"nth": None, "out_partition": None, "out_offset": None}
    return found


def _found(frame: DataFrame) -> list[tuple[str, int | None]]:
    """Name and input offset, in order."""
    return sorted((row["anomaly"], row["offset"]) for row in frame.collect())


@pytest.fixture
def frames(spark: SparkSession) -> Frames:
    return Frames(spark)


def test_fates(frames: Frames) -> None:
    """DOUBLED is one an input; PHANTOM is what names nothing, too much, or a hole; what lies ahead is neither."""
    evidence = frames.evidence(
        {"offset": 20}, {"offset": 20, "nth": 2}, {"offset": 20, "nth": 3}, {"offset": 21, "value_changed": True},
        *({"offset": each, "has_input": False} for each in (5, 12, 25, 35, 45)),
        {"partition": None, "offset": None, "has_input": False},
    )  # fmt: skip
    spans = frames.spans()

    assert _found(fates.doubled(evidence)) == [("DOUBLED", 20)]
    assert _found(fates.doubled_later(evidence, spans)) == [("DOUBLED", 12)]
    assert _found(fates.beyond_memory(evidence, spans)) == [("GAP", 5)]
    assert {row["offset"] for row in fates.phantom(evidence, spans).collect()} == {25, 45, None}
    assert _found(fates.corrupted(evidence)) == [("CORRUPTED", 21)]


def test_originals(frames: Frames) -> None:
    """An original is earlier, of the same lane or group, not too old, and the one that is named."""
    evidence = frames.evidence(
        {"id": b"a", "fate": None, "offset": 5},
        {"id": b"a", "fate": None, "offset": 1},
        {"id": b"a", "fate": None, "offset": 6, "lane": 1, "group": b"h"},
        {
            "id": b"a",
            "fate": DIVERTED,
            "offset": 7,
            "original": "t/0/2",
            "original_partition": 0,
            "original_offset": 2,
        },
        {
            "id": b"a",
            "fate": DIVERTED,
            "offset": 8,
            "original": "t/0/3",
            "original_partition": 0,
            "original_offset": 3,
        },
        {"id": b"a", "fate": None, "offset": 9, "timestamp": 11},
    )
    ids = frames.ids({"id": b"a", "offset": 2})
    orphans = _orphans(evidence, ids, frames.rules(max_age_ms=10))

    missing = lost.unmatched(evidence)
    assert _found(lost.lost(missing, orphans, frames.rules(), None)) == [
        ("LOST", 1),
        ("LOST", 6),
        ("LOST", 9),
    ]
    assert _found(lost.wrong_verdict(orphans, frames.rules(), None)) == [("WRONG-VERDICT", 8)]
    assert len(_found(lost.lost(missing, orphans, frames.rules(divert=True), None))) == 4
    assert {name for name, _ in _found(lost.lost(missing, orphans, frames.rules(ids_gone=True), None))} == {
        "GAP"
    }


def _orphans(
    candidates: DataFrame, ids: DataFrame, rules: DataFrame, events: DataFrame | None = None
) -> DataFrame:
    found = originals.without_original(candidates, ids, rules, events, 1)
    return originals.orphans(found, ids, events, 1).select(*EVIDENCE.names)


def _offsets(frame: DataFrame) -> list[int]:
    return sorted(row["offset"] for row in frame.collect())


def test_what_the_ring_had_forgotten_is_no_original(frames: Frames) -> None:
    """Dropped although as many others as its ring holds were accepted since; what came the other way may be as old."""
    ids = frames.ids(
        {"id": b"a"}, {"id": b"b", "offset": 3}, {"id": b"c", "offset": 6},
        {"id": b"f", "partition": 1, "offset": 0, "forward_offset": 90},
        {"id": b"e", "partition": 1, "offset": 1, "forward_offset": 91, "night": 0},
    )  # fmt: skip
    dropped = frames.evidence(
        {"id": b"a", "offset": 5, "fate": None}, {"id": b"a", "offset": 8, "fate": None},
        # Others by the same way count, and not the offsets between.
        {"id": b"c", "offset": 9, "fate": None},
        {"id": b"f", "offset": 10, "fate": None},
        # The forward topic was made anew since then.
        {"id": b"e", "partition": 1, "offset": 11, "forward_offset": 2, "fate": None},
    )  # fmt: skip

    assert _offsets(_orphans(dropped, ids, frames.rules(largest=2))) == [8]
    assert _offsets(_orphans(dropped, ids, frames.rules(largest=3))) == []


def test_what_came_by_the_forward_topic_is_in_its_order(frames: Frames) -> None:
    """An original that stands after a record there was accepted after it, whatever partitions they came from."""
    ids = frames.ids({"id": b"a", "partition": 1, "offset": 3, "forward_offset": 7})
    dropped = frames.evidence(
        {"id": b"a", "partition": 2, "offset": 1, "forward_offset": 6, "fate": None},
        {"id": b"a", "partition": 2, "offset": 2, "forward_offset": 8, "fate": None},
    )

    assert _offsets(_orphans(dropped, ids, frames.rules())) == [1]


def test_what_was_told_of_the_ring_of_an_original(frames: Frames) -> None:
    """Emptied by order in between, or off: there is no original. One that became smaller, or was off before, may have it."""
    ids = frames.ids({"id": b"a", "offset": 1})
    dropped = frames.evidence(
        {"id": b"a", "offset": 2, "fate": None}, {"id": b"a", "offset": 4, "fate": None}
    )

    def orphans(*events: tuple[int, int, int]) -> list[int]:
        told = frames.events(
            *(
                {"input_next": offset, "forward_next": 0, "before": before, "after": after}
                for offset, before, after in events
            )
        )
        return _offsets(_orphans(dropped, ids, frames.rules(largest=99), told))

    assert orphans((4, 9, 9)) == [4]
    assert orphans((3, 9, 4)) == []
    assert orphans((3, 9, 0)) == [4]
    assert orphans((3, 0, 9)) == [2]
    assert orphans((0, 9, 9), (9, 9, 9)) == []


def test_reordered(frames: Frames) -> None:
    """Each break is one; a group in two partitions has no order; others overtake freely."""
    moved = frames.evidence(*({"out_offset": each} for each in (3, 0, 1, 2)))
    scattered = frames.evidence({}, {"out_partition": 1}, {"group": b"h", "out_partition": 1})
    others = frames.evidence(
        {"out_offset": 2}, {"group": b"h", "out_offset": 1}, {"group": None, "out_offset": 0}
    )

    assert _found(order.reordered(moved)) == [("REORDERED", 0)]
    assert _found(order.reordered(scattered)) == [("REORDERED", 1)]
    assert _found(order.reordered(others)) == []


def test_reordered_across_the_cut(frames: Frames, spark: SparkSession) -> None:
    """The last night ended at input 20 and output 100, and had 19 accepted at 99, and 17 at 98 in a group of its own."""
    g, h = (spark.range(1).select(F.xxhash64(F.lit(each))).collect()[0][0] for each in (b"g", b"h"))
    earlier = frames.ids(
        {"offset": 10, "out_offset": 90, "group_digest": g}, {"offset": 19, "out_offset": 99, "group_digest": g},
        {"offset": 17, "out_offset": 98, "group_digest": h},
    )  # fmt: skip
    evidence = frames.evidence(
        {"offset": 21, "out_offset": 97}, {"offset": 22, "out_offset": 101},
        {"offset": 18, "out_offset": 102},  # waited
        {"offset": 18, "out_offset": 103, "group": b"h"}, {"offset": 23, "out_offset": 99, "group": b"i"},
        {"offset": 24, "out_offset": 99, "group": b"h"},
    )  # fmt: skip
    outputs = small(spark, [(0, 0, 100)], ACCEPTED_SPANS)
    found = order.reordered_across(evidence, earlier, frames.spans(), outputs)

    assert sorted((row["offset"], row["other_offset"], row["detail"]) for row in found.collect()) == [
        (18, 19, "accepted after offset 19 of its group, which the last night judged"),
        (21, 19, "accepted before offset 19 of its group, which the last night judged"),
    ]


@pytest.mark.parametrize(("capacity", "expected"), [(2, "OVERRUN"), (3, "FORGOTTEN")])
def test_distance(frames: Frames, capacity: int, expected: str) -> None:
    """With two IDs in between, a ring of three still held the first."""
    ids = frames.ids({"id": b"a"}, {"id": b"b"}, {"id": b"c"}, {"id": b"a"})

    assert _repeated(ids, frames.rules(), capacity=capacity) == [(expected, 3)]


def test_what_was_forwarded_may_have_come_between(frames: Frames) -> None:
    """Where another output partition does not show it, all of it may have."""
    between = [
        {"id": b"%d" % n, "partition": 1, "offset": n, "forward_offset": n, "out_partition": 1}
        for n in range(3)
    ]
    hidden = frames.ids({"id": b"a"}, *between, {"id": b"a", "offset": 1, "out_offset": 1})
    shown = frames.ids(
        {"id": b"a"}, *(each | {"out_partition": 0, "out_offset": 9 + n} for n, each in enumerate(between)),
        {"id": b"a", "offset": 1, "out_offset": 1},
    )  # fmt: skip

    assert _repeated(hidden, frames.rules()) == [("OVERRUN", 1)]
    assert _repeated(shown, frames.rules(), capacity=1) == [("FORGOTTEN", 1)]


def test_forgotten_or_not_where_ids_between_are_gone(frames: Frames) -> None:
    """Of what came in between on a night before, nobody knows how much; beyond the promise, or after that night, it is known."""
    old = {"id": b"a", "night": 0}
    near = frames.ids(old, {"id": b"a"})
    far = frames.ids(old, {"id": b"b"}, {"id": b"a"})
    gone = frames.rules(whole_since=1)

    assert _repeated(near, gone) == [("GAP", 1)]
    assert _repeated(near, frames.rules()) == [("FORGOTTEN", 1)]
    assert _repeated(far, gone, capacity=1) == [("OVERRUN", 2)]
    assert _repeated(frames.ids({"id": b"a"}, {"id": b"a"}), gone) == [("FORGOTTEN", 1)]


def test_doubts(frames: Frames) -> None:
    """What cannot be told is GAP, with what it may be; of that address only, and only what is in doubt."""
    evidence = frames.evidence({"nth": 2}, {"value_changed": True}, {"value_changed": True, "address": 1})
    found = doubted(
        concatenated([fates.doubled(evidence), fates.corrupted(evidence)]),
        [Doubt(0, frozenset({Anomaly.CORRUPTED, Anomaly.LOST}), "rules changed"), Doubt(2, frozenset(Anomaly), "x")],
    )  # fmt: skip

    assert sorted((row["anomaly"], row["suspected"], row["detail"]) for row in found.collect()) == [
        ("CORRUPTED", None, "value not as in the input"),
        ("DOUBLED", None, "accepted again"),
        ("GAP", "CORRUPTED", "CORRUPTED or not, rules changed: value not as in the input"),
    ]


def test_events(frames: Frames) -> None:
    """An event between two excuses; one before or after tells the capacity that was in force."""
    ids = frames.ids({"id": b"a"}, {"id": b"b"}, {"id": b"a"})

    def judged(offset: int, before: int, after: int) -> list[tuple[str, int | None]]:
        events = frames.events({"input_next": offset, "forward_next": 0, "before": before, "after": after})
        return _repeated(ids, frames.rules(), events)

    assert judged(1, 3, 3) == [("OVERRUN", 2)]
    assert judged(3, 1, 9) == [("OVERRUN", 2)]
    assert judged(0, 9, 0) == []


def test_cross_lane(frames: Frames) -> None:
    """Another group in another lane; the same group is of the same lane, whatever way it took."""
    other = frames.ids({"id": b"a"}, {"id": b"a", "lane": 1, "partition": 1, "group_digest": 2})
    same = frames.ids({"id": b"a"}, {"id": b"a", "lane": 1, "partition": 1})
    earlier = frames.ids(
        {"id": b"a"}, {"id": b"a", "lane": 1, "partition": 1, "group_digest": 2}, {"id": b"a", "night": 2}
    )

    def found(ids: DataFrame, night: int = 1) -> list[tuple[str, int | None]]:
        return _found(repeated.cross_lane(repeated.repeated(ids, night), night, frames.rules()))

    assert found(other) == [("CROSS-LANE", 1)]
    assert found(same) == []
    assert found(earlier, 2) == []


def test_cross_lane_after_the_age(frames: Frames) -> None:
    """An ID that no longer counts is allowed in another lane too; counted from the nearest before, not from the first."""
    away = {"id": b"a", "lane": 1, "partition": 1, "group_digest": 2}
    ids = frames.ids(
        {"id": b"a"}, {**away, "timestamp": 20},
        *({**row, "id": b"b"} for row in ({}, {"timestamp": 15}, {**away, "timestamp": 20})),
        # On another night: it is known which was first, whatever the clocks say.
        {"id": b"c", "night": 0, "timestamp": 20}, {**away, "id": b"c", "timestamp": 0},
    )  # fmt: skip
    found = repeated.cross_lane(repeated.repeated(ids, 1), 1, frames.rules(max_age_ms=10))

    assert _found(found) == [("CROSS-LANE", 4), ("CROSS-LANE", 6), ("OVERRUN", 1)]


def _repeated(
    ids: DataFrame, rules: DataFrame, events: DataFrame | None = None, *, capacity: int = 3
) -> list[tuple[str, int | None]]:
    pairs = repeated.pairs(repeated.repeated(ids, 1), 1)
    ranked = repeated.ranks(ids, pairs.select("address", "lane").distinct())
    between = repeated.between(pairs, ranked)
    return _found(repeated.remembered(repeated.promised(between, events, rules, F.lit(capacity))))


def test_torn(frames: Frames) -> None:
    """In part is torn, and names its first part. Alone, across the cut, or a duplicate: a part is a record as any other."""

    def part(tx: bytes, number: str, **row: Any) -> dict[str, Any]:
        return {"transaction": tx, "part": number, **row}

    evidence = frames.evidence(
        part(b"torn", "1/2"), part(b"torn", "2/2", fate=None), part(b"whole", "1/1"),
        part(b"alone", "1/2", fate=None), part(b"across", "1/3"), part(b"across", "2/3", fate=None),
        part(b"waits", "1/2"), part(b"waits", "2/2", fate=None, waiting=True), part(b"none", "1/1", fate=None),
    )  # fmt: skip
    transactions = torn.transactions(torn.parts(evidence))
    missing = lost.unmatched(evidence)

    assert _found(torn.torn(transactions)) == [("TORN", 0)]
    found = lost.lost(missing, missing, frames.rules(), torn.excused(transactions))
    assert _found(found) == [("LOST", 3), ("LOST", 5), ("LOST", 8)]

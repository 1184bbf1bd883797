"""Envelopes and their parts on small frames, without Kafka."""

from typing import Any

from pyspark.sql import DataFrame, Row

from reconcile.anomalies.finders import lost_inputs
from reconcile.run.frames import evidence as ev
from reconcile.run.frames import match
from tests.reconcile.rows import Frames, cut, named


def _envelope(offset: int, *parts: dict[str, Any], **itself: Any) -> list[dict[str, Any]]:
    """Return an envelope without an output of its own, and its parts, accepted in their order; it has no ID, and the parts have IDs."""
    plain = {"offset": offset, "parts": len(parts), "id": None}
    return [
        {**plain, "part_number": 0, "group": b"k", "fate": None, **itself},
        *(
            {**plain, "part_number": number, "out_offset": 10 * offset + number, **part}
            for number, part in enumerate(parts, 1)
        ),
    ]


def _joined(frames: Frames, *rows: dict[str, Any]) -> DataFrame:
    matched = frames.evidence(*rows)
    apart = match.joined(matched.where(match.OF_UNITS)).unionByName(match.as_plain(matched))
    return cut(matched.where(f"not ({match.OF_UNITS})").unionByName(apart.select(*matched.columns)))


def _rows(frame: DataFrame) -> dict[tuple[int, int], Row]:
    return {(row["offset"], row["part_number"]): row for row in frame.where(ev.FIRST).collect()}


def _missing(evidence: DataFrame, orphans: DataFrame, frames: Frames, **rules: Any) -> list[Any]:
    return named(lost_inputs.lost(lost_inputs.unmatched(evidence), orphans, frames.rules(**rules)))


def test_torn(frames: Frames) -> None:
    """A transaction that is accepted in part gives one TORN row that names its parts and their places.

    The missing part is not lost, and all IDs are there.
    """
    evidence = _joined(
        frames,
        *_envelope(0, {"id": b"a"}, {"id": b"b", "fate": None, "part_address": 1}, {"out_address": 1, "part_address": 1}),
        *_envelope(1, {}, {}),
        *_envelope(2, {"fate": None}, {"fate": None}),
    )  # fmt: skip
    rows = lost_inputs.torn(evidence, frames.rules(), ["t", "u"]).collect()

    assert [(row["anomaly"], row["offset"], row["part_number"], row["out_offset"]) for row in rows] == [
        ("TORN", 0, 0, 1)
    ]
    assert rows[0]["detail"] == "parts 1, 3 of 3 accepted, in t, u; missing: part 2, for u"
    assert _missing(evidence, evidence.limit(0), frames) == [("LOST", 2)]
    assert sorted((row["id_address"], row["id"]) for row in ev.accepted_ids(evidence, 1).collect()) == [
        (0, b"a"), (1, b"b"),
    ]  # fmt: skip
    (gone,) = lost_inputs.torn(evidence, frames.rules(targets_gone=True), ["t", "u"]).collect()
    assert (gone["anomaly"], gone["suspected"]) == ("GAP", "TORN")


def test_many_parts_are_not_all_named(frames: Frames) -> None:
    evidence = _joined(frames, *_envelope(0, *[{}] * 30, {"fate": None}))
    rows = lost_inputs.torn(evidence, frames.rules(), ["t"]).collect()

    numbers = ", ".join(str(index) for index in range(1, lost_inputs.SHOWN_MAX + 1))
    assert [row["detail"] for row in rows] == [
        f"parts {numbers} and 10 more of 31 accepted, in t; missing: part 31, for t"
    ]


def test_ids(frames: Frames) -> None:
    """An ID of several parts counts once, at its first part; the same ID of another address is another one."""
    evidence = _joined(
        frames,
        *_envelope(0, {"id": b"a"}, {"id": b"b"}, {"id": b"a", "part_address": 1}, {"id": b"b"}, id=b"a"),
    )
    found = ev.accepted_ids(evidence, 1).collect()

    assert sorted((row["id_address"], row["id"], row["part_number"]) for row in found) == [
        (0, b"a", 0), (0, b"b", 2), (1, b"a", 3),
    ]  # fmt: skip
    assert {row["ids"] for row in evidence.collect()} == {3}
    # Its own is written where its first part is; it has no group to be compared in.
    own = next(row for row in found if row["part_number"] == 0)
    assert (own["out_offset"], own["group_digest"]) == (1, None)


def test_home(frames: Frames) -> None:
    """An envelope without a key has the home of its first ID; otherwise its key decides."""
    evidence = _joined(
        frames,
        {"offset": 0, "group": b"k"},
        *_envelope(1, {"group": b"x"}),
        *(row for at in (2, 3) for row in _envelope(at, {"id": b"a"}, {"id": b"%d" % at}, group=None)),
        *_envelope(4, {"id": b"b"}, {"id": b"a"}, group=None),
    )
    homes = {offset: row["home_digest"] for (offset, part), row in _rows(evidence).items() if part == 0}

    assert homes[0] == homes[1]
    assert homes[2] == homes[3] != homes[4]

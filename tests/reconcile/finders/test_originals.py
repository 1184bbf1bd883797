"""Originals of inputs that are not accepted, on small frames, without Kafka."""

import random
from typing import Any

import pytest
from pyspark.sql import DataFrame

from reconcile.anomalies.finders import lost_inputs, nearest, originals, sequence_numbers
from reconcile.run.frames import journal
from reconcile.spark.schemas import DIVERTED, EVIDENCE
from tests.reconcile.rows import Frames, cut, named, offsets


def test_originals(frames: Frames) -> None:
    """An original is earlier, of the same lane or group, not too old, and the one that the row names."""
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

    missing = lost_inputs.unmatched(evidence)
    assert named(lost_inputs.lost(missing, orphans, frames.rules())) == [
        ("LOST", 1),
        ("LOST", 6),
        ("LOST", 9),
    ]
    assert named(lost_inputs.wrong_verdict(orphans, evidence, frames.rules())) == [("WRONG-VERDICT", 8)]
    assert len(named(lost_inputs.lost(missing, orphans, frames.rules(divert=True)))) == 4
    assert {name for name, _ in named(lost_inputs.lost(missing, orphans, frames.rules(ids_gone=True)))} == {
        "GAP"
    }
    # Offset 6 came to lane 1, all IDs of which are known nevertheless.
    by_lane = named(lost_inputs.lost(missing, orphans, frames.rules(ids_gone=True, lanes_whole=[1, 2])))
    assert by_lane == [("GAP", 1), ("GAP", 9), ("LOST", 6)]
    # What has a topic is there, whatever is known of IDs; unless that topic's evidence is gone.
    divert = frames.rules(divert=True, ids_gone=True)
    assert {name for name, _ in named(lost_inputs.lost(missing, orphans, divert))} == {"LOST"}
    assert {name for name, _ in named(lost_inputs.wrong_verdict(orphans, evidence, divert))} == {"GAP"}
    gone = frames.rules(divert=True, outputs_gone=True)
    assert {name for name, _ in named(lost_inputs.lost(missing, orphans, gone))} == {"GAP"}


@pytest.mark.long
def test_what_the_ring_had_forgotten_is_no_original(frames: Frames) -> None:
    """A record stops being an original once its ring has accepted as many others as it holds; one of the other input may be as old."""
    ids = frames.ids(
        {"id": b"a"}, {"id": b"b", "offset": 3}, {"id": b"c", "offset": 6},
        {"id": b"f", "partition": 1, "offset": 0, "forward_offset": 90},
        {"id": b"e", "partition": 1, "offset": 1, "forward_offset": 91, "run": 0},
    )  # fmt: skip
    dropped = frames.evidence(
        {"id": b"a", "offset": 5, "fate": None}, {"id": b"a", "offset": 8, "fate": None},
        # Others by the same way count, and not the offsets between.
        {"id": b"c", "offset": 9, "fate": None},
        {"id": b"f", "offset": 10, "fate": None},
        # The forward topic was created again since then.
        {"id": b"e", "partition": 1, "offset": 11, "forward_offset": 2, "fate": None},
    )  # fmt: skip

    assert offsets(_orphans(dropped, ids, frames.rules(largest=2))) == [8]
    assert offsets(_orphans(dropped, ids, frames.rules(largest=3))) == []


def test_sequence_numbers_show_what_a_ring_had_forgotten(frames: Frames) -> None:
    """A ring of two has forgotten an ID two numbers later, by whatever partitions they came; numbers that fall prove nothing."""
    candidates = frames.evidence(
        {"id": b"a", "partition": 1, "offset": 2, "fate": None},
        {"id": b"a", "partition": 1, "offset": 9, "fate": None},
        {"id": b"a", "offset": 9, "fate": None},
        {"id": b"e", "partition": 1, "offset": 10, "fate": None},
    )
    numbered = [
        {"id": b"a", "sequence": 1, "run": 0},
        {"id": b"b", "partition": 1, "offset": 1, "sequence": 2},
        {"id": b"c", "partition": 1, "offset": 3, "sequence": 3},
        {"id": b"d", "partition": 1, "offset": 5, "sequence": 4},
        {"id": b"e", "offset": 7, "sequence": 5, "out_offset": 8},
    ]

    def lost(*ids: dict[str, Any]) -> list[tuple[int, int]]:
        given = frames.ids(*ids)
        asking = cut(sequence_numbers.with_heads(candidates, given, None, 1))
        found = _orphans(asking, given, frames.rules(largest=2))
        return sorted((row["partition"], row["offset"]) for row in found.collect())

    assert lost(*numbered) == [(0, 9), (1, 9)]
    assert lost(*numbered[:-1], {**numbered[-1], "out_offset": 0}) == []
    assert lost({**numbered[0], "sequence": 2}, *numbered[1:]) == []


def test_what_came_by_the_forward_topic_is_in_its_order(frames: Frames) -> None:
    """An original that stands after a record in the forward topic was accepted after it, from whatever partitions they came."""
    ids = frames.ids({"id": b"a", "partition": 1, "offset": 3, "forward_offset": 7})
    dropped = frames.evidence(
        {"id": b"a", "partition": 2, "offset": 1, "forward_offset": 6, "fate": None},
        {"id": b"a", "partition": 2, "offset": 2, "forward_offset": 8, "fate": None},
    )

    assert offsets(_orphans(dropped, ids, frames.rules())) == [1]


@pytest.mark.long
def test_what_was_told_of_the_ring_of_an_original(frames: Frames) -> None:
    """An original is gone if its ring was cleared or switched off since; a ring that shrank, or was off earlier, may have it."""
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
        return offsets(_orphans(dropped, ids, frames.rules(largest=99), told))

    assert orphans((4, 9, 9)) == [4]
    assert orphans((3, 9, 4)) == []
    assert orphans((3, 9, 0)) == [4]
    assert orphans((3, 0, 9)) == [2]
    assert orphans((0, 9, 9), (9, 9, 9)) == []


@pytest.mark.long
def test_a_ring_that_was_opened_anew_is_empty(frames: Frames) -> None:
    """A reopened ring that is in memory only is empty, whatever its size, and holds no original.

    A ring of another size has the newest IDs.
    """
    ids = frames.ids({"id": b"a", "offset": 1})
    dropped = frames.evidence({"id": b"a", "offset": 4, "fate": None})
    event = {"input_next": 3, "forward_next": 2, "before": 9, "after": 8}
    anew, resized = (frames.events({**event, "event": name}) for name in ("forgotten", "resized"))

    assert offsets(_orphans(dropped, ids, frames.rules(), anew)) == [4]
    assert offsets(_orphans(dropped, ids, frames.rules(), resized)) == []
    assert journal.ring_histories(anew) == {0: [journal.RingHistory(0, 9, journal.Emptied(3, 2))]}
    assert journal.ring_histories(resized) == {0: [journal.RingHistory(0, 9, None)]}


@pytest.mark.long
def test_what_lanes_have_handed_on(frames: Frames) -> None:
    """Successor lanes know what their lane knew when the address got more lanes, and nothing later; lanes 2 and 4 succeed lane 0."""
    ids = frames.ids(
        {"id": b"a", "offset": 1},
        {"id": b"b", "offset": 3},
        {"id": b"c", "partition": 1, "offset": 9, "forward_offset": 4},
        {"id": b"d", "partition": 1, "offset": 9, "forward_offset": 5},
    )
    dropped = frames.evidence(
        *(
            {
                "id": name,
                "partition": lane,
                "offset": 10 * lane + n,
                "lane": lane,
                "group": b"h",
                "fate": None,
            }
            for lane in (1, 2, 3, 4)
            for n, name in enumerate((b"a", b"b", b"c", b"d"))
        )
    )
    grown = frames.events({"input_next": 3, "forward_next": 5, "before": 2, "after": 5})

    found = offsets(_orphans(dropped, ids, frames.rules(), grown=grown))
    assert found == [10, 11, 12, 13, 21, 23, 30, 31, 32, 33, 41, 43]
    assert len(offsets(_orphans(dropped, ids, frames.rules()))) == 16


def _orphans(
    candidates: DataFrame,
    ids: DataFrame,
    rules: DataFrame,
    events: DataFrame | None = None,
    grown: DataFrame | None = None,
) -> DataFrame:
    ids = originals.with_heirs(ids, grown)
    near = cut(originals.without_near(candidates, ids, rules, events, 1))
    found = cut(originals.without_original(near, ids, events, 1))
    return cut(originals.orphans(found, ids, ids, events, 1).select(*EVIDENCE.names))


SEED = 7
WORLDS = 400
RUN = 2
OFTEN = 20_000


def test_like_each_pair(frames: Frames) -> None:
    """The finder agrees with a comparison of each pair, over many small histories, one for each ID.

    They vary lanes, inputs, runs, ages, groups and named originals; times are not in the order of places.
    """
    rng = random.Random(SEED)
    ids: list[dict[str, Any]] = []
    inputs: list[dict[str, Any]] = []
    for world in range(WORLDS):
        places = rng.sample(range(40), 8)
        rows = [_row(rng, b"%d" % world, world * 100 + place) for place in places]
        ids += [{**row, "run": rng.choice((1, RUN, RUN))} for row in rows[:4]]
        inputs += [_said(rng, row, ids[-4:]) for row in rows[4:]]
    rules = {"max_age_ms": 5, "largest": 9}
    told = frames.events({"input_next": WORLDS * 50, "forward_next": WORLDS * 50, "before": 9, "after": 9})
    known = originals.with_heirs(frames.ids(*ids), None)
    near = cut(originals.without_near(frames.evidence(*inputs), known, frames.rules(**rules), told, RUN))
    found = originals.without_original(near, known, told, RUN)

    alone = {(row["partition"], row["offset"]) for row in found.collect()}
    expected = [
        input_
        for input_ in inputs
        if not any(_repeats(input_, one, **rules) for one in ids if one["id"] == input_["id"])
    ]
    assert alone == {(item["partition"], item["offset"]) for item in expected}
    assert 100 < len(alone) < len(inputs) - 100


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


@pytest.mark.long
def test_one_id_that_is_there_very_often(frames: Frames) -> None:
    """An ID that is accepted very often is not paired with all its earlier records.

    It is accepted again whenever it is too old, and dropped in between, or lost.
    """
    spark = frames.evidence().sparkSession
    ids = spark.range(OFTEN).selectExpr("id as n")
    there = (
        frames.ids({"id": b"a"})
        .drop("offset", "timestamp", "out_offset")
        .crossJoin(ids.selectExpr("n * 3 as offset", "n * 10 as timestamp", "n as out_offset"))
    )
    inputs = (
        frames.evidence({"id": b"a", "fate": None})
        .drop("offset", "timestamp")
        .crossJoin(ids.selectExpr("n * 3 + 1 as offset", "n * 10 + 1 + 9 * (n % 2) as timestamp"))
        .select(*EVIDENCE.names)
    )
    known = originals.with_heirs(there, None)
    rules = frames.rules(max_age_ms=5)
    near = originals.without_near(inputs, known, rules, None, 1).cache()

    assert near.count() == OFTEN // 2
    assert nearest.classes(originals.offered(known, None, 1).where("named is null")).count() == 2
    plan = near._jdf.queryExecution().executedPlan().toString()
    assert not [
        line
        for line in plan.splitlines()
        if "Join" in line and "rules" not in line and "Broadcast" not in line
    ]
    alone = originals.without_original(near, known, None, 1).cache()
    assert alone.where("ambiguous or first is not null").isEmpty()
    assert alone.count() == originals.orphans(alone, known, known, None, 1).count() == OFTEN // 2

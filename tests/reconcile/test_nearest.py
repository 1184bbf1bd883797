"""Originals beside a model that looks at each pair, and one ID that is there very often: on small frames, without Kafka."""

import random
from typing import Any

from reconcile.anomalies.finders import nearest, originals
from reconcile.spark.schemas import EVIDENCE
from tests.reconcile.rows import Frames

SEED = 7
WORLDS = 400
NIGHT = 2
OFTEN = 20_000


def test_like_each_pair(frames: Frames) -> None:
    """Many small histories, one an ID: lanes, ways, nights, ages, groups, named originals; times are not in the order of places."""
    rng = random.Random(SEED)
    ids: list[dict[str, Any]] = []
    inputs: list[dict[str, Any]] = []
    for world in range(WORLDS):
        places = rng.sample(range(40), 8)
        rows = [_row(rng, b"%d" % world, world * 100 + place) for place in places]
        ids += [{**row, "night": rng.choice((1, NIGHT, NIGHT))} for row in rows[:4]]
        inputs += [_said(rng, row, ids[-4:]) for row in rows[4:]]
    rules = {"max_age_ms": 5, "largest": 9}
    told = frames.events({"input_next": WORLDS * 50, "forward_next": WORLDS * 50, "before": 9, "after": 9})
    known = originals.with_heirs(frames.ids(*ids), None)
    near = originals.without_near(frames.evidence(*inputs), known, frames.rules(**rules), told, NIGHT).cache()
    found = originals.without_original(near, known, told, NIGHT)

    alone = {(row["partition"], row["offset"]) for row in found.collect()}
    expected = [
        input_
        for input_ in inputs
        if not any(_repeats(input_, one, **rules) for one in ids if one["id"] == input_["id"])
    ]
    assert alone == {(item["partition"], item["offset"]) for item in expected}
    assert 100 < len(alone) < len(inputs) - 100


def _row(rng: random.Random, id_: bytes, place: int) -> dict[str, Any]:
    """In one of two lanes, and at a place of its own: of the forward topic, if it is forwarded."""
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
    """Whether ``other`` is an original of ``one``, as the documents say it."""

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
    before: bool = other["night"] < NIGHT or earlier
    young: bool = one["timestamp"] - other["timestamp"] <= max_age_ms
    return before and young and near


def test_one_id_that_is_there_very_often(frames: Frames) -> None:
    """Accepted anew whenever it is too old, and dropped in between, or lost: nothing is paired with all that came before it."""
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

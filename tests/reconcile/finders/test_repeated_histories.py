"""Generated histories of lanes whose truth is known, judged in one frame: a lane is a history.

The model is a ring and several inputs. It knows in which order the lane interleaved them; the run knows it by sequence numbers only.
"""

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reconcile.run.history.rings import Rings
from reconcile.spark.schemas import IDS
from tests.reconcile.finders.test_repeated import judged
from tests.reconcile.rows import Frames

HISTORIES: Final = 2_500
"""For each of the five kinds: 12,500 in all."""
STEPS: Final = 14


@dataclass
class History:
    """One lane, in the order in which it accepted."""

    lane: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    within: list[bool] = field(default_factory=list)
    """For each row, whether its ID was in the ring and young enough, so that it should have been a duplicate."""
    earlier: list[bool] = field(default_factory=list)
    """For each row, whether its ID was accepted before it at all."""


def _history(
    lane: int, dice: random.Random, capacity: int, max_age: int, *, routes: int, outputs: int, numbered: bool
) -> History:
    """Read the inputs at random, and accept by the rules, except for some faults. ``numbered``: with sequence numbers, and many partitions."""
    made, direct = History(lane), Counter[int]()
    forwarded, sources, ends = 0, Counter[int](), Counter[int]()
    for step in range(STEPS):
        name = b"%d/%d" % (lane, dice.choice([0, 0, 0, 1, 1, 2, 100 + step]))
        timestamp = 10 * step + dice.randrange(10)
        same = [number for number, row in enumerate(made.rows) if row["id"] == name]
        young = [n for n in same if not max_age or timestamp - made.rows[n]["timestamp"] <= max_age]
        within = any(n >= len(made.rows) - capacity for n in young)
        is_forwarded = routes > 1 and dice.random() < 0.5
        place: dict[str, int | None]
        if is_forwarded:
            source = lane + 1_000_000 * dice.randint(1, 2)
            place = {"partition": source, "offset": sources[source], "forward_offset": forwarded}
            sources[source] += 1
            forwarded += 1
        else:
            partition = lane + 10_000_000 * dice.randrange(3) * numbered
            place = {"partition": partition, "offset": direct[partition], "forward_offset": None}
            direct[partition] += 1
        if within and dice.random() < 0.7:
            continue  # a duplicate, as it should be
        output = dice.randrange(outputs)
        made.rows.append(
            {
                "address": 0, "id_address": 0, "id": name, "lane": lane, "part_number": 0, "timestamp": timestamp,
                "out_address": 0, "out_partition": output, "out_offset": ends[output], "group_digest": None,
                "home_digest": hash(name), "value_digest": None, "position": None, "run": 1, **place,
                "sequence": len(made.rows) if numbered else None,
            }
        )  # fmt: skip
        ends[output] += 1
        made.within.append(within)
        made.earlier.append(bool(same))
    return made


@pytest.mark.parametrize(
    ("routes", "outputs", "capacity", "max_age", "numbered"),
    [
        (1, 3, 4, 45, False),
        (2, 1, 4, 45, False),
        (2, 3, 4, 45, False),
        (2, 3, 50, 0, False),
        (2, 3, 4, 45, True),
    ],
    ids=[
        "one route",
        "one output partition",
        "two routes, no keys",
        "a ring that holds all",
        "sequence numbers",
    ],
)
def test_known_verdicts(
    spark: SparkSession, routes: int, outputs: int, capacity: int, max_age: int, numbered: bool
) -> None:
    """The run calls no allowed acceptance FORGOTTEN, and passes over none that the rules forbid."""
    dice = random.Random(routes + 10 * outputs + 100 * capacity)
    histories = [
        _history(lane, dice, capacity, max_age, routes=routes, outputs=outputs, numbered=numbered)
        for lane in range(HISTORIES)
    ]
    rows = [row for history in histories for row in history.rows]
    ids = (
        spark.createDataFrame([tuple(row[name] for name in IDS.names) for row in rows], IDS)
        .repartition(4)
        .cache()
    )
    rules = Frames(spark).rules(max_age_ms=max_age)
    found: dict[tuple[int, int], str] = {}
    by_id: dict[bytes, Counter[str]] = defaultdict(Counter)
    verdicts = judged(
        ids, rules, capacity=F.lit(capacity), rings=[Rings.of(1, 4) if numbered else Rings.of(0, 1)]
    )
    for row in verdicts.select("partition", "offset", "id", "anomaly").collect():
        place = (row["partition"], row["offset"])
        assert place not in found, f"{place} twice"
        found[place] = row["anomaly"]
        by_id[bytes(row["id"])][row["anomaly"]] += 1
    ids.unpersist()

    in_order = routes == 1 or outputs == 1 or numbered
    exact = in_order or capacity > STEPS
    planted = 0
    for history in histories:
        repeats: Counter[bytes] = Counter()
        faults: Counter[bytes] = Counter()
        for accepted, within, earlier in zip(history.rows, history.within, history.earlier, strict=True):
            repeats[accepted["id"]] += earlier
            faults[accepted["id"]] += within
            if in_order:
                verdict = found.get((accepted["partition"], accepted["offset"]))
                assert verdict == ("FORGOTTEN" if within else "OVERRUN" if earlier else None), (
                    accepted,
                    history,
                )
        for name, count in repeats.items():
            # Nothing tells which of two came first: how many there are is known all the same.
            assert by_id[name].total() == count, (name, history)
            if not faults[name]:
                assert not by_id[name]["FORGOTTEN"], (name, history)
            if exact:
                assert by_id[name]["FORGOTTEN"] == faults[name], (name, history)
        planted += faults.total()
    assert planted > HISTORIES / 4


def test_a_fault_behind_an_allowed_repetition(spark: SparkSession) -> None:
    """An ID that is wrongly accepted right behind an allowed repetition is found, with null keys and a ring of 10.

    It was first accepted long ago through the forward topic.
    """
    plain = {
        "address": 0,
        "id_address": 0,
        "lane": 0,
        "part_number": 0,
        "timestamp": 0,
        "out_address": 0,
        "run": 1,
    }

    def row(name: bytes, offset: int, output: int, *, forwarded: bool = False) -> dict[str, Any]:
        at = {"partition": 1, "forward_offset": 0} if forwarded else {"partition": 0, "forward_offset": None}
        return {
            **plain,
            **at,
            "id": name,
            "offset": offset,
            "out_partition": output,
            "out_offset": offset,
            "home_digest": hash(name),
            "value_digest": None,
        }

    others = [row(b"%d" % number, number, number % 2) for number in range(30)]
    rows = [row(b"x", 0, 2, forwarded=True), *others, row(b"x", 30, 1), row(b"x", 31, 0)]
    ids = spark.createDataFrame([tuple(row.get(name) for name in IDS.names) for row in rows], IDS)
    got = (
        judged(ids, Frames(spark).rules(), capacity=F.lit(10))
        .select("offset", "anomaly")
        .orderBy(F.col("offset"))
        .collect()
    )

    assert [(row["offset"], row["anomaly"]) for row in got][-1] == (31, "FORGOTTEN")
    assert len(got) == 2

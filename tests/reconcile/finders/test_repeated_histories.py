"""Generated histories of lanes whose truth is known, judged in one frame: a kind is an address, and a lane is a history.

The model is a ring and several inputs. It knows in which order the lane interleaved them; the run knows it by sequence numbers only.
"""

import functools
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reconcile.run.history.rings import Rings
from reconcile.spark.schemas import IDS
from tests.property import examples
from tests.reconcile.finders.test_repeated import judged
from tests.reconcile.rows import Frames, cut, named

HISTORIES: Final = examples(2_500)
"""For each of the five kinds: 12,500 with all examples."""
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


class Kind(NamedTuple):
    """How lanes of an address read and write, and what their rings hold."""

    routes: int
    outputs: int
    capacity: int
    max_age: int
    numbered: bool = False


KINDS: Final = {
    "one route": Kind(1, 3, 4, 45),
    "one output partition": Kind(2, 1, 4, 45),
    "two routes, no keys": Kind(2, 3, 4, 45),
    "a ring that holds all": Kind(2, 3, 50, 0),
    "sequence numbers": Kind(2, 3, 4, 45, numbered=True),
}


def _history(address: int, lane: int, dice: random.Random, kind: Kind) -> History:
    """Read the inputs at random, and accept by the rules, except for some faults. With sequence numbers there are many partitions."""
    routes, outputs, capacity, max_age, numbered = kind
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
                "address": address, "id_address": address, "id": name, "lane": lane, "part_number": 0, "timestamp": timestamp,
                "out_address": address, "out_partition": output, "out_offset": ends[output], "group_digest": None,
                "home_digest": hash(name), "value_digest": None, "position": None, "run": 1, **place,
                "sequence": len(made.rows) if numbered else None,
            }
        )  # fmt: skip
        ends[output] += 1
        made.within.append(within)
        made.earlier.append(bool(same))
    return made


@functools.cache
def _histories(address: int, kind: Kind) -> list[History]:
    dice = random.Random(kind.routes + 10 * kind.outputs + 100 * kind.capacity)
    return [_history(address, lane, dice, kind) for lane in range(HISTORIES)]


@functools.cache
def _found(spark: SparkSession) -> dict[tuple[int, int, int], list[tuple[bytes, str]]]:
    """Return the ID and the verdict of each place, of all kinds: each is an address."""
    kinds = [*enumerate(KINDS.values())]
    rows = [row for at, kind in kinds for history in _histories(at, kind) for row in history.rows]
    ids = spark.createDataFrame(
        [tuple(row[name] for name in IDS.names) for row in rows], IDS, verifySchema=False
    )
    verdicts = judged(
        cut(ids.repartition(4)),
        Frames(spark).rules_of(*({"max_age_ms": kind.max_age} for _, kind in kinds)),
        capacity=F.get(F.array(*(F.lit(kind.capacity) for _, kind in kinds)), F.col("address")),
        rings=[
            Rings.from_settings(1, 4) if kind.numbered else Rings.from_settings(0, 1) for _, kind in kinds
        ],
    )
    places: dict[tuple[int, int, int], list[tuple[bytes, str]]] = defaultdict(list)
    for row in verdicts.select("address", "partition", "offset", "id", "anomaly").collect():
        places[row["address"], row["partition"], row["offset"]].append((bytes(row["id"]), row["anomaly"]))
    return places


@pytest.mark.parametrize("name", KINDS)
def test_known_verdicts(spark: SparkSession, name: str) -> None:
    """The run calls no allowed acceptance FORGOTTEN, and passes over none that the rules forbid."""
    kind, address = KINDS[name], [*KINDS].index(name)
    by_id: dict[bytes, Counter[str]] = defaultdict(Counter)
    verdicts: dict[tuple[int, int], str] = {}
    for (at, *place), several in _found(spark).items():
        if at == address:
            [(id_, told)] = several
            verdicts[place[0], place[1]] = told
            by_id[id_][told] += 1

    in_order = kind.routes == 1 or kind.outputs == 1 or kind.numbered
    exact = in_order or kind.capacity > STEPS
    planted = 0
    for history in _histories(address, kind):
        repeats: Counter[bytes] = Counter()
        faults: Counter[bytes] = Counter()
        for accepted, within, earlier in zip(history.rows, history.within, history.earlier, strict=True):
            repeats[accepted["id"]] += earlier
            faults[accepted["id"]] += within
            if in_order:
                verdict = verdicts.get((accepted["partition"], accepted["offset"]))
                assert verdict == ("FORGOTTEN" if within else "OVERRUN" if earlier else None), (
                    accepted,
                    history,
                )
        for id_, count in repeats.items():
            # Nothing tells which of two came first: how many there are is known all the same.
            assert by_id[id_].total() == count, (id_, history)
            if not faults[id_]:
                assert not by_id[id_]["FORGOTTEN"], (id_, history)
            if exact:
                assert by_id[id_]["FORGOTTEN"] == faults[id_], (id_, history)
        planted += faults.total()
    assert planted > HISTORIES / 4


def test_a_fault_behind_an_allowed_repetition(frames: Frames) -> None:
    """An ID that is wrongly accepted right behind an allowed repetition is found, with null keys and a ring of 10.

    It was first accepted long ago through the forward topic.
    """

    def row(name: bytes, at: int, output: int, **more: Any) -> dict[str, Any]:
        home = {"group_digest": None, "home_digest": hash(name)}
        return {"id": name, "offset": at, "out_partition": output, "out_offset": at, **home, **more}

    others = [row(b"%d" % number, number, number % 2) for number in range(30)]
    first = row(b"x", 0, 2, partition=1, forward_offset=0)
    ids = frames.ids(first, *others, row(b"x", 30, 1), row(b"x", 31, 0))
    found = {offset: name for name, offset in named(judged(ids, frames.rules(), capacity=F.lit(10)))}

    assert len(found) == 2
    assert found[31] == "FORGOTTEN"

"""How far apart resends are, and what follows for the ring: on small frames, without Kafka."""

import random
from fractions import Fraction
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from reconcile import distributions, resends
from reconcile.schemas import ACCEPTED, DIVERTED, EVIDENCE, IDS, RESENDS

pytestmark = pytest.mark.timeout(300)


def _evidence(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Of lane 0 of address 0, in its own partition, accepted in their order, unless a row says something else."""
    made = []
    for number, row in enumerate(rows):
        plain = {
            "address": 0, "partition": 0, "offset": number, "has_input": True, "timestamp": 1_000 * number, "lane": 0,
            "waiting": False, "fate": ACCEPTED, "group": b"g",
        }  # fmt: skip
        found = plain | row
        if found["fate"] == ACCEPTED:
            found = {"nth": 1, "out_partition": 0, "out_offset": number} | found
        made.append(tuple(found.get(each) for each in EVIDENCE.names))
    return spark.createDataFrame(made, EVIDENCE)


def _earlier(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    plain = {"address": 0, "lane": 0, "night": 1, "timestamp": 0}
    return spark.createDataFrame([tuple((plain | row).get(each) for each in IDS.names) for row in rows], IDS)


def _apart(
    evidence: DataFrame, earlier: DataFrame, started: int = 0, *, forwarded: bool = False, max_age_ms: int = 0
) -> list[tuple[int, int, int]]:
    """Lane, distance, age of each."""
    seen = resends.seen(evidence, {0}, {0})
    placed = resends.placed(seen, F.lit(started), forwarded=forwarded)
    found = resends.distances(resends.beside(placed, earlier), F.lit(max_age_ms))
    return sorted((row["lane"], row["distance"], row["age"]) for row in found.collect())


def _dropped(identifier: bytes, **row: Any) -> dict[str, Any]:
    return {"id": identifier, "fate": None, **row}


def test_distances(spark: SparkSession) -> None:
    """Twice in a row is 1; what is accepted again counts from the last time; only IDs accepted in the lane turn its ring."""
    evidence = _evidence(
        spark,
        {"id": b"a"}, _dropped(b"a"), _dropped(b"a"),  # 1, 1
        {"id": b"b"}, {"id": None}, {"id": b"x", "lane": 1, "partition": 1}, {"id": b"c"},
        {"id": b"a", "fate": DIVERTED, "nth": 1},  # 3
        {"id": b"b"},  # 2
        _dropped(b"b"),  # 1
        _dropped(b"waits", waiting=True), _dropped(b"unknown"), _dropped(b"x"),
    )  # fmt: skip

    assert _apart(evidence, _earlier(spark)) == [(0, 1, 1), (0, 1, 1), (0, 1, 2), (0, 2, 8), (0, 3, 8)]


def test_originals_of_earlier_nights(spark: SparkSession) -> None:
    """A lane's IDs are counted on from night to night; what an earlier version kept has no place, and no distance."""
    evidence = _evidence(spark, {"id": b"n"}, _dropped(b"a"), {"id": b"b"}, _dropped(b"old"))
    earlier = _earlier(
        spark, {"id": b"a", "position": 90}, {"id": b"a", "position": 70}, {"id": b"b", "position": 98}, {"id": b"old"}
    )  # fmt: skip

    assert [distance for _, distance, _ in _apart(evidence, earlier, 100)] == [3, 11]


def test_what_is_too_old_is_no_question_of_size(spark: SparkSession) -> None:
    """Accepted again because of ``id_max_age``: no ring would have caught it."""
    evidence = _evidence(spark, {"id": b"a"}, {"id": b"b"}, {"id": b"a"}, {"id": b"b", "timestamp": 9_999})

    assert [each[1] for each in _apart(evidence, _earlier(spark), max_age_ms=2_000)] == [2]


def test_what_an_original_is_not(spark: SparkSession) -> None:
    """A record before the ID was first accepted repeats nothing, though the next is accepted at once."""
    evidence = _evidence(spark, _dropped(b"a"), {"id": b"a"})

    assert _apart(evidence, _earlier(spark)) == []


def test_forwarded(spark: SparkSession) -> None:
    """The output tells the order of a lane's two inputs; a resend came no later than the next accepted of its own."""
    forwarded = {"partition": 1}
    evidence = _evidence(
        spark,
        {"id": b"a"},
        {"id": b"f", **forwarded, "offset": 0, "forward_offset": 0},
        {"id": b"b", "offset": 1},
        _dropped(b"a", offset=2),  # before c: a, f, b, and perhaps g
        {"id": b"g", **forwarded, "offset": 1, "forward_offset": 5},
        {"id": b"c", "offset": 3},
        _dropped(b"f", **forwarded, offset=2, forward_offset=6),  # after g; perhaps after all: f, b, g, c
    )

    assert [each[1] for each in _apart(evidence, _earlier(spark), forwarded=True)] == [4, 4]


@pytest.mark.parametrize("outputs", [1, 3])
def test_distances_are_never_too_small(spark: SparkSession, outputs: int) -> None:
    """Random histories of lanes with two inputs: no distance is below the true one; with one input each is the true one."""
    rng = random.Random(outputs)
    rows: list[dict[str, Any]] = []
    true: dict[int, list[int]] = {lane: [] for lane in range(6)}
    written = [0] * outputs
    for lane in range(6):
        share = (0.0, 0.0, 0.02, 0.1, 0.5, 0.5)[lane]  # of what is forwarded
        ends, history = [0, 0], list[bytes]()
        for _ in range(120):
            way = int(rng.random() < share)
            place = {
                "lane": lane, "partition": lane + 10 * way, "offset": ends[way], "forward_offset": ends[way] if way else None,
            }  # fmt: skip
            ends[way] += 1
            if history and rng.random() < 0.3:
                original = rng.choice(history)
                true[lane].append(len(history) - history.index(original))
                rows.append(_dropped(original, **place))
                continue
            output = rng.randrange(outputs)
            history.append(b"%d-%d" % (lane, len(history)))
            rows.append({"id": history[-1], **place, "out_partition": output, "out_offset": written[output]})
            written[output] += 1

    seen = resends.seen(_evidence(spark, *rows), {0}, {0})
    placed = resends.placed(seen, F.lit(0), forwarded=True)
    found = resends.distances(resends.beside(placed, _earlier(spark)), F.lit(0)).collect()
    measured = {lane: sorted(row["distance"] for row in found if row["lane"] == lane) for lane in true}

    for lane, distances in true.items():
        assert len(measured[lane]) == len(distances)
        # Sorted, each at least as large: else one would be too small.
        assert all(seen >= real for seen, real in zip(measured[lane], sorted(distances), strict=True))
    assert [measured[lane] for lane in (0, 1)] == [sorted(true[lane]) for lane in (0, 1)]
    # With half of the records forwarded and one output the bound is as good as true.
    slack = sum(measured[4]) - sum(true[4])
    assert slack <= (4 * len(true[4]) if outputs == 1 else 60 * len(true[4]))


def test_percentiles(spark: SparkSession) -> None:
    """Counted out: the smallest distance such that at least so many are that far apart or less; addresses by themselves."""
    rng = random.Random(5)
    seen = {
        0: [rng.choice((1, 2, 3, 50, rng.randrange(1, 9_999))) for _ in range(997)],
        1: [7],
        2: [*range(1, 101)],
    }
    rows = [(address, each % 3, each, 1, 1) for address, distances in seen.items() for each in distances]
    frame = resends_frame(spark, rows)

    for confidence in (0.999, 1.0, 0.07, 0.5, 1e-9):
        found = {row["address"]: row for row in distributions.ring(frame, confidence).collect()}
        for address, distances in seen.items():
            expected = [_percentile(distances, each) for each in (str(confidence), "0.5", "0.99")]
            row = found[address]

            assert [row["at"], row["b"], row["c"]] == expected
            assert (row["a"], row["d"]) == (len(distances), max(distances))


def _percentile(values: list[int], share: str) -> int:
    ordered = sorted(values)
    return next(each for n, each in enumerate(ordered, 1) if n >= Fraction(share) * len(ordered))


def resends_frame(spark: SparkSession, rows: list[tuple[int, int, int, int, int]]) -> DataFrame:
    """As a night keeps them."""
    return spark.createDataFrame(rows, RESENDS)


def test_bins(spark: SparkSession) -> None:
    """Powers of two, at their edges too; ages stay as they are."""
    edges = [1, 2, 3, 4, 5, 2**29, 2**29 + 1, 2**40]
    frame = resends_frame(spark, [(0, 0, each, 4, 2) for each in edges])

    found = distributions.bins(frame).collect()

    assert sorted((row["at"], row["a"]) for row in found if row["of"] == "distance") == [
        (1, 2), (2, 2), (4, 4), (8, 2), (2**29, 2), (2**30, 2), (2**40, 2),
    ]  # fmt: skip
    assert [(row["at"], row["a"]) for row in found if row["of"] == "age"] == [(4, 16)]


def test_moments_and_groups(spark: SparkSession) -> None:
    """What came in by time, orphans no duplicates; groups by size, and the largest by name."""
    evidence = _evidence(
        spark,
        *({"id": b"%d" % n, "group": b"big", "timestamp": 1_000} for n in range(5)),
        _dropped(b"1", group=b"big", timestamp=11_999), _dropped(b"lost", timestamp=12_000, group=None),
        {"id": b"9", "group": b"\xff", "timestamp": 0},
        {"id": b"9", "fate": ACCEPTED, "nth": 2, "timestamp": 1_000},
    )  # fmt: skip
    orphans = evidence.where("id = 'lost'")

    moments = distributions.moments(evidence, orphans, [10_000], resends.among("address", {0})).collect()
    groups = distributions.groups(evidence).collect()

    assert sorted((row["at"], row["a"], row["b"], row["c"]) for row in moments) == [
        (0, 5, 5, 0),
        (10_000, 2, 0, 1),
    ]
    assert sorted((row["at"], row["a"], row["b"]) for row in groups if row["of"] == "groups") == [
        (1, 1, 1),
        (8, 1, 6),
    ]
    assert [(row["at"], bytes(row["name"]), row["a"]) for row in groups if row["of"] == "largest"] == [
        (1, b"big", 6), (2, b"\xff", 1),
    ]  # fmt: skip


def test_lane_counts_as_a_literal(spark: SparkSession) -> None:
    """By address and lane; 0 where there is none, beyond the end too."""
    rows = spark.createDataFrame([(0, 0), (0, 2), (0, 9), (1, 0), (2, 1)], "address int, lane int")
    looked_up = resends.by_lane([{0: 5, 2: 7}, {}, {1: 2**40}])

    assert [row[0] for row in rows.select(looked_up).collect()] == [5, 7, 0, 0, 2**40]

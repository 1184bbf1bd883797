"""Distances of resends, and their consequence for the ring: on small frames, without Kafka."""

import random
from collections.abc import Collection
from fractions import Fraction
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reconcile.anomalies.finders import originals
from reconcile.page.report_data import NAME_MAX
from reconcile.run.frames import distributions
from reconcile.run.frames.distributions import STRAYS
from reconcile.run.frames.evidence import accepted_ids
from reconcile.run.measures import repeated_ids, resend_distance
from reconcile.spark.schemas import ACCEPTED, ANOMALIES, DIVERTED, EVIDENCE, IDS, RESENDS


def _evidence(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Return records of lane 0 of address 0, in its own partition, accepted in their order, unless a row has other values."""
    made = []
    for number, row in enumerate(rows):
        plain = {
            "address": 0, "partition": 0, "offset": number, "has_input": True, "timestamp": 1_000 * number, "lane": 0,
            "waiting": False, "fate": ACCEPTED, "group": b"g", "part_number": 0, "part_address": 0, "out_address": 0,
            "resent": False, "after_new": False,
        }  # fmt: skip
        found = plain | row
        found |= {"whole": found["fate"], "ids": int(found.get("id") is not None)}
        if found["fate"] == ACCEPTED:
            found = {"nth": 1, "out_partition": 0, "out_offset": number} | found
        made.append(tuple(found.get(name) for name in EVIDENCE.names))
    return spark.createDataFrame(made, EVIDENCE)


def _earlier(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    plain = {"address": 0, "id_address": 0, "part_number": 0, "lane": 0, "run": 1, "timestamp": 0}
    return spark.createDataFrame([tuple((plain | row).get(name) for name in IDS.names) for row in rows], IDS)


def _apart(
    evidence: DataFrame, earlier: DataFrame, started: int = 0, **more: Any
) -> list[tuple[int, int, int]]:
    found = _distances(evidence, earlier, started, **more)
    return sorted((row["lane"], row["distance"], row["age"]) for row in found.collect())


def _distances(
    evidence: DataFrame,
    earlier: DataFrame,
    started: int = 0,
    *,
    forwarded: Collection[int] = (),
    max_age_ms: int = 0,
    capacity: int = 2**62,
) -> DataFrame:
    seen = resend_distance.seen(evidence, {0}, {0})
    placed = resend_distance.placed(seen, F.lit(started), [forwarded])
    digests = _digests(evidence, earlier)
    chosen = repeated_ids.among(resend_distance.beside(placed, earlier), digests, 1)
    return resend_distance.distances(chosen, F.lit(max_age_ms), F.lit(capacity))


def _digests(evidence: DataFrame, earlier: DataFrame) -> DataFrame:
    ids = accepted_ids(evidence, 2).select(*IDS.names).unionByName(earlier)
    return repeated_ids.digests(ids, evidence.where(originals.REPEATING), 2)


def _dropped(identifier: bytes, **row: Any) -> dict[str, Any]:
    return {"id": identifier, "fate": None, **row}


def test_distances(spark: SparkSession) -> None:
    """An ID that comes twice in a row has distance 1, and an ID accepted again counts from the last time.

    Only IDs accepted in the lane turn its ring.
    """
    evidence = _evidence(
        spark,
        {"id": b"a"}, _dropped(b"a"), _dropped(b"a"),  # 1, 1
        {"id": b"b"}, {"id": None}, {"id": b"x", "lane": 1, "partition": 1}, {"id": b"c"},
        {"id": b"a", "fate": DIVERTED, "nth": 1},  # 3
        {"id": b"b"},  # 2
        _dropped(b"b"),  # 1
        _dropped(b"waits", waiting=True), _dropped(b"unknown"), _dropped(b"x"),
        _dropped(b"a", resent=True), {"id": b"a", "fate": DIVERTED, "nth": 1, "resent": True},  # by their hops: no ring caught them
    )  # fmt: skip

    assert _apart(evidence, _earlier(spark)) == [(0, 1, 1), (0, 1, 1), (0, 1, 2), (0, 2, 8), (0, 3, 8)]


def test_what_was_accepted_again_is_not_a_conflict(spark: SparkSession) -> None:
    """Conflicts are among the duplicates: a message beyond the ring is not one, whatever its value."""
    evidence = _evidence(
        spark,
        {"id": b"a", "value_digest": 1}, _dropped(b"a", value_digest=1), _dropped(b"a", value_digest=2),
        {"id": b"a", "value_digest": 3}, _dropped(b"a", value_digest=3),
    )  # fmt: skip
    found = _distances(evidence, _earlier(spark)).collect()

    assert (len(found), sum(row["conflict"] for row in found)) == (4, 1)


def test_originals_of_earlier_runs(spark: SparkSession) -> None:
    """A lane's IDs are counted on from run to run."""
    evidence = _evidence(spark, {"id": b"n"}, _dropped(b"a"), {"id": b"b"})
    earlier = _earlier(
        spark, {"id": b"a", "position": 90}, {"id": b"a", "position": 70}, {"id": b"b", "position": 98}
    )  # fmt: skip

    assert [distance for _, distance, _ in _apart(evidence, earlier, 100)] == [3, 11]


def test_what_is_too_old_is_no_question_of_size(spark: SparkSession) -> None:
    """No ring would have caught an ID that is accepted again because of ``id_max_age``."""
    evidence = _evidence(spark, {"id": b"a"}, {"id": b"b"}, {"id": b"a"}, {"id": b"b", "timestamp": 9_999})

    assert [item[1] for item in _apart(evidence, _earlier(spark), max_age_ms=2_000)] == [2]


def test_what_was_caught_was_within_the_ring(spark: SparkSession) -> None:
    """A caught resend is never further away than the ring holds, even a forwarded one in a lane with traffic of its own.

    The ring gives no bound for an ID that was accepted again.
    """
    own = [{"id": b"own-%d" % number, "out_offset": number + 1} for number in range(50)]
    forwarded = {"partition": 1, "forward_offset": 0}
    evidence = _evidence(
        spark, *own, {"id": b"own-1", "offset": 50, "out_offset": 51},
        {"id": b"f", **forwarded, "offset": 0, "out_offset": 0},
        _dropped(b"f", **(forwarded | {"forward_offset": 1}), offset=1),
    )  # fmt: skip
    found = {
        capacity: [item[1] for item in _apart(evidence, _earlier(spark), forwarded={0}, capacity=capacity)]
        for capacity in (10, 1_000)
    }

    assert found == {10: [10, 49], 1_000: [49, 52]}


@pytest.mark.parametrize("limit", [0, 10])
def test_only_what_repeats_is_compared(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """IDs that came once are left out before anything is sorted, also of earlier runs; with few that repeat and with many."""
    monkeypatch.setattr(repeated_ids, "SENT_MAX", limit)
    evidence = _evidence(
        spark, {"id": b"a"}, _dropped(b"a"), {"id": b"b"}, {"id": b"c"}, _dropped(b"d"), _dropped(b"n")
    )
    earlier = _earlier(spark, *({"id": name, "position": 0} for name in (b"c", b"d", b"e", b"o", b"o")))
    seen = resend_distance.seen(evidence, {0}, {0})
    rows = resend_distance.beside(resend_distance.placed(seen, F.lit(0), [()]), earlier)
    digests = _digests(evidence, earlier)
    chosen = repeated_ids.among(rows, digests, 4)

    assert sorted(bytes(row["id"]) for row in chosen.collect()) == [b"a", b"a", b"c", b"c", b"d", b"d"]
    assert chosen.columns == rows.columns
    assert sorted(row["again"] for row in digests.collect()) == [False, False, True]  # c


def test_what_an_original_is_not(spark: SparkSession) -> None:
    """A record before the ID was first accepted repeats nothing, though the next is accepted at once."""
    evidence = _evidence(spark, _dropped(b"a"), {"id": b"a"})

    assert _apart(evidence, _earlier(spark)) == []


def test_forwarded(spark: SparkSession) -> None:
    """The output gives the order of a lane's two inputs; a resend came no later than the next accepted record of its input."""
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

    assert [item[1] for item in _apart(evidence, _earlier(spark), forwarded={0})] == [4, 4]


@pytest.mark.parametrize(("outputs", "capacity"), [(1, 1_000), (3, 1_000), (1, 30), (3, 30)])
def test_distances_are_never_too_small(spark: SparkSession, outputs: int, capacity: int) -> None:
    """No distance is below the true one, in random histories of lanes with two inputs; with one input each is the true one.

    Once the ring has turned over, a resend is accepted again; no caught resend is further away than the ring holds.
    """
    rng = random.Random(outputs)
    rows: list[dict[str, Any]] = []
    true: dict[int, list[int]] = {lane: [] for lane in range(6)}
    written = [0] * outputs
    for lane in range(6):
        share = (0.0, 0.0, 0.02, 0.1, 0.5, 0.5)[lane]  # of what is forwarded
        ends, history, last = [0, 0], list[bytes](), dict[bytes, int]()
        for _ in range(120):
            way = int(rng.random() < share)
            place = {
                "lane": lane, "partition": lane + 10 * way, "offset": ends[way], "forward_offset": ends[way] if way else None,
            }  # fmt: skip
            ends[way] += 1
            history.append(b"%d-%d" % (lane, len(history)))
            if last and rng.random() < 0.3:
                history[-1] = rng.choice(sorted(last))
                true[lane].append(len(history) - 1 - last[history[-1]])
                if true[lane][-1] <= capacity:
                    rows.append(_dropped(history.pop(), **place))
                    continue
            output = rng.randrange(outputs)
            last[history[-1]] = len(history) - 1
            rows.append({"id": history[-1], **place, "out_partition": output, "out_offset": written[output]})
            written[output] += 1

    found = _apart(_evidence(spark, *rows), _earlier(spark), forwarded=range(2, 6), capacity=capacity)
    measured = {lane: sorted(distance for number, distance, _ in found if number == lane) for lane in true}

    for lane, distances in true.items():
        assert len(measured[lane]) == len(distances)
        # Sorted, each at least as large: else one would be too small.
        assert all(seen >= real for seen, real in zip(measured[lane], sorted(distances), strict=True))
        assert sum(number > capacity for number in measured[lane]) == sum(
            distance > capacity for distance in distances
        )
    assert [measured[lane] for lane in (0, 1)] == [sorted(true[lane]) for lane in (0, 1)]
    # With half of the records forwarded and one output the bound is as good as true.
    slack = sum(measured[4]) - sum(true[4])
    assert slack <= (4 * len(true[4]) if outputs == 1 else 60 * len(true[4]))


def test_percentiles(spark: SparkSession) -> None:
    """A percentile is the smallest distance that at least this many resends do not exceed; addresses count by themselves."""
    rng = random.Random(5)
    seen = {
        0: [rng.choice((1, 2, 3, 50, rng.randrange(1, 9_999))) for _ in range(997)],
        1: [7],
        2: [*range(1, 101)],
    }
    rows = [
        (address, distance % 3, distance, 1, 1)
        for address, distances in seen.items()
        for distance in distances
    ]
    frame = resends_frame(spark, rows)

    for confidence in (0.999, 1.0, 0.07, 0.5, 1e-9):
        found = {row["address"]: row for row in distributions.ring(frame, confidence).collect()}
        for address, distances in seen.items():
            expected = [_percentile(distances, name) for name in (str(confidence), "0.5", "0.99")]
            row = found[address]

            assert [row["at"], row["b"], row["c"]] == expected
            assert (row["a"], row["d"]) == (len(distances), max(distances))
    by_lane = {(row["address"], row["at"]): row for row in distributions.ring_by_lane(frame).collect()}
    assert set(by_lane) == {
        (address, distance % 3) for address, distances in seen.items() for distance in distances
    }
    for (address, lane), row in by_lane.items():
        here = [item for item in seen[address] if item % 3 == lane]

        assert [row["a"], row["b"], row["c"]] == [len(here), _percentile(here, "0.99"), max(here)]


def _percentile(values: list[int], share: str) -> int:
    ordered = sorted(values)
    return next(number for n, number in enumerate(ordered, 1) if n >= Fraction(share) * len(ordered))


def resends_frame(spark: SparkSession, rows: list[tuple[int, int, int, int, int]]) -> DataFrame:
    return spark.createDataFrame([(*row, 0) for row in rows], RESENDS)


def test_conflicts(spark: SparkSession) -> None:
    """Conflicts are summed by address; rows of an earlier release have none."""
    rows = [(0, 0, 1, 1, 5, 2), (0, 1, 7, 2, 3, 3), (1, 0, 1, 1, 4, 0), (2, 0, 1, 1, 4, None)]
    found = distributions.conflicts(spark.createDataFrame(rows, RESENDS)).collect()

    assert {row["address"]: row["a"] for row in found} == {0: 5, 1: 0, 2: 0}


def test_bins(spark: SparkSession) -> None:
    """Distances go into bins of powers of two, at their edges too; ages stay as they are."""
    edges = [1, 2, 3, 4, 5, 2**29, 2**29 + 1, 2**40]
    frame = resends_frame(spark, [(0, 0, edge, 4, 2) for edge in edges])

    found = distributions.bins(frame).collect()

    assert sorted((row["at"], row["a"]) for row in found if row["of"] == "distance") == [
        (1, 2), (2, 2), (4, 4), (8, 2), (2**29, 2), (2**30, 2), (2**40, 2),
    ]  # fmt: skip
    assert [(row["at"], row["a"]) for row in found if row["of"] == "age"] == [(4, 16)]


def test_moments_and_groups(spark: SparkSession) -> None:
    """Counts by time put outliers apart and count no orphan as a duplicate; groups count by size, the largest by name."""
    huge = b"x" * 2_000
    evidence = _evidence(
        spark,
        *({"id": b"%d" % n, "group": b"big", "timestamp": 1_000} for n in range(5)),
        _dropped(b"1", group=b"big", timestamp=11_999), _dropped(b"lost", timestamp=12_000, group=None),
        {"id": b"9", "group": b"\xff", "timestamp": 0}, {"id": b"8", "group": huge, "timestamp": 99},
        {"id": b"9", "fate": ACCEPTED, "nth": 2, "timestamp": 1_000},
    )  # fmt: skip
    orphans = evidence.where("id = 'lost'")

    times = [(1_000, 1_000_000)]
    moments = distributions.moments(evidence, orphans, times, resend_distance.among("address", {0})).collect()
    groups = distributions.groups(evidence).collect()

    assert sorted((row["at"], row["a"], row["b"], row["c"]) for row in moments) == [
        (STRAYS, 1, 1, 0),
        (0, 5, 5, 0),
        (10_000, 2, 0, 1),
    ]
    assert sorted((row["at"], row["a"], row["b"]) for row in groups if row["of"] == "groups") == [
        (1, 2, 2),
        (8, 1, 6),
    ]
    assert [(row["at"], bytes(row["name"]), row["a"]) for row in groups if row["of"] == "largest"] == [
        (1, b"big", 6), (2, huge[: NAME_MAX + 1], 1), (3, b"\xff", 1),
    ]  # fmt: skip


def test_findings_are_small(spark: SparkSession) -> None:
    """The report keeps the first rows of each anomaly, and the beginnings of IDs, groups and details, which may be long."""
    long = {"id": b"i" * 2_000, "group": b"g" * 2_000, "detail": "d" * 2_000, "anomaly": "TORN", "address": 0}
    rows = [{**long, "offset": offset} for offset in (7, 5, 6)]
    frame = spark.createDataFrame(
        [tuple(row.get(name) for name in ANOMALIES.names) for row in rows], ANOMALIES
    )
    found = distributions.first_of(frame, 2).collect()

    assert [row["offset"] for row in found] == [5, 6]
    assert {len(row[name]) for row in found for name in ("id", "group", "detail")} == {NAME_MAX + 1}


def test_lane_counts_as_a_literal(spark: SparkSession) -> None:
    """The count of an address and lane is 0 if there is none, beyond the end too."""
    rows = spark.createDataFrame([(0, 0), (0, 2), (0, 9), (1, 0), (2, 1)], "address int, lane int")
    looked_up = resend_distance.by_lane([{0: 5, 2: 7}, {}, {1: 2**40}])

    assert [row[0] for row in rows.select(looked_up).collect()] == [5, 7, 0, 0, 2**40]

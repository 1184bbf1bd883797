"""Distances of resends, and their consequence for the ring: on small frames, without Kafka.

Each case is an address. All cases are judged in one job.
"""

import functools
import random
from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reconcile.anomalies.finders import originals
from reconcile.page.report_data import NAME_MAX
from reconcile.run.frames import distributions
from reconcile.run.frames.distributions import STRAYS
from reconcile.run.frames.evidence import accepted_ids
from reconcile.run.measures import repeated_ids, resend_distance
from reconcile.spark.columns import small
from reconcile.spark.schemas import ACCEPTED, DIVERTED, EVIDENCE, IDS, INT, RESENDS, schema
from reconcile.spark.topic_reader import concatenated
from tests.reconcile.rows import Frames, cut

OF_NULL, OF_EMPTY = 42, -7_444_071_767_201_028_348
"""Spark's xxhash64 of null and of no bytes."""
Row = dict[str, Any]
Distance = tuple[int, int, int]
"""Lane, distance, age in seconds."""


class Case(NamedTuple):
    """Records of an address."""

    rows: Sequence[Row]
    """By default records of lane 0 in its own partition, accepted in their order, one a second."""
    expected: Sequence[Distance] = ()
    earlier: Sequence[Row] = ()
    started: int = 0
    forwarded: Collection[int] = ()
    max_age_ms: int = 0
    capacity: int = 2**62


def _dropped(identifier: bytes, **row: Any) -> Row:
    return {"id": identifier, "fate": None, **row}


def _evidence(frames: Frames, *cases: Sequence[Row]) -> DataFrame:
    rows = [
        {"address": at, "id": None, "offset": n, "timestamp": 1_000 * n, "out_offset": n, **row}
        for at, case in enumerate(cases)
        for n, row in enumerate(case)
    ]
    return cut(frames.evidence(*rows).select(*EVIDENCE.names))


def _earlier(frames: Frames, *cases: Sequence[Row]) -> DataFrame:
    rows = [{"address": at, "id_address": at, **row} for at, case in enumerate(cases) for row in case]
    return frames.ids(*rows)


def _digests(evidence: DataFrame, earlier: DataFrame) -> DataFrame:
    ids = accepted_ids(evidence, 2).select(*IDS.names).unionByName(earlier)
    return repeated_ids.digests(ids, evidence.where(originals.REPEATING), 2)


def _caught(capacity: int, expected: Sequence[Distance]) -> Case:
    """Let a lane with traffic of its own catch a forwarded resend, and accept an ID again."""
    own = [{"id": b"own-%d" % number, "out_offset": number + 1} for number in range(50)]
    forwarded = {"partition": 1, "forward_offset": 0}
    rows = [
        *own, {"id": b"own-1", "offset": 50, "out_offset": 51}, {"id": b"f", **forwarded, "offset": 0, "out_offset": 0},
        _dropped(b"f", **(forwarded | {"forward_offset": 1}), offset=1),
    ]  # fmt: skip
    return Case(rows, expected, forwarded={0}, capacity=capacity)


FORWARDED: Row = {"partition": 1}
CASES = {
    # An ID that comes twice in a row has distance 1, and one accepted again counts from the last time. Only accepted IDs turn the ring.
    "distances": Case(
        [
            {"id": b"a"}, _dropped(b"a"), _dropped(b"a"),  # 1, 1
            {"id": b"b"}, {"id": None}, {"id": b"x", "lane": 1, "partition": 1}, {"id": b"c"},
            {"id": b"a", "fate": DIVERTED},  # 3
            {"id": b"b"},  # 2
            _dropped(b"b"),  # 1
            _dropped(b"waits", waiting=True), _dropped(b"unknown"), _dropped(b"x"),
            _dropped(b"a", resent=True), {"id": b"a", "fate": DIVERTED, "resent": True},  # by their hops: no ring caught them
        ],
        [(0, 1, 1), (0, 1, 1), (0, 1, 2), (0, 2, 8), (0, 3, 8)],
    ),
    "a lane's IDs are counted on from run to run": Case(
        [{"id": b"n"}, _dropped(b"a"), {"id": b"b"}],
        [(0, 3, 2), (0, 11, 1)],
        earlier=[{"id": b"a", "position": 90}, {"id": b"a", "position": 70}, {"id": b"b", "position": 98}],
        started=100,
    ),
    "no ring would catch an ID that is too old": Case(
        [{"id": b"a"}, {"id": b"b"}, {"id": b"a"}, {"id": b"b", "timestamp": 9_999}], [(0, 2, 2)], max_age_ms=2_000
    ),
    # A caught resend is never further away than the ring holds; the ring gives no bound for an ID that was accepted again.
    "a small ring caught it": _caught(10, [(0, 10, 1), (0, 49, 64)]),
    "a large ring caught it": _caught(1_000, [(0, 49, 64), (0, 52, 1)]),
    "a record before its ID repeats nothing": Case([_dropped(b"a"), {"id": b"a"}]),
    # The output gives the order of a lane's two inputs; a resend came no later than the next accepted record of its input.
    "forwarded": Case(
        [
            {"id": b"a"},
            {"id": b"f", **FORWARDED, "offset": 0, "forward_offset": 0},
            {"id": b"b", "offset": 1},
            _dropped(b"a", offset=2),  # before c: a, f, b, and perhaps g
            {"id": b"g", **FORWARDED, "offset": 1, "forward_offset": 5},
            {"id": b"c", "offset": 3},
            _dropped(b"f", **FORWARDED, offset=2, forward_offset=6),  # after g; perhaps after all: f, b, g, c
        ],
        [(0, 4, 4), (0, 4, 8)],
        forwarded={0},
    ),
    # Conflicts are among the duplicates: a message beyond the ring is not one, whatever its value.
    "conflicts": Case(
        [
            {"id": b"a", "value_digest": 1}, _dropped(b"a", value_digest=1), _dropped(b"a", value_digest=2),
            {"id": b"a", "value_digest": 3}, _dropped(b"a", value_digest=3),
        ],
        [(0, 1, 1), (0, 1, 1), (0, 1, 2), (0, 1, 4)],
    ),
    "null and empty are no conflict": Case(
        [{"id": b"a", "value_digest": OF_NULL}, _dropped(b"a", value_digest=OF_EMPTY)], [(0, 1, 1)]
    ),
}  # fmt: skip


CAPACITY: Final = 30
SHARES: Final = (0.0, 0.0, 0.02, 0.1, 0.5, 0.5)
"""Share of forwarded records, by lane."""


def _random_traffic() -> tuple[Case, dict[int, list[int]]]:
    """Return random traffic of six lanes with two inputs and three outputs, and the true distances of each lane."""
    rng = random.Random(3)
    rows: list[Row] = []
    true: dict[int, list[int]] = {lane: [] for lane in range(6)}
    written = [0] * 3
    for lane, share in enumerate(SHARES):
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
                if true[lane][-1] <= CAPACITY:
                    rows.append(_dropped(history.pop(), **place))
                    continue
            output = rng.randrange(3)
            last[history[-1]] = len(history) - 1
            rows.append({"id": history[-1], **place, "out_partition": output, "out_offset": written[output]})
            written[output] += 1
    return Case(rows, forwarded=range(2, 6), capacity=CAPACITY), true


RANDOM, TRUE = _random_traffic()


@functools.cache
def _found(frames: Frames) -> dict[str, list[tuple[Distance, bool]]]:
    """Return the resends of each case, and whether each is a conflict."""
    cases = CASES | {"random": RANDOM}
    evidence = _evidence(frames, *(case.rows for case in cases.values()))
    earlier = _earlier(frames, *(case.earlier for case in cases.values()))
    addresses = range(len(cases))
    started, max_age_ms, capacity = (
        distributions.by_address([getattr(case, name) for case in cases.values()])
        for name in ("started", "max_age_ms", "capacity")
    )
    seen = resend_distance.seen(evidence, addresses, addresses)
    placed = resend_distance.placed(seen, started, [case.forwarded for case in cases.values()])
    beside = resend_distance.beside(placed, earlier)
    chosen = repeated_ids.among(beside, _digests(evidence, earlier), 1)
    by_case: dict[str, list[tuple[Distance, bool]]] = {name: [] for name in cases}
    for row in resend_distance.distances(chosen, max_age_ms, capacity).collect():
        distance = (row["lane"], row["distance"], row["age"])
        by_case[[*cases][row["address"]]].append((distance, row["conflict"]))
    return by_case


@pytest.mark.parametrize("name", CASES)
def test_distances(frames: Frames, name: str) -> None:
    """Each resend counts the IDs since its original; one has another value."""
    found = _found(frames)[name]

    assert sorted(distance for distance, _ in found) == sorted(CASES[name].expected)
    assert sum(conflict for _, conflict in found) == (name == "conflicts")


def test_distances_are_never_too_small(frames: Frames) -> None:
    """No distance is below the true one; with one input each is the true one.

    Once the ring has turned over, a resend is accepted again; no caught resend is further away than the ring holds.
    """
    found = _found(frames)["random"]
    measured = {lane: sorted(distance for (at, distance, _), _ in found if at == lane) for lane in TRUE}

    for lane, distances in TRUE.items():
        # Sorted, each at least as large: else one would be too small.
        assert all(seen >= real for seen, real in zip(measured[lane], sorted(distances), strict=True))
        assert sum(number > CAPACITY for number in measured[lane]) == sum(
            number > CAPACITY for number in distances
        )
    assert [measured[lane] for lane in (0, 1)] == [sorted(TRUE[lane]) for lane in (0, 1)]


def test_only_what_repeats_is_compared(frames: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    """IDs that came once are left out before anything is sorted, also of earlier runs; with few that repeat and with many."""
    evidence = _evidence(
        frames, [{"id": b"a"}, _dropped(b"a"), {"id": b"b"}, {"id": b"c"}, _dropped(b"d"), _dropped(b"n")]
    )
    earlier = _earlier(frames, [{"id": name, "position": 0} for name in (b"c", b"d", b"e", b"o", b"o")])
    seen = resend_distance.seen(evidence, {0}, {0})
    rows = resend_distance.beside(resend_distance.placed(seen, F.lit(0), [()]), earlier)
    digests = cut(_digests(evidence, earlier))
    chosen = []
    for limit in (0, 10):
        monkeypatch.setattr(repeated_ids, "SENT_MAX", limit)
        chosen.append(repeated_ids.among(rows, digests, 4))
        assert chosen[-1].columns == rows.columns

    both = concatenated([frame.withColumn("limit", F.lit(n)) for n, frame in enumerate(chosen)]).collect()
    for limit in (0, 1):
        ids = sorted(bytes(row["id"]) for row in both if row["limit"] == limit)
        assert ids == [b"a", b"a", b"c", b"c", b"d", b"d"]
    assert sorted(row["again"] for row in digests.collect()) == [False, False, True]  # c


def test_percentiles(spark: SparkSession) -> None:
    """A percentile is the smallest distance that at least this many resends do not exceed; addresses count by themselves."""
    rng = random.Random(5)
    many = [rng.choice((1, 2, 3, 50, rng.randrange(1, 9_999))) for _ in range(997)]
    seen = {0: many, 1: [7], 2: [*range(1, 101)]}
    rows = [(at, distance % 3, distance, 1, 1, 0) for at, distances in seen.items() for distance in distances]
    frame = cut(small(spark, rows, RESENDS))
    rings = [
        distributions.ring(frame, confidence).withColumn("confidence", F.lit(confidence))
        for confidence in (0.999, 1.0, 0.07, 0.5, 1e-9)
    ]

    found = concatenated(rings).collect()
    assert len(found) == len(rings) * len(seen)
    for row in found:
        distances = seen[row["address"]]
        expected = [_percentile(distances, name) for name in (str(row["confidence"]), "0.5", "0.99")]
        assert [row["at"], row["b"], row["c"]] == expected
        assert (row["a"], row["d"]) == (len(distances), max(distances))
    by_lane = {(row["address"], row["at"]): row for row in distributions.ring_by_lane(frame).collect()}
    assert set(by_lane) == {(row[0], row[1]) for row in rows}
    for (address, lane), row in by_lane.items():
        here = [item for item in seen[address] if item % 3 == lane]
        assert [row["a"], row["b"], row["c"]] == [len(here), _percentile(here, "0.99"), max(here)]


def _percentile(values: list[int], share: str) -> int:
    ordered = sorted(values)
    return next(number for n, number in enumerate(ordered, 1) if n >= Fraction(share) * len(ordered))


def test_bins(spark: SparkSession) -> None:
    """Distances go into bins of powers of two, at their edges too; ages stay as they are.

    Conflicts are summed by address; rows of an earlier release have none.
    """
    edges = [1, 2, 3, 4, 5, 2**29, 2**29 + 1, 2**40]
    rows = [(0, 0, edge, 4, 2, 3) for edge in edges]
    frame = cut(small(spark, [*rows, (1, 0, 1, 1, 4, 0), (2, 0, 1, 1, 4, None)], RESENDS))
    found = distributions.bins(frame).where("address = 0").collect()
    conflicts = distributions.conflicts(frame).collect()

    assert sorted((row["at"], row["a"]) for row in found if row["of"] == "distance") == [
        (1, 2), (2, 2), (4, 4), (8, 2), (2**29, 2), (2**30, 2), (2**40, 2),
    ]  # fmt: skip
    assert [(row["at"], row["a"]) for row in found if row["of"] == "age"] == [(4, 16)]
    assert {row["address"]: row["a"] for row in conflicts} == {0: 24, 1: 0, 2: 0}


def test_moments_and_groups(frames: Frames) -> None:
    """Counts by time put outliers apart and count no orphan as a duplicate; groups count by size, the largest by name."""
    huge = b"x" * 2_000
    rows = [
        *({"id": b"%d" % n, "group": b"big", "timestamp": 1_000} for n in range(5)),
        _dropped(b"1", group=b"big", timestamp=11_999), _dropped(b"lost", timestamp=12_000, group=None),
        {"id": b"9", "group": b"\xff", "timestamp": 0}, {"id": b"8", "group": huge, "timestamp": 99},
        {"id": b"9", "fate": ACCEPTED, "nth": 2, "timestamp": 1_000},
    ]  # fmt: skip
    evidence = _evidence(frames, rows)
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


def test_findings_are_small(frames: Frames) -> None:
    """The report keeps the first rows of each anomaly, and the beginnings of IDs, groups and details, which may be long."""
    long = {
        "id": b"i" * 2_000,
        "group": b"g" * 2_000,
        "detail": "d" * 2_000,
        "anomaly": "TORN",
        "address": "a",
    }
    rows = [{**long, "offset": offset} for offset in (7, 5, 6)]
    found = distributions.first_of(frames.anomalies(*rows), 2).collect()

    assert [row["offset"] for row in found] == [5, 6]
    assert {len(row[name]) for row in found for name in ("id", "group", "detail")} == {NAME_MAX + 1}


def test_lane_counts_as_a_literal(spark: SparkSession) -> None:
    """The count of an address and lane is 0 if there is none, beyond the end too."""
    rows = small(spark, [(0, 0), (0, 2), (0, 9), (1, 0), (2, 1)], schema(address=INT, lane=INT))
    looked_up = resend_distance.by_lane([{0: 5, 2: 7}, {}, {1: 2**40}])

    assert [row[0] for row in rows.select(looked_up).collect()] == [5, 7, 0, 0, 2**40]

"""Results of earlier runs, as far as they still count; and the journal's events of rings."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reconcile.anomalies.names import Anomaly, rows
from reconcile.run.frames import journal, ring_numbers
from reconcile.run.frames.frames import Frames
from reconcile.run.frames.journal import Emptied, RingHistory
from reconcile.run.history.cut import AddressCut, Lost, Position, Span, TopicCut
from reconcile.run.history.history import Run
from reconcile.run.history.layout import results_folder
from reconcile.run.history.rings import Regrouped, Rings, regroups
from reconcile.run.measures import counts
from reconcile.run.measures.counts import BACKLOG_READ_MAX
from reconcile.spark.files import LocalFiles
from reconcile.spark.schemas import EVENTS
from ringfence_kafka.config.load import validate


def _cut(name: str, *, recreated: bool = False) -> AddressCut:
    topic = TopicCut(name, "new", [Span(0, 10, 10, 20, 20)], recreated=recreated)
    return AddressCut(topic, TopicCut("forward", "id"), topic, topic, None, ())


def _run(number: int, **topic_ids: str) -> Run:
    positions = {name: Position(id_, (0,), (10,)) for name, id_ in topic_ids.items()}
    return Run(number, None, "2026-11-20", "clean", positions=positions)


def test_resends_of_topics_that_still_are(spark: SparkSession, tmp_path: Path) -> None:
    """A run's own resends count, even of a new topic; earlier ones count for the same topic, and none for a ring that is off."""
    entries: list[dict[str, Any]] = [{"name": "a"}, {"name": "b"}, {"name": "off", "id_cache_size": 0}]
    settings = validate({"addresses": entries})
    cuts = {"a": _cut("a"), "b": _cut("b", recreated=True), "off": _cut("off")}
    frames = Frames(spark, {}, settings.addresses, cuts, LocalFiles(str(tmp_path)))
    schema = "address string, lane int, distance bigint, age bigint, count bigint"
    for run in (1, 2, 3):
        kept = spark.createDataFrame([(cut, 0, 10 * run, 1, 1) for cut in (*cuts, "gone")], schema)
        kept.write.parquet(frames.files.at(results_folder(run), "resends"))
    runs = [_run(2, a="new", b="old", off="new"), _run(1, a="old", b="old", off="new")]

    found = frames.resends(runs, 3)

    assert found is not None
    assert sorted((row["address"], row["distance"]) for row in found.collect()) == [(0, 20), (0, 30), (1, 30)]
    assert frames.resends([], 4) is None


def test_a_gap_stands_where_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """A gap of the input is among inputs, and one of any other topic among outputs; each names its missing offsets."""
    settings = validate({"addresses": [{"name": "a"}]})
    cut = _cut("a")
    cut.input.lost.append(Lost("a", 1, 3, 5, "why"))
    assert cut.forward is not None
    cut.forward.lost.append(Lost("forward", 2, 7, 8, "why"))
    frames = Frames(spark, {}, settings.addresses, {"a": cut}, LocalFiles(str(tmp_path)))
    found = frames.topics_named(rows(frames.gaps(), Anomaly.GAP, F.col("text")))

    columns = ("topic", "partition", "offset", "out_topic", "out_partition", "out_offset", "detail")
    assert [tuple(row[column] for column in columns) for row in found.collect()][:2] == [
        ("a", 1, 3, None, None, None, "offsets 3 to 4: why"),
        ("a", None, None, "forward", 2, 7, "offset 7: why"),
    ]


def test_what_the_journal_tells(spark: SparkSession) -> None:
    """The journal gives each lane's largest ring and the place of its last clear.

    A change of size does not empty a ring; the opening of one that is in memory only does. An event without a lane does not count.
    """
    rows = [
        (0, 0, 1, 5, 6, 20, 20), (0, 0, 3, 7, 8, 20, 20), (0, 0, 4, 9, 9, 20, 4), (0, 1, 2, 5, 5, 4, 400),
        (2, 0, 5, 0, 0, 2, 2), (2, None, 6, 0, 0, 9, 9), (3, 0, 7, 3, 2, 9, 8), (4, 0, 8, 3, 2, 9, 8),
    ]  # fmt: skip
    names = {3: "forgotten", 4: "resized"}
    events = [(*row, names.get(row[0]), False, None, None) for row in rows]
    found = journal.ring_histories(spark.createDataFrame(events, EVENTS))

    assert {address: sorted(value) for address, value in found.items()} == {
        0: [RingHistory(0, 20, Emptied(7, 8)), RingHistory(1, 400, None)],
        2: [RingHistory(0, 2, Emptied(0, 0))],
        3: [RingHistory(0, 9, Emptied(3, 2))],
        4: [RingHistory(0, 9, None)],
    }
    assert journal.ring_histories(None) == {}


def test_rings_of_addresses_beside_a_regrouped_one(spark: SparkSession) -> None:
    """A regrouping changes the ring numbers of its own address alone, wherever the others stand in the file."""
    regrouped = Rings.from_settings(
        0, 2, regroups([Regrouped(5 + lane, lane, 1, 2, (9, 9), 0, 0) for lane in (0, 1)])
    )
    each, one = Rings.from_settings(0, 2), Rings.from_settings(1, 2)
    records = spark.createDataFrame(
        [(address, partition, 10) for address in (0, 1) for partition in (0, 1)],
        "address int, partition int, offset bigint",
    )

    def found(*rings: Rings) -> list[int]:
        return [row[0] for row in records.select(ring_numbers.of_inputs(rings)).collect()]

    assert found(regrouped, each) == [1, 2, 0, 1]
    assert found(one, regrouped) == [0, 0, 1, 2]


def test_the_largest_ring() -> None:
    """The largest ring is that of now, of the journal, or of an earlier run; a ring that is off has none."""
    sizes = {"a": 7, "b": 7, "c": 7, "off": 0}
    entries = [{"name": name, "id_cache_size": size} for name, size in sizes.items()]
    addresses = validate({"addresses": entries}).addresses
    run = _run(1)
    run.summary = {"addresses": {name: {"ring": {"capacity": 9}} for name in ("c", "off")}}
    told = {1: [RingHistory(0, 8, None), RingHistory(1, 5, None)], 3: [RingHistory(0, 8, None)]}

    assert journal.capacities(addresses, journal.largest(addresses, told, [run, _run(2)])) == [7, 8, 9, 0]
    assert journal.capacities(addresses, journal.largest(addresses, {}, [])) == [7, 7, 7, 0]


@pytest.mark.parametrize(
    ("emptied", "recreated", "expected"),
    [
        (Emptied(10, 5), False, True),
        (Emptied(12, 9), False, True),
        (Emptied(9, 5), False, False),
        (Emptied(10, 4), False, False),  # of a lane to which all is forwarded
        (Emptied(10, 4), True, True),
    ],
)
def test_emptied_since_the_last_run(emptied: Emptied, recreated: bool, expected: bool) -> None:
    """A ring was emptied since the last run only if that run judged nothing later in either input of the lane."""
    cut = _cut("a")
    assert cut.forward is not None
    cut.forward.recreated = recreated
    rings = Rings.from_settings(0, 1)

    assert journal.since(cut, rings, 0, emptied, 5) == expected
    assert not journal.since(cut, rings, 1, emptied, 5)


def test_a_long_backlog_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """A long backlog is counted by its offsets, without a broker, and so are short ones of other partitions."""
    settings = validate({"addresses": [{"name": "a"}, {"name": "b"}]})
    frames = Frames(spark, {}, settings.addresses, {}, LocalFiles(str(tmp_path)))
    beyond = {"a": {1: (10, 15)}, "b": {0: (7, 7 + BACKLOG_READ_MAX)}}

    assert counts.backlog(frames, beyond) == {(0, 1): 5, (1, 0): BACKLOG_READ_MAX}
    assert counts.backlog(frames, {}) == {}

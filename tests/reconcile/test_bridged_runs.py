"""Runs of the real path with bridges, judged by two reconciliation runs each: these agree with the fault tests' checker.

The topics and the cluster's state are in memory; all else is the job as it is.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reconcile import job
from reconcile.cluster.admin import TopicFacts
from reconcile.cluster.survey import Survey
from reconcile.run.history.cut import Position, topic_roles
from reconcile.run.history.history import RunHistory
from reconcile.spark import topic_reader
from reconcile.spark.files import LocalFiles
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings
from tests.harness.checker.check import Anomaly, check
from tests.harness.history import History, Record
from tests.property.test_fault_checker_bridges import forget, leave, lose
from tests.support.bridges.lane_runs import LANES, BridgedRun

FEW: Final = 3
"""One for each fault."""
MANY: Final = pytest.param(16, marks=pytest.mark.long)
_COLUMNS: Final = "topic string, partition int, offset bigint, key binary, value binary, timestamp bigint, headers array<struct<key:string,value:binary>>"
_ALLOWED: Final = {Anomaly.OVERRUN, Anomaly.CROSS_LANE}
"""Anomalies that only one of the two reports when nothing shows which record was first."""


@dataclass
class Cluster:
    """State of the cluster at one moment of some runs."""

    settings: Settings
    committed: dict[tuple[str, int], int | None]
    records: Sequence[Record]

    @property
    def survey(self) -> Survey:
        """Survey of the cluster at that moment."""
        roles = {
            address.name: topic_roles(self.settings.app.id, address) for address in self.settings.addresses
        }
        counts = {
            topic: LANES if role in {"input", "forward", "quarantine"} else 2
            for value in roles.values()
            for role, topic in value.items()
        }
        places = [(topic, number) for topic, count in counts.items() for number in range(count)]
        ends = dict.fromkeys(places, 0)
        for record in self.records:
            ends[record.topic, record.partition] = max(
                ends[record.topic, record.partition], record.offset + 1
            )
        facts = {topic: TopicFacts(topic, count, readable=True) for topic, count in counts.items()}
        journal = {"journal": Position("journal", (0,), (0,))}
        return Survey("", roles, facts, self.committed, dict.fromkeys(places, 0), ends, ends, {}, journal)

    def scan(self, spark: SparkSession, folder: Path) -> Callable[..., DataFrame]:
        rows = [(*record[:5], record.timestamp, list(record.headers)) for record in self.records]
        path = str(folder / "records")
        spark.createDataFrame(rows, _COLUMNS).write.mode("overwrite").parquet(path)

        def scanned(_: SparkSession, __: Mapping[str, str], ranges: topic_reader.Ranges) -> DataFrame:
            spans = [(t, n, *span) for t, offset_range in ranges.items() for n, span in offset_range.items()]
            wanted = spark.createDataFrame(spans, "topic string, partition int, begin bigint, until bigint")
            found = spark.read.parquet(path).join(F.broadcast(wanted), on=["topic", "partition"])
            return found.where("offset >= begin and offset < until").select(
                "key", "value", "topic", "partition", "offset", F.timestamp_millis("timestamp").alias("timestamp"),
                F.lit(0).alias("timestampType"), "headers",
            )  # fmt: skip

        return scanned


def _records(run: BridgedRun, accepted: Sequence[Record] | None = None) -> list[Record]:
    """All records in the topics of a run."""
    history = run.history
    forwarded = [
        Record(topic, lane, given.offset, given.key, given.value, tuple(given.headers), given.timestamp)
        for (topic, lane), log in run.logs.items()
        if topic == run.forward
        for given in log
    ]
    outputs = history.accepted if accepted is None else accepted
    return [*history.inputs, *forwarded, *outputs, *history.diverted, *history.quarantined]


def _at(settings: Settings, runs: Sequence[BridgedRun], records: Sequence[Record]) -> Cluster:
    committed = {
        (topic, lane): run.next.get((topic, lane))
        for run in runs
        for topic in (run.name, run.forward)
        for lane in range(LANES)
    }
    return Cluster(settings, committed, list(records))


class Job:
    """Reconciliation runs over topics in memory."""

    def __init__(
        self, spark: SparkSession, folder: Path, runs: Sequence[BridgedRun], patch: pytest.MonkeyPatch
    ) -> None:
        self._spark, self._folder, self._patch = spark, folder, patch
        self.runs = runs
        self.settings = validate(
            {
                "app": {"data_dir": str(folder / "data")},
                "reconcile": {"state_dir": str(folder / "state"), "master": "local[2]"},
                "addresses": [run.keys() for run in runs],
            }
        )

    def run(self, records: Sequence[Record]) -> dict[str, dict[str, int]]:
        """Run once, and return the anomalies by address; zeros left out."""
        cluster = _at(self.settings, self.runs, records)
        runs = RunHistory.load(LocalFiles(self.settings.reconcile.state_dir))
        runs.acknowledge()
        runs = RunHistory.load(LocalFiles(self.settings.reconcile.state_dir))
        self._patch.setattr(topic_reader, "scan", cluster.scan(self._spark, self._folder))
        document = job.judge(self._spark, self.settings, runs, cluster.survey, None)
        return {
            name: {anomaly: n for anomaly, n in item["anomalies"].items() if n and anomaly not in _ALLOWED}
            for name, item in document["addresses"].items()
        }


@pytest.mark.long
@pytest.mark.parametrize("count", [FEW, MANY])
def test_two_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Two runs, cut anywhere with records on their way, find nothing in a correct history: the second knows what the first has seen."""
    runs = [BridgedRun(f"run{seed}", seed) for seed in range(count)]
    made = Job(spark, tmp_path, runs, monkeypatch)
    for run in runs:
        run.run(random.Random(run.name).randint(4, 16))
    assert made.run([record for run in runs for record in _records(run)]) == {run.name: {} for run in runs}

    for run in runs:
        run.run()
    assert made.run([record for run in runs for record in _records(run)]) == {run.name: {} for run in runs}
    assert {str(finding.anomaly) for run in runs for finding in check(run.history)} <= set(_ALLOWED)
    kept = json.loads((tmp_path / "state" / "nights" / "000002.json").read_text())
    assert sum(value["bridge_duplicates"] for value in kept["summary"]["addresses"].values()) > count


@pytest.mark.long
@pytest.mark.parametrize("count", [FEW, MANY])
def test_planted(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    runs: list[BridgedRun] = []
    histories: list[History] = []
    for seed in range(1_000, 3_000):
        run = BridgedRun(f"run{seed}", seed)
        run.run()
        fault = (lose, forget, leave)[len(runs) % 3]
        planted = fault(run.history, random.Random(seed))
        if planted is not None:
            runs.append(run)
            histories.append(planted[0])
        if len(runs) == count:
            break
    made = Job(spark, tmp_path, runs, monkeypatch)
    accepted = [_dense(history.accepted) for history in histories]
    found = made.run(
        [record for run, some in zip(runs, accepted, strict=True) for record in _records(run, some)]
    )

    assert found == {
        run.name: _counted(replace(history, accepted=some))
        for run, history, some in zip(runs, histories, accepted, strict=True)
    }
    assert all(found.values())


def _dense(records: Sequence[Record]) -> list[Record]:
    """Cap offsets at 500: a topic reaches no further."""
    return [record._replace(offset=min(record.offset, 500)) for record in records]


def _counted(history: History) -> dict[str, int]:
    counts: dict[str, Any] = {}
    for finding in check(history):
        if finding.anomaly not in _ALLOWED:
            counts[str(finding.anomaly)] = counts.get(str(finding.anomaly), 0) + 1
    return counts

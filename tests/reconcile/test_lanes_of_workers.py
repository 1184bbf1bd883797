"""A run judges the output of real workers with lanes of several partitions clean, also over a regroup."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from app.embedded.broker import EmbeddedBroker
from reconcile import job
from reconcile.run.history.history import RunHistory
from reconcile.spark.files import LocalFiles
from ringfence_kafka.config.load import load
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.worker import configure, run_verb, wait_for, worker

PARTITIONS, COUNT = 4, 40
SIZES: dict[str, Any] = {"partitions": PARTITIONS, "id_cache_size": 1_000}


def _send(bootstrap: str, topic: str, *, shift: int, partitions: int) -> None:
    """Send all IDs, each under the group of another partition than with another shift, or without a group."""
    for partition in range(partitions):
        group = kafka.at_home(partition, partitions)
        numbers = [number for number in range(COUNT) if (number + shift) % partitions == partition]
        records = [Sent(b"m-%d" % number, None if shift and number % 3 == 0 else group) for number in numbers]
        kafka.send(bootstrap, topic, records, partition)


@pytest.mark.long
def test_regrouped(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path) -> None:
    """Duplicates of other groups are duplicates when four lanes become one within a run, and when partitions are added later."""
    name, bootstrap = kafka.unique("regrouped"), broker.bootstrap_servers
    configs = []
    for lanes in ({}, {"lanes": 1}):
        folder = tmp_path / f"{len(lanes)}"
        folder.mkdir()
        configs.append(configure(folder, bootstrap, name, [{"name": name, **SIZES, **lanes}]))
    apart, together = configs

    def judged(number: int) -> dict[str, Any]:
        settings = load(together)
        runs = RunHistory.load(LocalFiles(str(tmp_path / "state")))
        out = tmp_path / f"out-{number}"
        document = job.judge(spark, settings, runs, job.surveyed(settings), LocalFiles(str(out)))
        rows = spark.read.parquet(str(out / "anomalies")).collect()
        assert [(row["anomaly"], row["detail"]) for row in rows] == []
        found: dict[str, Any] = document["addresses"][name]
        return found

    def through(config: Path, *shifts: int, partitions: int = PARTITIONS) -> None:
        with worker(config, "w") as process:
            for shift in shifts:
                _send(bootstrap, name, shift=shift, partitions=partitions)
            wait_for(lambda: kafka.consumed(bootstrap, name, name, partitions), process.log)
            process.stop()

    through(apart, 0)
    run_verb("rings", "regroup", name, "--lanes", "1", "--config", str(together))
    through(together, 1)
    first = judged(1)
    assert (first["input"], first["accepted"], first["duplicates"]) == (2 * COUNT, COUNT, COUNT)
    through(together, 2)
    run_verb("topics", "grow", name, "--partitions", "8", "--config", str(together))
    through(together, 3, 4, partitions=8)
    second = judged(2)
    assert (second["input"], second["accepted"], second["duplicates"]) == (3 * COUNT, 0, 3 * COUNT)

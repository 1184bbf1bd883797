"""A rolling upgrade from what a release has left: its cluster, its state folder, its progress and its runs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from app.embedded.broker import EmbeddedBroker
from reconcile import job
from reconcile.run.history.history import RunHistory
from reconcile.spark.files import LocalFiles
from ringfence_kafka.config.load import load
from tests.support import kafka, release_cluster, releases
from tests.support.consumers import noted
from tests.support.kafka import Got
from tests.support.release_cluster import FOR_EVER, GROUP, IDS, PARTITIONS, RESENT
from tests.support.worker import ROOT, RingfenceProcess, WorkerProcess, run_verb, wait_for

NEW: Final = range(IDS, IDS + 20)
HALF: Final = len(NEW) // 2


def _accepted(bootstrap: str, address: str) -> list[Got]:
    return kafka.read_all(bootstrap, f"{address}.accepted", PARTITIONS)


def _ids(records: Sequence[Got]) -> list[bytes]:
    return sorted(each.id for each in records if each.id is not None)


def _ended(file: Path) -> list[tuple[int, int]]:
    """Partition and offset of each message that a handler finished."""
    lines = [line.split() for line in noted(file)]
    return sorted((int(line[-4]), int(line[-3])) for line in lines if line[1] == "end")


def _replace(process: RingfenceProcess) -> None:
    """Stop it in order, and start it with this version's code."""
    assert process.stop() == 0, process.log()
    process.tree = ROOT
    process.start()
    process.wait_ready()


@pytest.mark.parametrize("version", releases.VERSIONS)
def test_rolling_upgrade(version: str, spark: SparkSession, tmp_path: Path) -> None:
    """Each process of the release is replaced under way: no ID is forgotten, no message handled again, and a run goes on from the last."""
    release_cluster.unpacked(version, tmp_path)
    tree = releases.tree(version, tmp_path / "release")
    with EmbeddedBroker(tmp_path / "broker", properties=FOR_EVER) as broker:
        bootstrap = broker.bootstrap_servers
        kafka.settle(bootstrap)
        config = release_cluster.configured(tmp_path, bootstrap)
        before = {each: _accepted(bootstrap, each) for each in ("orders", "archive")}
        finished = kafka.committed(bootstrap, GROUP, "orders.accepted", PARTITIONS)
        processes = release_cluster.processes(config, tree)
        beside = WorkerProcess(config, "beside")
        try:
            for each in processes:
                each.start()
            for each in processes:
                each.wait_ready()
            first_log = processes[0].log()
            release_cluster.send(bootstrap, [release_cluster.message(each) for each in NEW[:HALF]])
            beside.start()
            beside.wait_ready()
            for each in processes:
                _replace(each)
            resent = [*range(RESENT), *NEW]
            release_cluster.send(bootstrap, [release_cluster.message(each) for each in resent])
            wait_for(lambda: release_cluster.settled(config, bootstrap), processes[0].log)
            ended = [each.stop() for each in (*reversed(processes), beside)]
        finally:
            for each in (*processes, beside):
                each.destroy()
        after = {each: _accepted(bootstrap, each) for each in before}

        settings = load(config)
        shown = run_verb("reconcile", "show", "--json", "--config", str(config), check=False)
        last = RunHistory.load(LocalFiles(settings.nights_dir)).last
        run_verb("reconcile", "--acknowledge", "2", "--config", str(config))
        nights = RunHistory.load(LocalFiles(settings.nights_dir))
        document = job.judge(spark, settings, nights, job.surveyed(settings), None)

    assert ended == [0] * len(ended)
    assert first_log.count("RocksDB reused") == 2 * PARTITIONS, first_log
    new = sorted(b"m%d" % each for each in NEW)
    assert _ids(after["orders"]) == sorted([*_ids(before["orders"]), *new])
    assert len(after["archive"]) == len(before["archive"]) + len(new) + 1  # and the phantom
    due = [
        (each.partition, each.offset) for each in after["orders"] if each.offset >= finished[each.partition]
    ]
    assert _ended(tmp_path / "consumer.handled") == sorted(due)
    assert "PHANTOM" in shown.stdout
    assert last is not None
    assert (last.number, last.verdict, last.base) == (2, "anomalies", 1)
    assert (document["night"], document["from_night"], document["verdict"]) == (3, 2, "clean")
    orders = document["addresses"]["orders"]
    assert (orders["input"], orders["duplicates"], orders["accepted"]) == (
        RESENT + len(NEW) + HALF,
        RESENT + HALF,
        len(NEW),
    )
    assert json.loads(shown.stdout)["run"] == 2

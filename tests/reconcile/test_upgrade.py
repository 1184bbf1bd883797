"""A rolling upgrade from a release's state: its cluster, its state folder, its progress and its runs."""

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
from tests.support import kafka
from tests.support.brokers import releases
from tests.support.brokers.releases import FOR_EVER, GROUP, IDS, PARTITIONS, RESENT
from tests.support.checkout import ROOT
from tests.support.consumers.processes import noted
from tests.support.kafka import Got
from tests.support.worker import RingfenceProcess, WorkerProcess, run_verb, wait_for

NEW: Final = range(IDS, IDS + 20)
HALF: Final = len(NEW) // 2


def _accepted(bootstrap: str, address: str) -> list[Got]:
    return kafka.read_all(bootstrap, f"{address}.accepted", PARTITIONS)


def _ids(records: Sequence[Got]) -> list[bytes]:
    return sorted(record.id for record in records if record.id is not None)


def _ended(file: Path) -> list[tuple[int, int]]:
    """Partition and offset of each message that a handler finished."""
    lines = [line.split() for line in noted(file)]
    return sorted((int(line[-4]), int(line[-3])) for line in lines if line[1] == "end")


def _replace(process: RingfenceProcess) -> None:
    """Stop a process in order, and start it with this version's code."""
    assert process.stop() == 0, process.log()
    process.tree = ROOT
    process.start()
    process.wait_ready()


@pytest.mark.parametrize("version", releases.VERSIONS)
def test_rolling_upgrade(version: str, spark: SparkSession, tmp_path: Path) -> None:
    """Replacing each process of a release under way forgets no ID and handles no message again; a run resumes from the last."""
    releases.unpacked(version, tmp_path)
    tree = releases.code(version, tmp_path / "release")
    with EmbeddedBroker(tmp_path / "broker", properties=FOR_EVER) as broker:
        bootstrap = broker.bootstrap_servers
        kafka.settle(bootstrap)
        config = releases.configured(tmp_path, bootstrap)
        before = {name: _accepted(bootstrap, name) for name in ("orders", "archive")}
        finished = kafka.committed(bootstrap, GROUP, "orders.accepted", PARTITIONS)
        processes = releases.processes(config, tree)
        beside = WorkerProcess(config, "beside")
        try:
            for process in processes:
                process.start()
            for process in processes:
                process.wait_ready()
            first_log = processes[0].log()
            releases.send(bootstrap, [releases.message(number) for number in NEW[:HALF]])
            beside.start()
            beside.wait_ready()
            for process in processes:
                _replace(process)
            resent = [*range(RESENT), *NEW]
            releases.send(bootstrap, [releases.message(item) for item in resent])
            wait_for(lambda: releases.settled(config, bootstrap), processes[0].log)
            ended = [process.stop() for process in (*reversed(processes), beside)]
        finally:
            for process in (*processes, beside):
                process.destroy()
        after = {name: _accepted(bootstrap, name) for name in before}

        settings = load(config)
        shown = run_verb("reconcile", "show", "--json", "--config", str(config), check=False)
        last = RunHistory.load(LocalFiles(settings.runs_dir)).last
        run_verb("reconcile", "--acknowledge", "2", "--config", str(config))
        runs = RunHistory.load(LocalFiles(settings.runs_dir))
        document = job.judge(spark, settings, runs, job.surveyed(settings), None)

    assert ended == [0] * len(ended)
    assert first_log.count("RocksDB reused") == 2 * PARTITIONS, first_log
    new = sorted(b"m%d" % number for number in NEW)
    assert _ids(after["orders"]) == sorted([*_ids(before["orders"]), *new])
    assert len(after["archive"]) == len(before["archive"]) + len(new) + 1  # and the phantom
    due = [
        (item.partition, item.offset) for item in after["orders"] if item.offset >= finished[item.partition]
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

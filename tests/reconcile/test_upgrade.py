"""The runs that earlier releases have left: this version reads them, and goes on from the last. tests/unit/test_upgrade.py reads them without Spark."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from app.embedded.broker import EmbeddedBroker
from reconcile import job
from reconcile.night.nights import Nights
from reconcile.spark.files import LocalFiles
from ringfence_kafka.config.load import load
from tests.support import kafka, release_nights, releases
from tests.support.kafka import Got, Sent
from tests.support.release_nights import APP, FOR_EVER, IDS, PARTITIONS, RESENT
from tests.support.worker import run_verb

NEW = range(IDS, IDS + 3)
AGAIN = IDS - 1
"""Its ID is known since the first run, and a vandal accepts it once more."""


def _work(bootstrap: str) -> None:
    """What workers would do of what comes in: resends are dropped, what is new is accepted; and so is what is known."""
    ends = kafka.end_offsets(bootstrap, "orders", PARTITIONS)
    release_nights.send(bootstrap, [release_nights.message(each) for each in (*range(RESENT), *NEW, AGAIN)])
    producer = Producer({"bootstrap.servers": bootstrap})
    accepted = {b"m%d" % each for each in (*NEW, AGAIN)}
    for each in kafka.read_all(bootstrap, "orders", PARTITIONS):
        if each.offset >= ends[each.partition] and each.id in accepted:
            kafka.produce(producer, "orders.accepted", _written(each), each.partition)
    producer.flush(kafka.WAIT_S)
    for partition, end in enumerate(kafka.end_offsets(bootstrap, "orders", PARTITIONS)):
        kafka.commit(bootstrap, APP, "orders", end, partition)


def _written(record: Got) -> Sent:
    source = (("_RF_SOURCE", b"orders/%d/%d" % (record.partition, record.offset)),)
    return Sent(record.id, record.key, record.value, source, record.timestamp)


def _found(document: dict[str, Any], address: str) -> dict[str, int]:
    return {kind: n for kind, n in document["addresses"][address]["anomalies"].items() if n}


@pytest.mark.long
@pytest.mark.parametrize("version", releases.VERSIONS)
def test_going_on(version: str, spark: SparkSession, tmp_path: Path) -> None:
    """Its anomalies are shown and acknowledged; then what it saw accepted is known: a resend is a duplicate, or FORGOTTEN."""
    release_nights.unpacked(version, tmp_path)
    with EmbeddedBroker(tmp_path / "broker", properties=FOR_EVER) as broker:
        kafka.settle(broker.bootstrap_servers)
        config = release_nights.configured(tmp_path, broker.bootstrap_servers)
        settings = load(config)
        shown = run_verb("reconcile", "show", "--json", "--config", str(config), check=False)
        files = LocalFiles(settings.nights_dir)
        refused = Nights.load(files).last
        run_verb("reconcile", "--acknowledge", "2", "--config", str(config))
        _work(broker.bootstrap_servers)
        document = job.judge(spark, settings, Nights.load(files), job.surveyed(settings), None)
        forgotten = run_verb("reconcile", "show", "--json", "--config", str(config), check=False)

    assert "PHANTOM" in shown.stdout
    assert refused is not None
    assert (refused.number, refused.verdict, refused.base) == (2, "anomalies", 1)
    assert (document["night"], document["from_night"]) == (3, 2)
    orders = document["addresses"]["orders"]
    assert (orders["input"], orders["duplicates"], orders["accepted"]) == (RESENT + 4, RESENT, 4)
    assert _found(document, "orders") == {"FORGOTTEN": 1}
    assert _found(document, "archive") == {}
    assert f"m{AGAIN}" in json.dumps(json.loads(forgotten.stdout))
    # What the first run saw of resends counts for the advice.
    assert orders["ring"]["resend_distance_p99"] > 0

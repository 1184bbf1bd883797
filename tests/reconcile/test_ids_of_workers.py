"""A run judges IDs of several parts as real workers did: headers, CloudEvents in both modes, JSON pointers, quarantine."""

import json
import random
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
from tests.support.worker import Running, configure, worker

TYPE = ("content-type", b"application/cloudevents+json")


def _message(chance: random.Random) -> Sent:
    """Return a CloudEvent of few sources and IDs, some without one of them, in either mode."""
    source = chance.randrange(6)
    event: dict[str, Any] = {"source": f"/s{source}", "id": chance.choice(["1", "2", 3, None, {}])}
    key = b"group-%d" % source
    if chance.random() < 0.5:
        return Sent(None, key, json.dumps(event).encode(), (TYPE,))
    headers = [("ce_source", event["source"].encode())]
    if isinstance(event["id"], str):
        headers.append(("ce_id", event["id"].encode()))
    return Sent(None, key, b"{}", tuple(headers))


@pytest.mark.long
def test_clean(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path) -> None:
    """A run finds nothing wrong in 400 events of seed 7, of which most repeat an earlier one."""
    chance = random.Random(7)
    bootstrap, app = broker.bootstrap_servers, "parts-of-ids"
    forms: dict[str, Any] = {
        "checked": {"duplicate_id_from": ["header:ce_source", "header:ce_id"]},
        "needed": {"duplicate_id_from": ["value:/id", "key"], "duplicate_id_missing": "quarantine"},
    }
    addresses = [{"name": name, "partitions": 2, **keys} for name, keys in forms.items()]
    config = configure(tmp_path, bootstrap, app, addresses)
    records = [_message(chance) for _ in range(400)]
    with worker(config, app) as process:
        running = Running(bootstrap, process, addresses, app)
        for name in forms:
            for partition in range(2):
                kafka.send(bootstrap, name, records[partition::2], partition)
        for name in forms:
            running.settled(name)
    settings = load(config)
    runs = RunHistory.load(LocalFiles(str(tmp_path / "state")))
    document = job.judge(spark, settings, runs, job.surveyed(settings), LocalFiles(str(tmp_path / "out")))

    rows = spark.read.parquet(str(tmp_path / "out" / "anomalies")).collect()
    assert [(row["anomaly"], row["detail"]) for row in rows] == []
    checked, needed = (document["addresses"][name] for name in forms)
    assert document["verdict"] == "clean"
    assert checked["duplicates"] > 100
    assert checked["accepted"] + checked["duplicates"] == checked["input"] == 400
    assert needed["duplicates"] > 20
    assert needed["quarantined"] > 100

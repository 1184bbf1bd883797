"""What real workers make of transactions is judged clean: two addresses, resends, forwarding, quarantine."""

import json
import random
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from app.embedded.broker import EmbeddedBroker
from reconcile import job
from reconcile.run.history.history import RunHistory
from reconcile.spark.files import LocalFiles
from ringfence_kafka.config.load import load
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.worker import Running, configure, worker

APP = "transacting"
TRANSFERS: dict[str, Any] = {
    "name": "transfers", "partitions": 3, "transaction_addresses": ["payments"], "duplicates": "divert",
}  # fmt: skip
PAYMENTS: dict[str, Any] = {
    "name": "payments", "partitions": 2, "group_header": "account", "default_group": "none", "duplicate_id_headers": ["payment"],
}  # fmt: skip
FORM = ("_RF_TX", b"json/1")


def _envelope(*parts: dict[str, Any]) -> bytes:
    return json.dumps({"parts": parts}).encode()


def _transfer(chance: random.Random, number: int) -> Sent:
    """Debit and credit, and sometimes a text of base64, or a part without key; the ID is its own, a part's, or nobody's."""
    own, theirs = chance.choice([(True, False), (False, True), (True, True), (False, False)])
    debit: dict[str, Any] = {
        "key": f"account-{chance.randrange(5)}", "value": f"debit \u00e4 {number}",
        "headers": [{"name": "type", "value": "debit"}, {"name": "type"}],
    }  # fmt: skip
    credit: dict[str, Any] = {
        "address": "payments", "key_base64": "AP8=", "value_base64": "AAECAw==",
        "headers": [{"name": "account", "value": f"account-{chance.randrange(5)}"}],
    }  # fmt: skip
    if theirs:
        credit["headers"].append({"name": "payment", "value": f"payment-{number}"})
    parts = [debit, credit, {"address": "payments", "value": ""}, {}][: chance.randint(2, 4)]
    key = chance.choice([b"account-1", b"account-2", b"transfer-%d" % number, None])
    return Sent(
        b"transfer-%d" % number if own else None, key, _envelope(*parts), (FORM,), 1_795_219_200_000 + number
    )


def test_clean(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path) -> None:
    """Seed 23: transfers that are resent, some to another partition; messages between; malformed ones; then nothing is amiss."""
    chance = random.Random(23)
    bootstrap, addresses = broker.bootstrap_servers, [TRANSFERS, PAYMENTS]
    config = configure(tmp_path, bootstrap, APP, addresses)
    sent: list[list[Sent]] = [[], [], []]
    for number in range(120):
        transfer = _transfer(chance, number)
        for _ in range(chance.choice([1, 1, 2, 3])):
            sent[chance.randrange(3)].append(transfer)
        sent[chance.randrange(3)].append(Sent(b"plain-%d" % (number // 2), b"account-%d" % (number // 2 % 5)))
    refused = [
        b"no JSON",
        None,
        _envelope({"address": "elsewhere"}),
        _envelope({"value": 5}),
        _envelope({"headers": [{"name": "_RF_KEY"}]}),
    ]
    sent[0] += [Sent(b"transfer-%d" % number, b"k", value, (FORM,)) for number, value in enumerate(refused)]

    with worker(config, APP) as process:
        running = Running(bootstrap, process, addresses, APP)
        for partition, records in enumerate(sent):
            kafka.send(bootstrap, "transfers", records, partition)
        kafka.send(
            bootstrap,
            "payments",
            [Sent(None, b"k", b"plain", (("payment", b"payment-%d" % index),)) for index in range(900, 930)],
        )
        running.settled("transfers")
        running.settled("payments")
    settings = load(config)
    runs = RunHistory.load(LocalFiles(str(tmp_path / "state")))
    document = job.judge(spark, settings, runs, job.surveyed(settings), LocalFiles(str(tmp_path / "out")))

    rows = spark.read.parquet(str(tmp_path / "out" / "anomalies")).collect()
    assert [(row["anomaly"], row["detail"]) for row in rows] == []
    transfers, payments = (document["addresses"][name] for name in ("transfers", "payments"))
    assert (document["verdict"], transfers["input"], transfers["quarantined"]) == (
        "clean",
        sum(map(len, sent)),
        5,
    )
    assert transfers["accepted"] + transfers["duplicates"] + 5 == transfers["input"]
    assert transfers["forwarded"] > 0
    assert transfers["duplicates"] > 60
    assert (payments["input"], payments["accepted"]) == (30, 30)

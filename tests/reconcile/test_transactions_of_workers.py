"""A run judges the transactions of real workers clean: two addresses, resends, forwarding, quarantine."""

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

TRANSFERS: dict[str, Any] = {"partitions": 3, "duplicates": "divert"}
PAYMENTS: dict[str, Any] = {
    "partitions": 2, "group_header": "account", "default_group": "none", "duplicate_id_headers": ["payment"],
}  # fmt: skip
FORM = ("_RF_TX", b"json/1")


def _envelope(*parts: dict[str, Any]) -> bytes:
    return json.dumps({"parts": parts}).encode()


def _transfer(chance: random.Random, number: int, other: str) -> Sent:
    """A debit and a credit, and sometimes a text of base64, or a part without key; the ID is its own, a part's, or missing."""
    own, theirs = chance.choice([(True, False), (False, True), (True, True), (False, False)])
    debit: dict[str, Any] = {
        "key": f"account-{chance.randrange(5)}", "value": f"debit \u00e4 {number}",
        "headers": [{"name": "type", "value": "debit"}, {"name": "type"}],
    }  # fmt: skip
    credit: dict[str, Any] = {
        "address": other, "key_base64": "AP8=", "value_base64": "AAECAw==",
        "headers": [{"name": "account", "value": f"account-{chance.randrange(5)}"}],
    }  # fmt: skip
    if theirs:
        credit["headers"].append({"name": "payment", "value": f"payment-{number}"})
    parts = [debit, credit, {"address": other, "value": ""}, {}][: chance.randint(2, 4)]
    key = chance.choice([b"account-1", b"account-2", b"transfer-%d" % number, None])
    return Sent(
        b"transfer-%d" % number if own else None, key, _envelope(*parts), (FORM,), 1_795_219_200_000 + number
    )


@pytest.mark.parametrize("lanes", [0, 1])
def test_clean(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path, lanes: int) -> None:
    """A run finds nothing wrong in transfers of seed 23.

    Some are resent, some to another partition; messages are between; some are malformed.
    """
    chance = random.Random(23)
    bootstrap, app = broker.bootstrap_servers, f"transacting-{lanes}"
    transfers_name, payments_name = f"transfers-{lanes}", f"payments-{lanes}"
    of_lanes = {"lanes": lanes} if lanes else {}
    addresses = [
        {"name": transfers_name, "transaction_addresses": [payments_name], **TRANSFERS, **of_lanes},
        {"name": payments_name, **PAYMENTS, **of_lanes},
    ]
    config = configure(tmp_path, bootstrap, app, addresses)
    sent: list[list[Sent]] = [[], [], []]
    for number in range(120):
        transfer = _transfer(chance, number, payments_name)
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

    with worker(config, app) as process:
        running = Running(bootstrap, process, addresses, app)
        for partition, records in enumerate(sent):
            kafka.send(bootstrap, transfers_name, records, partition)
        kafka.send(
            bootstrap,
            payments_name,
            [Sent(None, b"k", b"plain", (("payment", b"payment-%d" % index),)) for index in range(900, 930)],
        )
        running.settled(transfers_name)
        running.settled(payments_name)
    settings = load(config)
    runs = RunHistory.load(LocalFiles(str(tmp_path / "state")))
    document = job.judge(spark, settings, runs, job.surveyed(settings), LocalFiles(str(tmp_path / "out")))

    rows = spark.read.parquet(str(tmp_path / "out" / "anomalies")).collect()
    assert [(row["anomaly"], row["detail"]) for row in rows] == []
    transfers, payments = (document["addresses"][name] for name in (transfers_name, payments_name))
    assert (document["verdict"], transfers["input"], transfers["quarantined"]) == (
        "clean",
        sum(map(len, sent)),
        5,
    )
    assert transfers["accepted"] + transfers["duplicates"] + 5 == transfers["input"]
    assert (transfers["forwarded"] > 0) == (lanes != 1)
    assert transfers["duplicates"] > 60
    assert (payments["input"], payments["accepted"]) == (30, 30)

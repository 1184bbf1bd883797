"""A run judges what a real worker did clean: transactions of two addresses, and IDs of several parts; resends, forwarding, quarantine."""

import json
import random
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.config.load import load
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.reconcile.planted import judged_run
from tests.support.worker import Running, configure, worker

TRANSFERS: dict[str, Any] = {"partitions": 3, "duplicates": "divert"}
PAYMENTS: dict[str, Any] = {
    "partitions": 2, "group_header": "account", "default_group": "none", "duplicate_id_headers": ["payment"],
}  # fmt: skip
FORM = ("_RF_TX", b"json/1")
LANES = (0, 1)
"""Values of the key `lanes` of the addresses of transactions; 0 = not set."""
EVENTS = 400
OF_EVENTS: list[dict[str, Any]] = [
    {"name": "checked", "partitions": 2, "duplicate_id_from": ["header:ce_source", "header:ce_id"]},
    {"name": "needed", "partitions": 2, "duplicate_id_from": ["value:/id", "key"], "duplicate_id_missing": "quarantine"},
]  # fmt: skip
Judged = tuple[dict[str, Any], list[Row]]


def _envelope(*parts: dict[str, Any]) -> bytes:
    return json.dumps({"parts": parts}).encode()


REFUSED = (
    b"no JSON",
    None,
    _envelope({"address": "elsewhere"}),
    _envelope({"value": 5}),
    _envelope({"headers": [{"name": "_RF_KEY"}]}),
)


def _transfer(chance: random.Random, number: int, other: str) -> Sent:
    """Return a debit and a credit, and sometimes a text of base64, or a part without key; the ID is its own, a part's, or missing."""
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


def _traffic(payments: str) -> list[list[Sent]]:
    """Transfers and messages by partition, seed 23."""
    chance = random.Random(23)
    sent: list[list[Sent]] = [[], [], []]
    for number in range(120):
        transfer = _transfer(chance, number, payments)
        for _ in range(chance.choice([1, 1, 2, 3])):
            sent[chance.randrange(3)].append(transfer)
        sent[chance.randrange(3)].append(Sent(b"plain-%d" % (number // 2), b"account-%d" % (number // 2 % 5)))
    sent[0] += [Sent(b"transfer-%d" % number, b"k", value, (FORM,)) for number, value in enumerate(REFUSED)]
    return sent


def _event(chance: random.Random) -> Sent:
    """Return a CloudEvent of few sources and IDs, some without one of them, in either mode."""
    source = chance.randrange(6)
    event: dict[str, Any] = {"source": f"/s{source}", "id": chance.choice(["1", "2", 3, None, {}])}
    key = b"group-%d" % source
    if chance.random() < 0.5:
        structured = ("content-type", b"application/cloudevents+json")
        return Sent(None, key, json.dumps(event).encode(), (structured,))
    headers = [("ce_source", event["source"].encode())]
    if isinstance(event["id"], str):
        headers.append(("ce_id", event["id"].encode()))
    return Sent(None, key, b"{}", tuple(headers))


def _names(lanes: int) -> tuple[str, str]:
    return f"transfers-{lanes}", f"payments-{lanes}"


def _addresses(lanes: int) -> list[dict[str, Any]]:
    transfers, payments = _names(lanes)
    of_lanes = {"lanes": lanes} if lanes else {}
    return [
        {"name": transfers, "transaction_addresses": [payments], **TRANSFERS, **of_lanes},
        {"name": payments, **PAYMENTS, **of_lanes},
    ]


@pytest.fixture(scope="module")
def judged(broker: EmbeddedBroker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """Return the document and the anomalies of one run over all addresses, which one worker has served.

    Some transfers are resent, some to another partition; messages are between; some are malformed. Most events repeat an earlier one.
    """
    folder, bootstrap, app = tmp_path_factory.mktemp("workers"), broker.bootstrap_servers, "judged-clean"
    addresses = [*(address for lanes in LANES for address in _addresses(lanes)), *OF_EVENTS]
    config = configure(folder, bootstrap, app, addresses)
    chance = random.Random(7)
    events = [_event(chance) for _ in range(EVENTS)]
    with worker(config, app) as process:
        running = Running(bootstrap, process, addresses, app)
        for lanes in LANES:
            transfers, payments = _names(lanes)
            for partition, records in enumerate(_traffic(payments)):
                kafka.send(bootstrap, transfers, records, partition)
            paid = [
                Sent(None, b"k", b"plain", (("payment", b"payment-%d" % index),)) for index in range(900, 930)
            ]
            kafka.send(bootstrap, payments, paid)
        for address in OF_EVENTS:
            for partition in range(2):
                kafka.send(bootstrap, address["name"], events[partition::2], partition)
        for address in addresses:
            running.settled(address["name"])
    document, found = judged_run(spark, load(config), folder / "out")
    return document, found.collect()


def test_nothing_is_wrong(judged: Judged) -> None:
    document, rows = judged

    assert [(row["anomaly"], row["detail"]) for row in rows] == []
    assert document["verdict"] == "clean"


@pytest.mark.parametrize("lanes", LANES)
def test_transactions(judged: Judged, lanes: int) -> None:
    """Each transaction counts once, with lanes of partitions and with one lane."""
    transfers, payments = (judged[0]["addresses"][name] for name in _names(lanes))
    sent = sum(map(len, _traffic(_names(lanes)[1])))

    assert (transfers["input"], transfers["quarantined"]) == (sent, len(REFUSED))
    assert transfers["accepted"] + transfers["duplicates"] + len(REFUSED) == transfers["input"]
    assert (transfers["forwarded"] > 0) == (lanes != 1)
    assert transfers["duplicates"] > 60
    assert (payments["input"], payments["accepted"]) == (30, 30)


def test_ids_of_several_parts(judged: Judged) -> None:
    """Headers, CloudEvents in both modes, JSON pointers, and quarantine of events without an ID."""
    checked, needed = (judged[0]["addresses"][address["name"]] for address in OF_EVENTS)

    assert checked["duplicates"] > 100
    assert checked["accepted"] + checked["duplicates"] == checked["input"] == EVENTS
    assert needed["duplicates"] > 20
    assert needed["quarantined"] > 100

"""Transactions in a real worker: all parts, of any groups and addresses, or none."""

from collections.abc import Iterator
from typing import Any

import pytest

from app.embedded.broker import EmbeddedBroker
from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.records.envelopes import Addresses, envelope, part
from tests.support.worker import WorkerProcess, configure, worker

APP = "transactions"
TRANSFERS, PAYMENTS = "tx-transfers", "tx-payments"
PARTITIONS = {TRANSFERS: 4, PAYMENTS: 3}
SETTINGS: dict[str, dict[str, Any]] = {
    TRANSFERS: {"transaction_addresses": [PAYMENTS], "duplicates": "divert"},
    PAYMENTS: {"partitioner": "crc32"},
}


class Running:
    """The worker of this module and its addresses."""

    def __init__(self, bootstrap: str, process: WorkerProcess) -> None:
        self.bootstrap = bootstrap
        self.worker = process
        targets = {TRANSFERS: [PAYMENTS]}
        self.addresses = Addresses(bootstrap, APP, PARTITIONS, targets, divert=frozenset({TRANSFERS}))

    def send(self, *records: Sent) -> None:
        """Send to one partition, where a Java client sends the key of the first."""
        partition = kafka.home(records[0].key or b"", PARTITIONS[TRANSFERS])
        kafka.send(self.bootstrap, TRANSFERS, records, partition)

    def accepted(self, mark: str) -> dict[str, list[Got]]:
        """Return accepted records whose values have this prefix, by address, once all is processed."""
        self.addresses.settle(self.worker.log, TRANSFERS)
        return {
            name: [
                item
                for item in self.addresses.accepted(name)
                if (item.value or b"").startswith(mark.encode())
            ]
            for name in PARTITIONS
        }


@pytest.fixture(scope="module")
def running(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One worker over all addresses of this module."""
    bootstrap = broker.bootstrap_servers
    addresses = [
        {"name": name, "partitions": count, **SETTINGS.get(name, {})} for name, count in PARTITIONS.items()
    ]
    config = configure(tmp_path_factory.mktemp(APP), bootstrap, APP, addresses)
    with worker(config, APP) as process:
        yield Running(bootstrap, process)


def _values(got: list[Got]) -> list[str]:
    return [(item.value or b"").decode() for item in got]


def test_whole_and_once(running: Running) -> None:
    """One ID, on the envelope or on any part, is enough: no part comes again in a resend, even of another shape."""
    first = envelope(
        part(PAYMENTS, "p1", "once-a"),
        part(PAYMENTS, "p2", "once-b"),
        part(None, "t", "once-c"),
        known=b"once",
    )
    last = envelope(part(PAYMENTS, "p1", "once-d"), part(PAYMENTS, "p2", "once-e", ID="once-last"))
    running.send(first, last, first, last)
    running.send(last, envelope(part(None, "t", "once-f"), known=b"once"), Sent(b"once", b"k", b"once-g"))
    got = running.accepted("once-")

    assert sorted(_values(got[PAYMENTS])) == ["once-a", "once-b", "once-d", "once-e"]
    assert _values(got[TRANSFERS]) == ["once-c"]
    assert {dict(item.headers)["_RF_TX_PART"] for item in got[PAYMENTS]} == {b"1/3", b"2/3", b"1/2", b"2/2"}


def test_one_known_id_ignores_all(running: Running) -> None:
    """B1-13, B1-15: an ID known from a plain message of the key's group keeps all four parts out of every address."""
    plain = Sent(b"known-7", b"k", b"known-plain")
    ignored = envelope(
        part(PAYMENTS, "p", "known-1", ID="known-new"),
        part(None, "t", "known-2"),
        part(None, "t", "known-3", ID="known-7"),
        part(PAYMENTS, "p", "known-4"),
        known=b"known-own",
    )
    running.send(plain)
    running.addresses.settle(running.worker.log, TRANSFERS)
    running.send(ignored)
    # Its new IDs are not known by that.
    running.send(Sent(b"known-own", b"k", b"known-after"))
    got = running.accepted("known-")
    (diverted,) = [
        item for item in running.addresses.read(TRANSFERS, "duplicates") if item.value == ignored.value
    ]
    original = dict(diverted.headers)["_RF_ORIGINAL"]

    assert {name: _values(value) for name, value in got.items() if value} == {
        TRANSFERS: ["known-plain", "known-after"]
    }
    assert original == got[TRANSFERS][0].source.encode()


def test_own_kafka_transactions_of_producers(running: Running) -> None:
    """B3-11, B3-12: an aborted envelope has no effect; one that is sent again after a lost answer is a duplicate."""
    sent = envelope(part(PAYMENTS, "p", "abort-1"), part(None, "t", "abort-2"), known=b"abort")
    partition = kafka.home(b"k", 4)
    for commit in (False, True, False, True):
        kafka.send_in_transaction(running.bootstrap, TRANSFERS, [sent], commit=commit, partition=partition)
    got = running.accepted("abort-")

    assert (_values(got[PAYMENTS]), _values(got[TRANSFERS])) == (["abort-1"], ["abort-2"])


def test_all_of_it_is_exact(running: Running) -> None:
    """The fault tests' checker finds nothing in the output of the tests before; alone it judges an empty run."""
    running.addresses.settle(running.worker.log)
    findings = [str(finding) for finding in running.addresses.findings()]

    assert findings == []

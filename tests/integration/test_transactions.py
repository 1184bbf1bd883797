"""Transactions in a real worker: all parts, of any groups and addresses, or none."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from app.embedded.broker import EmbeddedBroker
from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.records.envelopes import Addresses, envelope, enveloped, part
from tests.support.worker import WorkerProcess, configure, worker

APP = "transactions"
TRANSFERS, PAYMENTS, SMALL = "tx-transfers", "tx-payments", "tx-small"
PARTITIONS = {TRANSFERS: 4, PAYMENTS: 3, SMALL: 1}
SETTINGS: dict[str, dict[str, Any]] = {
    TRANSFERS: {"transaction_addresses": [PAYMENTS, SMALL], "duplicates": "divert"},
    PAYMENTS: {"partitioner": "crc32"},
}
SMALL_BYTES = 2_000


class Running:
    """The worker of this module and its addresses."""

    def __init__(self, bootstrap: str, process: WorkerProcess) -> None:
        self.bootstrap = bootstrap
        self.worker = process
        self.addresses = Addresses(
            bootstrap, APP, PARTITIONS, {TRANSFERS: [PAYMENTS, SMALL]}, divert=frozenset({TRANSFERS})
        )  # fmt: skip

    def send(self, *records: Sent, partition: int | None = None) -> None:
        """Send to one partition: by default where a Java client sends the key of the first."""
        if partition is None:
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
    kafka.create_topics(
        bootstrap,
        {
            f"{SMALL}.accepted": (1, {"max.message.bytes": str(SMALL_BYTES)}),
        },
    )
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


def test_part_too_large(running: Running) -> None:
    """A transaction with a part that is too large is in quarantine, with the part named.

    Its IDs are free: a smaller resend passes; neighbours are in order.
    """
    large = envelope(
        part(PAYMENTS, "p", "large-1"),
        part(SMALL, "s", "x" * SMALL_BYTES, ID="large-id"),
        part(None, "k", "large-3"),
        known=b"large",
    )
    # The smallest topic limits its own parts alone.
    beyond = "large-4".ljust(2 * SMALL_BYTES, "x")
    smaller = envelope(
        part(PAYMENTS, "p", beyond), part(SMALL, "s", "large-5", ID="large-id"), known=b"large"
    )
    neighbours = [Sent(b"large-n%d" % index, b"k", b"large-n%d" % index) for index in range(4)]
    running.send(
        neighbours[0], large, neighbours[1], large, smaller, neighbours[2], large, smaller, neighbours[3]
    )
    got = running.accepted("large-")
    quarantined = [item for item in running.addresses.read(TRANSFERS, "quarantine") if item.id == b"large"]

    assert {name: _values(value) for name, value in got.items() if value} == {
        TRANSFERS: [f"large-n{index}" for index in range(4)],
        PAYMENTS: [beyond],
        SMALL: ["large-5"],
    }
    # The third came when its IDs were known: what is refused is refused before they are judged.
    assert [item.value for item in quarantined] == [large.value] * 3
    assert all(
        (dict(item.headers)["_RF_REASON"] or b"").startswith(b"part 2/3: ")
        and b"tx-small.accepted takes max.message.bytes = 2000" in (dict(item.headers)["_RF_REASON"] or b"")
        for item in quarantined
    )


def _json(**document: Any) -> bytes:
    return json.dumps(document).encode()


MALFORMED: list[bytes | None] = [
    None, b"", b"{}", b"[]", b"null", b"not JSON", b"\xff\xfe", b"[" * 50_000,
    _json(parts=[]), _json(parts={}), _json(parts=[part()], more=1), _json(parts=[part()] * 10_001),
    _json(parts=[{"valu": "1"}]), _json(parts=[{"value": 1}]), _json(parts=[{"value": "1", "value_base64": "AA=="}]),
    _json(parts=[{"value_base64": "A"}]), _json(parts=[{"headers": [{"name": "_RF_KEY", "value": "1"}]}]),
    _json(parts=[part(), part("ledgers")]), b'{"parts": [{"key": "1", "key": "2"}]}', b'{"parts": [{"value": "\\udc00"}]}',
]  # fmt: skip


def test_malformed(running: Running) -> None:
    """Twenty malformed kinds and an unknown form, at home and forwarded, are in quarantine, and none of their IDs is used up."""
    bad = [enveloped(value, b"k", b"mal") for value in MALFORMED]
    other = [
        Sent(b"mal", b"k", _json(parts=[part()]), (("_RF_TX", form),)) for form in (b"json/2", b"", None)
    ]
    twice = Sent(b"mal", b"k", _json(parts=[part()]), (("_RF_TX", b"json/1"), ("_RF_TX", b"json/2")))
    earlier = len(running.addresses.read(TRANSFERS, "quarantine"))
    running.send(Sent(None, b"k", b"mal-1"), *bad, *other, twice, Sent(None, b"k", b"mal-2"))
    # Away from home they are forwarded unread.
    running.send(*bad, partition=(kafka.home(b"k", 4) + 1) % 4)
    running.addresses.settle(running.worker.log, TRANSFERS)
    running.send(envelope(part(None, "k", "mal-3"), known=b"mal"))
    got = running.accepted("mal-")
    quarantined = running.addresses.read(TRANSFERS, "quarantine")
    reasons = [(dict(item.headers)["_RF_REASON"] or b"").decode() for item in quarantined]

    assert _values(got[TRANSFERS]) == ["mal-1", "mal-2", "mal-3"]
    assert len(quarantined) - earlier == 2 * len(MALFORMED) + 4
    assert (
        sum(
            reason.startswith("part 2/2: address 'ledgers' is not in transaction_addresses")
            for reason in reasons
        )
        == 2
    )
    assert all(reasons)
    assert running.worker.health()[0] == 200


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

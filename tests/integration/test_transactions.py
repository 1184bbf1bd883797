"""Transactions in a real worker: all parts, of any groups and addresses, or none."""

import base64
import json
import random
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.partitioner import murmur2

from app.embedded.broker import EmbeddedBroker
from tests.harness.history import Record, Target
from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.records.envelopes import Addresses, envelope, enveloped, part, scatter
from tests.support.worker import WorkerProcess, configure, worker

APP = "transactions"
TRANSFERS, PAYMENTS, NOTES, SMALL = "tx-transfers", "tx-payments", "tx-notes", "tx-small"
MEMORY, OFF, FEW = "tx-memory", "tx-off", "tx-few"
PARTITIONS = {TRANSFERS: 4, PAYMENTS: 3, NOTES: 2, SMALL: 1, MEMORY: 1, OFF: 1, FEW: 1}
SETTINGS: dict[str, dict[str, Any]] = {
    TRANSFERS: {"transaction_addresses": [PAYMENTS, NOTES, SMALL], "duplicates": "divert"},
    PAYMENTS: {"partitioner": "crc32"},
    NOTES: {"group_header": "region", "default_group": "nowhere", "duplicate_id_from": "key"},
    MEMORY: {"persist_id_cache": False},
    OFF: {"id_cache_size": 0},
    FEW: {"id_cache_size": 3},
}
NOTES_ACCEPTED = 5
"""Partitions of an accepted topic that has another count than its input."""
SMALL_BYTES = 2_000


def _region(record: Record) -> bytes | None:
    return record.header("region") or b"nowhere"


class Running:
    """The worker of this module and its addresses."""

    def __init__(self, bootstrap: str, process: WorkerProcess) -> None:
        self.bootstrap = bootstrap
        self.worker = process
        self.addresses = Addresses(
            bootstrap, APP, {name: PARTITIONS[name] for name in (TRANSFERS, PAYMENTS, NOTES, SMALL)},
            lambda key, count: (int(murmur2(key)) & 0x7FFFFFFF) % count,
            {TRANSFERS: [PAYMENTS, NOTES, SMALL]},
            {NOTES: Target(f"{NOTES}.accepted", lambda record: record.key, _region)},
            {NOTES: NOTES_ACCEPTED},
            divert=frozenset({TRANSFERS}),
        )  # fmt: skip

    def send(self, *records: Sent, address: str = TRANSFERS, partition: int | None = None) -> None:
        """Send to one partition: by default where a Java client sends the key of the first."""
        count = PARTITIONS[address]
        if partition is None:
            partition = (int(murmur2(records[0].key or b"")) & 0x7FFFFFFF) % count
        kafka.send(self.bootstrap, address, records, partition)

    def settle(self, *names: str) -> None:
        """Wait until these addresses, by default all four, have processed everything."""
        if not names:
            self.addresses.settle(self.worker.log)
        for name in names:
            alone = Addresses(self.bootstrap, APP, {name: PARTITIONS[name]}, lambda *_: 0)
            alone.settle(self.worker.log)

    def accepted(self, mark: str, *names: str) -> dict[str, list[Got]]:
        """Return accepted records whose values have this prefix, by address, once all is processed."""
        self.settle(TRANSFERS)
        names = names or (TRANSFERS, PAYMENTS, NOTES, SMALL)
        return {
            name: [
                item
                for item in self.addresses.accepted(name)
                if (item.value or b"").startswith(mark.encode())
            ]
            for name in names
        }


@pytest.fixture(scope="module")
def running(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One worker over all addresses of this module."""
    bootstrap = broker.bootstrap_servers
    kafka.create_topics(
        bootstrap,
        {
            f"{NOTES}.accepted": (NOTES_ACCEPTED, {}),
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
    running.settle(TRANSFERS)
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


@pytest.mark.parametrize("together", [True, False])
def test_transactions_that_share_an_id(running: Running, together: bool) -> None:
    """The first in the lane wins, whole; a plain message before both of them makes both duplicates."""
    mark = f"share{together:d}-"
    one = envelope(part(PAYMENTS, "p", f"{mark}1a", ID=f"{mark}x"), part(None, "t", f"{mark}1b"))
    two = envelope(
        part(None, "t", f"{mark}2a"),
        part(PAYMENTS, "p", f"{mark}2b", ID=f"{mark}x"),
        known=f"{mark}y".encode(),
    )
    three = envelope(part(None, "t", f"{mark}3", ID=f"{mark}y"))
    for batch in [[one, two, three]] if together else [[one], [two], [three]]:
        running.send(*batch)
        if not together:
            running.settle(TRANSFERS)
    got = running.accepted(mark)

    assert {name: _values(value) for name, value in got.items() if value} == {
        PAYMENTS: [f"{mark}1a"],
        TRANSFERS: [f"{mark}1b", f"{mark}3"],
    }


def test_resends_scattered_over_partitions(running: Running) -> None:
    """A record with a null key has its ID's home: its resends meet from any partition, and each is accepted once, whole."""
    sent = [
        envelope(
            part(PAYMENTS, "p", f"null-{number}a"),
            part(None, None, f"null-{number}b"),
            key=None,
            known=b"null-%d" % number,
        )
        for number in range(8)
    ]
    in_a_part = envelope(part(PAYMENTS, "p", "null-8a", ID="null-8"), part(None, None, "null-8b"), key=None)
    sent.append(in_a_part)
    scatter(running.bootstrap, TRANSFERS, sent * 6)
    got = running.accepted("null-")
    places = {
        item.partition
        for item in kafka.read_all(running.bootstrap, TRANSFERS, 4)
        if item.value == in_a_part.value
    }

    assert len(places) > 1
    assert sorted(_values(got[PAYMENTS])) == [f"null-{number}a" for number in range(9)]
    assert sorted(_values(got[TRANSFERS])) == [f"null-{number}b" for number in range(9)]


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
    running.send(*bad, partition=((int(murmur2(b"k")) & 0x7FFFFFFF) + 1) % 4)
    running.settle(TRANSFERS)
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


def test_parts_by_the_rules_of_their_address(running: Running) -> None:
    """A part follows its own address's rules, as if it were sent there alone.

    They cover group, key, partition, headers; other partitioner, other count, default group.
    """
    binary = base64.b64encode(b"rules-\x00\xff").decode()
    names = [f"g{index}" for index in range(20)]
    sent = envelope(
        part(NOTES, "rules-n1", "rules-1", region="north", kept="1"),
        part(NOTES, "rules-n2", "rules-2"),
        part(NOTES, None, "rules-3", region="north"),
        {"address": PAYMENTS, "key_base64": base64.b64encode(b"\xfe").decode(), "value_base64": binary},
        *(part(PAYMENTS, name, f"rules-{name}") for name in names),
        part(None, None, "rules-own"),
        known=b"rules",
        timestamp=1_600_000_000_000,
    )
    running.send(sent)
    got = running.accepted("rules-")
    notes = {item.value: item for item in got[NOTES]}
    payments = {item.value: item for item in got[PAYMENTS]}

    assert [
        (notes[name].key, dict(notes[name].headers).get("_RF_KEY", b"-"))
        for name in (b"rules-1", b"rules-2", b"rules-3")
    ] == [
        (b"north", b"rules-n1"),
        (b"nowhere", b"rules-n2"),
        (b"north", None),
    ]
    assert ("kept", b"1") in notes[b"rules-1"].headers
    assert notes[b"rules-1"].partition == (int(murmur2(b"north")) & 0x7FFFFFFF) % NOTES_ACCEPTED
    assert payments[b"rules-\x00\xff"].key == b"\xfe"
    assert {name: payments[f"rules-{name}".encode()].partition for name in names} == {
        name: zlib.crc32(name.encode()) % 3 for name in names
    }
    everything = [item for found in got.values() for item in found]
    assert {item.timestamp for item in everything} == {1_600_000_000_000}
    assert len({item.source for item in everything}) == 1
    assert len(everything) == 25
    # notes has the key for its ID: another transaction with it is a duplicate; the same ID of payments is not.
    running.send(
        envelope(part(NOTES, "rules-n2", "rules-again")),
        envelope(part(PAYMENTS, "rules-n2", "rules-other", ID="rules-n2")),
    )
    assert [_values(value) for value in running.accepted("rules-again").values()] == [[], [], [], []]
    assert _values(running.accepted("rules-other")[PAYMENTS]) == ["rules-other"]


def test_order(running: Running) -> None:
    """O1 to O3, and the remedy of O4: 2,000 plain messages and transactions of three groups keep each group's order of arrival."""
    dice = random.Random(37)
    groups = [kafka.at_home(2, 4).decode() + suffix for suffix in ("",)]
    groups += [
        name
        for name in (f"order-{index}" for index in range(99))
        if (int(murmur2(name.encode())) & 0x7FFFFFFF) % 4 == 2
    ][:2]
    due: dict[tuple[str, str], list[str]] = {}
    records = []
    for number in range(2_000):
        group = dice.choice(groups)
        if dice.random() < 0.5:
            records.append(Sent(b"order-%d" % number, group.encode(), b"order-%d" % number))
            due.setdefault((TRANSFERS, group), []).append(f"order-{number}")
            continue
        parts = []
        for index in range(dice.randint(1, 5)):
            # In its own address parts of its own group only: of others, O4 promises nothing.
            address = dice.choice([TRANSFERS, PAYMENTS])
            name = group if address == TRANSFERS else f"to-{group}"
            value = f"order-{number}.{index}"
            parts.append(part(None if address == TRANSFERS and dice.random() < 0.5 else address, name, value))
            due.setdefault((address, name), []).append(value)
        records.append(envelope(*parts, key=group.encode(), known=b"order-%d" % number))
    running.send(*records, partition=2)
    got = running.accepted("order-")

    found: dict[tuple[str, str], list[str]] = {}
    for address, accepted in got.items():
        for record in accepted:
            found.setdefault((address, (record.key or b"").decode()), []).append(
                (record.value or b"").decode()
            )
    assert found == due


def test_own_kafka_transactions_of_producers(running: Running) -> None:
    """B3-11, B3-12: an aborted envelope has no effect; one that is sent again after a lost answer is a duplicate."""
    sent = envelope(part(PAYMENTS, "p", "abort-1"), part(None, "t", "abort-2"), known=b"abort")
    partition = (int(murmur2(b"k")) & 0x7FFFFFFF) % 4
    for commit in (False, True, False, True):
        kafka.send_in_transaction(running.bootstrap, TRANSFERS, [sent], commit=commit, partition=partition)
    got = running.accepted("abort-")

    assert (_values(got[PAYMENTS]), _values(got[TRANSFERS])) == (["abort-1"], ["abort-2"])


@pytest.mark.parametrize(
    ("address", "due"), [(MEMORY, ["a1", "a2", "b1"]), (OFF, ["a1", "a2", "b1"] * 3), (FEW, ["a1", "a2", "b1", "b1", "a1", "a2"])]
)  # fmt: skip
def test_sizes(running: Running, address: str, due: list[str]) -> None:
    """Rings in memory only, off, and smaller than a transaction work: of six IDs the last three are known."""
    six = [part(None, "t", "a1", ID="1"), part(None, "t", "a2", ID="2")]
    six[1]["headers"] += [{"name": "n", "value": "1"}]
    first = envelope(*six, known=b"0")
    second = envelope(part(None, "t", "b1", ID="3"), known=b"4")
    running.send(first, first, second, second, *([second] if address == OFF else []), address=address)
    running.settle(address)
    if address == FEW:
        # The ring holds 2, 3 and 4: of the first, one is still known. Two other IDs later it is not.
        running.send(
            first,
            Sent(b"5", b"k", None),
            Sent(b"6", b"k", None),
            Sent(b"7", b"k", None),
            second,
            first,
            address=address,
        )
    elif address == OFF:
        running.send(first, address=address)
    running.settle(address)
    got = [item for item in kafka.read_all(running.bootstrap, f"{address}.accepted", 1) if item.value]

    assert sorted(_values(got)) == sorted(due)


def test_all_of_it_is_exact(running: Running) -> None:
    """The fault tests' checker finds nothing in the output of the tests before; alone it judges an empty run."""
    running.settle()
    findings = [str(finding) for finding in running.addresses.findings()]

    assert findings == []

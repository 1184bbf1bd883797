from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from agents.batch.batch import DueRecords, FetchedBatch, Record
from agents.decision.decide import Outcome, Path
from agents.decision.forwarding import MALFORMED, forwarded_headers
from agents.decision.item import Item
from agents.decision.partitioner import Partitioner
from ringfence_kafka.config.load import validate
from ringfence_kafka.protocol.stored_ids import digest_id, encode_id
from tables.codec import Origin, Slot, ring_value
from tables.hops import HopMemory
from tables.ring import Checked, Ring, Verdict
from tables.table import LaneTable

ACCEPTED, DUPLICATE, UNCHECKED = Verdict.ACCEPTED, Verdict.DUPLICATE, Verdict.UNCHECKED
Headers = Sequence[tuple[str, bytes | None]]
FORWARD = "ringfence-orders-forward"
PARTITIONS = 4
HERE = 3


@dataclass(frozen=True)
class Given:
    """A consumed record."""

    offset: int
    key: bytes | None = None
    headers: Headers = ()
    value: bytes | None = b"value"
    timestamp: int = 5


class Table:
    """The parts of a lane's table that the path uses: a real ring, and slots in memory."""

    def __init__(self, capacity: int = 100, max_age_ms: int = 0) -> None:
        self.ring = Ring(capacity, max_age_ms=max_age_ms)
        self.hops = HopMemory(capacity)
        self.slots: dict[int, Slot] = {}
        self.asked: list[int] = []

    def check(self, ids: Sequence[bytes | None], times: Sequence[int]) -> Checked:
        return self.ring.check(ids, times)

    def find(self, sequences: Sequence[int]) -> list[Slot | None]:
        self.asked += sequences
        return [self.slots.get(sequence) for sequence in sequences]

    def apply(self, outcome: Outcome) -> None:
        checked = outcome.checked
        for i, (item, origin) in enumerate(zip(checked.new_ids, outcome.new_origins, strict=True)):
            sequence = checked.first_sequence + i
            self.slots[sequence] = Slot(self.ring.capacity, sequence, item, origin)
        self.ring.apply(checked)
        self.hops.apply(outcome.judged)


def _path(partition: int = HERE, **keys: Any) -> Path:
    address = validate({"addresses": [{"name": "orders", **keys}]}).addresses[0]
    return Path(address, partition, PARTITIONS, FORWARD)


def _decide(
    path: Path,
    records: Sequence[Given],
    table: Table | None = None,
    refused: dict[int, str] | None = None,
    topic: str = "orders",
    partition: int = HERE,
) -> Outcome:
    end = records[-1].offset + 1 if records else 0
    batch = FetchedBatch(topic, partition, 0, end, records, 0)
    table = Table() if table is None else table
    places = {(partition, offset): reason for offset, reason in (refused or {}).items()}
    return path.decide([DueRecords(batch, records)], cast("LaneTable", table), places)


def _key(home: int, number: int = 0) -> bytes:
    homes = Partitioner(PARTITIONS)
    return [key for key in map(b"%d".__mod__, range(99)) if homes[key] == home][number]


HOME, HOME_2, AWAY = _key(HERE), _key(HERE, 1), _key(1)


def _id(value: bytes) -> tuple[str, bytes]:
    return ("_AMQ_DUPL_ID", value)


def offsets(items: Sequence[Item]) -> list[int]:
    return [item.record.offset for item in items]


def homes(outcome: Outcome) -> list[tuple[int, int]]:
    return [(item.home, item.record.offset) for item in outcome.forwarded]


def _quarantined(outcome: Outcome) -> list[tuple[Record, bytes, str]]:
    return [(item.record, item.source, item.reason) for item in outcome.quarantined]


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
@pytest.mark.parametrize(
    ("keys", "key", "headers", "place"),
    [
        ({}, b"g", [_id(b"i")], b"g"),
        ({}, b"", [], b""),
        ({}, None, [_id(b"i")], b"i"),
        ({}, None, [_id(b"")], None),
        ({}, None, [("x", b"1")], None),
        ({"group_header": "g"}, b"k", [("g", b"h"), _id(b"i")], b"h"),
        ({"group_header": "g"}, b"k", [("g", b"")], b"qpid.no-group"),
        ({"group_header": "g"}, b"k", [], b"qpid.no-group"),
        ({"duplicate_id_from": "key"}, b"k", [], b"k"),
        ({"duplicate_id_from": "value"}, None, [_id(b"i")], digest_id(b"value")[1:]),
    ],
)
def test_home(keys: Any, key: bytes | None, headers: Headers, place: bytes | None, partitioner: str) -> None:
    """The group decides the home, an empty one too, and else the ID; a message with neither is at home where it is."""
    for lane in range(PARTITIONS):
        path = _path(lane, partitioner=partitioner, **keys)
        outcome = _decide(path, [Given(7, key, headers)], partition=lane)

        home = lane if place is None else Partitioner(PARTITIONS, partitioner)[place]
        assert offsets(outcome.here) == ([7] if home == lane else [])
        assert homes(outcome) == ([] if home == lane else [(home, 7)])


def test_originals() -> None:
    """A diverted duplicate's original is named, from the slots or from earlier in the same batch; others have none."""
    path, table = _path(duplicates="divert"), Table()
    table.apply(_decide(path, [Given(5, HOME, [_id(b"a")]), Given(6, HOME, [_id(b"b")])], table))
    ids = (b"b", b"c", None, b"d", b"d", b"c", b"b", b"a")
    records = [Given(10 + at, HOME, [] if id_ is None else [_id(id_)]) for at, id_ in enumerate(ids)]

    outcome = _decide(path, records, table)

    assert [item.original for item in outcome.here] == [
        b"orders/3/6", None, None, None, b"orders/3/13", b"orders/3/11", b"orders/3/6", b"orders/3/5",
    ]  # fmt: skip
    assert table.asked == [0, 1]


@pytest.mark.parametrize("duplicates", ["divert", "drop"])
def test_duplicates_without_an_original(duplicates: str) -> None:
    """A duplicate whose slot is gone has no original, and neither has one that is dropped. Its slot is read once, to compare the values."""
    path, table = _path(duplicates=duplicates), Table()
    table.apply(_decide(path, [Given(5, HOME, [_id(b"a")])], table))
    if duplicates == "divert":
        table.slots.clear()

    outcome = _decide(path, [Given(6, HOME, [_id(b"a")])], table)

    assert outcome.checked.verdicts == [DUPLICATE]
    assert [item.original for item in outcome.here] == [None]
    assert table.asked == [0]


STAMP = (5).to_bytes(8, "big")
FORWARDED_AT = 1_000_000


def _forwarded(offset: int, source: bytes, key: bytes | None = HOME, *more: tuple[str, bytes]) -> Given:
    headers = [*more, ("_RF_SOURCE", source), ("_RF_TIMESTAMP", STAMP)]
    return Given(offset, key, headers, timestamp=FORWARDED_AT)


def test_forwarded_is_never_forwarded_again() -> None:
    """A forwarded record is never forwarded again, whatever its home. Two lanes that disagree would pass it back and forth forever."""
    records = [_forwarded(0, b"orders/0/7", AWAY), _forwarded(1, b"orders/1/8", None, _id(AWAY))]

    outcome = _decide(_path(), records, topic=FORWARD)

    assert offsets(outcome.here) == [0, 1]
    assert outcome.forwarded == []
    assert [item.source for item in outcome.here] == [b"orders/0/7", b"orders/1/8"]
    assert outcome.checked.verdicts == [UNCHECKED, ACCEPTED]
    assert outcome.new_origins == [Origin(1, 8, 5)]


def test_forwarded_meets_the_original() -> None:
    """A resend that reached another lane is found out at its home."""
    path, table = _path(), Table()
    table.apply(_decide(path, [Given(5, HOME, [_id(b"a")])], table))

    outcome = _decide(path, [_forwarded(0, b"orders/1/9", HOME, _id(b"a"))], table, topic=FORWARD)

    assert outcome.checked.verdicts == [DUPLICATE]


_STAMPED, _SOURCE = ("_RF_TIMESTAMP", STAMP), ("_RF_SOURCE", b"orders/1/9")


@pytest.mark.parametrize(
    "headers",
    [
        *(
            [("_RF_SOURCE", source), _STAMPED]
            for source in (
                None, b"", b"orders/1", b"orders/1/", b"orders//1", b"other/1/9", b"x/orders/1/9", b"orders/1/9/9", b"orders/1/x",
                b"orders/-1/9", b"orders/1/9 ", b"orders/\xd9\xa1/9", b"orders/1/9\n", b"orders/2147483648/9",
                b"orders/1/9223372036854775808", b"orders/1/" + b"9" * 5_000,
            )
        ),
        *([_SOURCE, ("_RF_TIMESTAMP", value)] for value in (None, b"", STAMP[1:], STAMP + b"0")),
        [],
        [_SOURCE],
        [_STAMPED, _SOURCE],
        [_SOURCE, ("x", b"1"), _STAMPED],
    ],
)  # fmt: skip
def test_malformed_headers(headers: Headers) -> None:
    """A record that does not end as ours do is refused, and names itself as its source. Its neighbours flow."""
    records = [
        _forwarded(20, b"orders/999999999/0", HOME, _id(b"a")),
        Given(21, HOME, [_id(b"b"), *headers]),
        _forwarded(22, b"orders/3/999999999999999999", HOME, _id(b"c")),
    ]

    outcome = _decide(_path(), records, topic=FORWARD)

    assert _quarantined(outcome) == [(records[1], b"ringfence-orders-forward/3/21", MALFORMED)]
    assert [item.source for item in outcome.here] == [b"orders/999999999/0", b"orders/3/999999999999999999"]
    assert outcome.checked.new_ids == [encode_id(b"a"), encode_id(b"c")]
    for sequence, (item, origin) in enumerate(zip(outcome.checked.new_ids, outcome.new_origins, strict=True)):
        ring_value(sequence, item, origin)  # has room for it


FORGED: Headers = [("_RF_SOURCE", b"mine"), ("_RF_TIMESTAMP", b"mine too"), ("_RF_TIMESTAMP", STAMP)]


@pytest.mark.parametrize("timestamp", [-(2**63), -1, 0, 2**63 - 1])
@pytest.mark.parametrize("headers", [[], [("a", None), ("a", b""), _id(b"x")], FORGED])
def test_there_and_back(timestamp: int, headers: Headers) -> None:
    """A forwarded record arrives at home unchanged: key, value, all headers, and the timestamp that ages its ID."""
    sent = Given(7, HOME, headers, b"\xff", timestamp)
    on_the_way = Given(0, HOME, forwarded_headers(sent, b"orders/1/7"), b"\xff", FORWARDED_AT)

    outcome = _decide(_path(duplicate_id_from="value"), [on_the_way], topic=FORWARD)
    got = outcome.here[0].record

    assert (got.offset, got.key, got.value, got.timestamp) == (0, HOME, b"\xff", timestamp)
    assert list(got.headers) == list(headers)
    assert [item.source for item in outcome.here] == [b"orders/1/7"]
    assert outcome.new_origins == [Origin(1, 7, timestamp)]
    assert outcome.checked.new_times == [timestamp]


def test_refused_burns_no_slot() -> None:
    records = [Given(0, HOME, [_id(b"a")]), Given(1, HOME, [_id(b"a")]), Given(2, AWAY)]

    outcome = _decide(_path(), records, refused={0: "too large", 2: "too large there"})

    assert outcome.checked.verdicts == [ACCEPTED]
    assert outcome.checked.new_ids == [encode_id(b"a")]
    assert outcome.new_origins == [Origin(3, 1, 5)]
    assert outcome.forwarded == []
    assert _quarantined(outcome) == [
        (records[0], b"orders/3/0", "too large"),
        (records[2], b"orders/3/2", "too large there"),
    ]


@pytest.mark.parametrize("topic", ["orders", FORWARD])
def test_without_an_id_to_quarantine(topic: str) -> None:
    """A message without an ID goes to quarantine if the address says so, wherever its home is; the reason names the part."""
    path = _path(duplicate_id_from=["header:a", "header:b"], duplicate_id_missing="quarantine")
    a, b = ("a", b"1"), ("b", b"1")
    records = [Given(0, HOME, [a, b]), Given(1, HOME, [a]), Given(2, AWAY, [b])]
    if topic == FORWARD:
        records = [
            replace(record, headers=forwarded_headers(record, b"orders/1/%d" % record.offset))
            for record in records
        ]
    outcome = _decide(path, records, topic=topic)

    assert [item.record.offset for item in outcome.here] == [0]
    assert outcome.forwarded == []
    assert [item.reason for item in outcome.quarantined] == [
        f'no duplicate ID: the header {name} is missing or empty (duplicate_id_missing = "quarantine")'
        for name in "ba"
    ]

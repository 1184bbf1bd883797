import zlib
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
from ringfence_kafka.protocol.stored_ids import encode_id
from tables.codec import Origin, Slot, ring_value
from tables.hops import Arrival, HopMemory, Judged
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

    def check_units(self, units: Sequence[Sequence[bytes]], times: Sequence[int]) -> Checked:
        return self.ring.check_units(units, times)

    def check_hops(self, arrivals: Sequence[Arrival]) -> Judged:
        return self.hops.check(arrivals)

    def find(self, sequences: Sequence[int]) -> list[Slot | None]:
        self.asked += sequences
        return [self.slots.get(sequence) for sequence in sequences]

    def apply(self, outcome: Outcome) -> None:
        """As after the commit."""
        checked = outcome.checked
        for i, (item, origin) in enumerate(zip(checked.new_ids, outcome.new_origins, strict=True)):
            sequence = checked.first_sequence + i
            self.slots[sequence] = Slot(self.ring.capacity, sequence, item, origin)
        self.ring.apply(checked)
        self.hops.apply(outcome.judged)


def _path(partition: int = HERE, **keys: Any) -> Path:
    """Return a path of one of four lanes of the address ``orders``, configured by ``keys``."""
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


def _keys(home: int, count: int, partitioner: str = "murmur2") -> list[bytes]:
    """Keys whose home is that lane."""
    homes = Partitioner(PARTITIONS, partitioner)
    return [key for key in (b"key-%d" % index for index in range(1_000)) if homes[key] == home][:count]


HOME, HOME_2, HOME_3 = _keys(HERE, 3)
AWAY, AWAY_2 = _keys(1, 2)


def _id(value: bytes) -> tuple[str, bytes]:
    return ("_AMQ_DUPL_ID", value)


def offsets(items: Sequence[Item]) -> list[int]:
    return [item.record.offset for item in items]


def homes(outcome: Outcome) -> list[tuple[int, int]]:
    """Home and offset of each that is forwarded."""
    return [(item.home, item.record.offset) for item in outcome.forwarded]


def _quarantined(outcome: Outcome) -> list[tuple[Record, bytes, str]]:
    return [(item.record, item.source, item.reason) for item in outcome.quarantined]


# -- homes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
def test_home_of_the_group(partitioner: str) -> None:
    """A group's home is the partition chosen by producers with that partitioner; records elsewhere are forwarded there."""
    keys = [b"key-%d" % index for index in range(200)]
    records = [Given(number, key) for number, key in enumerate(keys)]
    hashes = {
        "murmur2": Partitioner(PARTITIONS),
        "crc32": {key: zlib.crc32(key) % PARTITIONS for key in keys},
    }

    outcome = _decide(_path(partitioner=partitioner), records)

    expected = [hashes[partitioner][key] for key in keys]
    assert offsets(outcome.here) == [number for number, home in enumerate(expected) if home == HERE]
    assert homes(outcome) == [(home, number) for number, home in enumerate(expected) if home != HERE]


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
def test_home_of_the_id(partitioner: str) -> None:
    """The ID's bytes decide the home of a record without a group, as a key would.

    A resend by another client meets the first message.
    """
    (here,), (away,) = _keys(HERE, 1, partitioner), _keys(2, 1, partitioner)
    records = [Given(0, headers=[_id(here)]), Given(1, headers=[_id(away)])]

    outcome = _decide(_path(partitioner=partitioner), records)

    assert offsets(outcome.here) == [0]
    assert homes(outcome) == [(2, 1)]


def test_group_goes_before_id() -> None:
    """The group takes precedence over the ID, so messages of a group meet in one lane."""
    records = [Given(0, HOME, [_id(AWAY)]), Given(1, AWAY, [_id(HOME)])]

    outcome = _decide(_path(), records)

    assert offsets(outcome.here) == [0]
    assert homes(outcome) == [(1, 1)]


def test_neither_group_nor_id() -> None:
    """A message with neither group nor ID has its home in every lane where it is."""
    for lane in range(PARTITIONS):
        outcome = _decide(_path(lane), [Given(0), Given(1, headers=[("x", b"1")])], partition=lane)

        assert offsets(outcome.here) == [0, 1]
        assert outcome.forwarded == []
        assert outcome.checked.verdicts == [UNCHECKED, UNCHECKED]


@pytest.mark.parametrize("lane", range(PARTITIONS))
def test_empty_group_and_empty_id(lane: int) -> None:
    """An empty group is a group like any other, with one home. An empty ID is none: without a group its message is at home where it is."""
    home = Partitioner(PARTITIONS)[b""]

    outcome = _decide(_path(lane), [Given(0, b""), Given(1, headers=[_id(b"")])], partition=lane)

    assert offsets(outcome.here) == ([0, 1] if lane == home else [1])
    assert [item.home for item in outcome.forwarded] == ([] if lane == home else [home])


def test_home_of_a_group_header() -> None:
    """A group named by a header decides the home, not the key. Without the header the default group decides."""
    default_home = Partitioner(PARTITIONS)[b"qpid.no-group"]
    records = [
        Given(0, AWAY, [("g", HOME)]),
        Given(1, HOME, [("g", AWAY)]),
        Given(2, HOME),
        Given(3, None, [("g", b"")]),
    ]

    outcome = _decide(_path(group_header="g"), records)

    assert default_home != HERE
    assert offsets(outcome.here) == [0]
    assert [item.group for item in outcome.here] == [HOME]
    assert homes(outcome) == [
        (1, 1), (default_home, 2), (default_home, 3),
    ]  # fmt: skip


def test_forged_source_in_the_input() -> None:
    """A source header that a producer wrote into the input is ignored."""
    outcome = _decide(_path(), [Given(7, HOME, [("_RF_SOURCE", b"orders/0/1"), _id(b"a")])])

    assert [item.source for item in outcome.here] == [b"orders/3/7"]
    assert outcome.new_origins == [Origin(3, 7, 5)]


def test_forwarded_burns_no_slot() -> None:
    """A forwarded record is not checked here: its ID becomes known only at its home."""
    table = Table()

    outcome = _decide(_path(), [Given(0, AWAY, [_id(b"a")]), Given(1, HOME, [_id(b"a")])], table)

    assert outcome.checked.verdicts == [ACCEPTED]
    assert outcome.checked.new_ids == [encode_id(b"a")]
    assert outcome.new_origins == [Origin(3, 1, 5)]


# -- verdicts --------------------------------------------------------------------------------------------------------


def test_verdicts_and_origins() -> None:
    """Records that stay get a verdict each, and only the accepted IDs an origin: partition, offset, timestamp."""
    records = [
        Given(10, HOME, [_id(b"a")], timestamp=100),
        Given(11, HOME, timestamp=101),
        Given(12, HOME, [_id(b"a")], timestamp=102),
        Given(13, HOME_2, [_id(b"b")], timestamp=103),
    ]

    outcome = _decide(_path(), records)

    assert outcome.checked.verdicts == [ACCEPTED, UNCHECKED, DUPLICATE, ACCEPTED]
    assert outcome.new_origins == [Origin(3, 10, 100), Origin(3, 13, 103)]
    assert [item.group for item in outcome.here] == [HOME, HOME, HOME, HOME_2]
    assert outcome.checked.new_times == [100, 103]


def test_times_reach_the_ring() -> None:
    """The records' own timestamps decide what is too old, those of the records that stay."""
    records = [
        Given(0, HOME, [_id(b"a")], timestamp=0),
        Given(1, AWAY, [_id(b"a")], timestamp=900),
        Given(2, HOME, [_id(b"a")], timestamp=1_001),
    ]

    assert _decide(_path(), records, Table(max_age_ms=1_000)).checked.verdicts == [ACCEPTED, ACCEPTED]
    assert _decide(_path(), records, Table(max_age_ms=1_001)).checked.verdicts == [ACCEPTED, DUPLICATE]


def test_detection_off() -> None:
    """A lane without a ring passes all records unchecked, and homes stay, so groups keep their order."""
    records = [Given(0, HOME, [_id(b"a")]), Given(1, HOME, [_id(b"a")]), Given(2, AWAY, [_id(b"a")])]

    outcome = _decide(_path(), records, Table(capacity=0))

    assert outcome.checked.verdicts == [UNCHECKED, UNCHECKED]
    assert outcome.new_origins == []
    assert len(outcome.forwarded) == 1


# -- originals -------------------------------------------------------------------------------------------------------


def test_originals() -> None:
    """A diverted duplicate's original is named, from the slots or from earlier in the same batch; others have none."""
    path, table = _path(duplicates="divert"), Table()
    table.apply(_decide(path, [Given(5, HOME, [_id(b"a")]), Given(6, HOME, [_id(b"b")])], table))
    records = [
        Given(10, HOME, [_id(b"b")]),
        Given(11, HOME, [_id(b"c")]),
        Given(12, HOME),
        Given(13, HOME, [_id(b"d")]),
        Given(14, HOME, [_id(b"d")]),
        Given(15, HOME, [_id(b"c")]),
        Given(16, HOME, [_id(b"b")]),
        Given(17, HOME, [_id(b"a")]),
    ]

    outcome = _decide(path, records, table)

    assert [item.original for item in outcome.here] == [
        b"orders/3/6", None, None, None, b"orders/3/13", b"orders/3/11", b"orders/3/6", b"orders/3/5",
    ]  # fmt: skip
    assert table.asked == [0, 1]


def test_original_that_was_forwarded() -> None:
    """An original that came by the forward topic is named where it stood in the input."""
    path, table = _path(duplicates="divert"), Table()
    forwarded = _forwarded(0, b"orders/1/44", HOME, _id(b"a"))
    table.apply(_decide(path, [forwarded], table, topic=FORWARD))

    outcome = _decide(path, [Given(5, HOME, [_id(b"a")])], table)

    assert table.slots[0].origin == Origin(1, 44, 5)
    assert [item.original for item in outcome.here] == [b"orders/1/44"]


def test_original_that_nobody_knows() -> None:
    """A duplicate whose original slot is missing is still a duplicate, with an unknown original."""
    path, table = _path(duplicates="divert"), Table()
    table.apply(_decide(path, [Given(5, HOME, [_id(b"a")])], table))
    table.slots.clear()

    outcome = _decide(path, [Given(6, HOME, [_id(b"a")])], table)

    assert outcome.checked.verdicts == [DUPLICATE]
    assert [item.original for item in outcome.here] == [None]


def test_dropped_duplicates_name_no_originals() -> None:
    """A lane that drops duplicates reads the slots of originals once, to compare the values."""
    path, table = _path(), Table()
    table.apply(_decide(path, [Given(5, HOME, [_id(b"a")])], table))

    outcome = _decide(path, [Given(6, HOME, [_id(b"a")])], table)

    assert outcome.checked.verdicts == [DUPLICATE]
    assert [item.original for item in outcome.here] == [None]
    assert table.asked == [0]


# -- the forward topic -----------------------------------------------------------------------------------------------


STAMP = (5).to_bytes(8, "big")
FORWARDED_AT = 1_000_000


def _forwarded(
    offset: int, source: bytes | None, key: bytes | None = HOME, *more: tuple[str, bytes]
) -> Given:
    """Return a record of time 5, forwarded much later."""
    headers = [*more, ("_RF_SOURCE", source), ("_RF_TIMESTAMP", STAMP)]
    return Given(offset, key, headers, timestamp=FORWARDED_AT)


def test_forwarded_is_never_forwarded_again() -> None:
    """A forwarded record is never forwarded again, whatever its home.

    Two lanes that disagree would pass it back and forth forever.
    """
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


@pytest.mark.parametrize(
    "source",
    [
        None,
        b"",
        b"orders",
        b"orders/1",
        b"orders/1/",
        b"orders//1",
        b"other/1/9",
        b"/1/9",
        b"x/orders/1/9",
        b"orders/1/9/9",
        b"orders/1/x",
        b"orders/-1/9",
        b"orders/1/-9",
        b"orders/1/9 ",
        b"orders/\xd9\xa1/9",
        b"orders/1/9\n",
        b"orders/2147483648/9",
        b"orders/1/9223372036854775808",
        b"orders/1/" + b"9" * 5_000,
    ],
)
def test_malformed_source(source: bytes | None) -> None:
    """A record with a malformed source is refused and names itself as its source.

    Its neighbours flow.
    """
    records = [
        _forwarded(20, b"orders/999999999/0", HOME, _id(b"a")),
        _forwarded(21, source, HOME, _id(b"b")),
        _forwarded(22, b"orders/3/999999999999999999", HOME, _id(b"c")),
    ]

    outcome = _decide(_path(), records, topic=FORWARD)

    assert _quarantined(outcome) == [(records[1], b"ringfence-orders-forward/3/21", MALFORMED)]
    assert [item.source for item in outcome.here] == [b"orders/999999999/0", b"orders/3/999999999999999999"]
    assert outcome.checked.new_ids == [encode_id(b"a"), encode_id(b"c")]
    for sequence, (item, origin) in enumerate(zip(outcome.checked.new_ids, outcome.new_origins, strict=True)):
        ring_value(sequence, item, origin)  # has room for it


def test_name_of_the_input_is_taken_as_it_is() -> None:
    """A dot in the input topic's name is a dot, not any character."""
    path, good, bad = _path(input_topic="shop.in"), b"shop.in/1/9", b"shop-in/1/9"

    outcome = _decide(path, [_forwarded(0, good), _forwarded(1, bad)], topic=FORWARD)

    assert [item.source for item in outcome.here] == [good]
    assert offsets(outcome.quarantined) == [1]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("_RF_SOURCE", b"orders/1/9")],
        [("_RF_TIMESTAMP", STAMP)],
        [("_RF_TIMESTAMP", STAMP), ("_RF_SOURCE", b"orders/1/9")],
        [("_RF_SOURCE", b"orders/1/9"), ("_RF_TIMESTAMP", STAMP), ("x", b"1")],
        [("_RF_SOURCE", b"orders/1/9"), ("x", b"1"), ("_RF_TIMESTAMP", STAMP)],
        *(
            [("_RF_SOURCE", b"orders/1/9"), ("_RF_TIMESTAMP", item)]
            for item in (None, b"", STAMP[1:], STAMP + b"0")
        ),
    ],
)
def test_malformed_headers(headers: Headers) -> None:
    """A record of the forward topic that does not end as ours do is refused as it is, and holds up nothing."""
    record = Given(0, HOME, headers)
    outcome = _decide(_path(), [record, _forwarded(1, b"orders/1/9")], topic=FORWARD)

    assert _quarantined(outcome) == [(record, b"ringfence-orders-forward/3/0", MALFORMED)]
    assert offsets(outcome.here) == [1]


@pytest.mark.parametrize("timestamp", [-(2**63), -2, -1, 0, 5, 1_700_000_000_123, 2**63 - 1])
@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("a", None), ("a", b""), _id(b"x")],
        [("_RF_SOURCE", b"mine"), ("_RF_TIMESTAMP", b"mine too"), ("_RF_TIMESTAMP", STAMP)],
    ],
)
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


# -- refused records -------------------------------------------------------------------------------------------------


def test_refused_burns_no_slot() -> None:
    """A refused record is not checked: the same ID in a record that fits is accepted."""
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


def test_refused_of_the_forward_topic() -> None:
    """A forwarded record that fits nowhere goes to quarantine under the source that was named for it."""
    record = _forwarded(4, b"orders/1/9", HOME, _id(b"a"))

    outcome = _decide(_path(), [record], refused={4: "too large"}, topic=FORWARD)

    ((refused, source, reason),) = _quarantined(outcome)
    assert (source, reason) == (b"orders/1/9", "too large")
    assert (refused.offset, refused.timestamp, refused.headers) == (4, 5, [_id(b"a")])
    assert outcome.checked.new_ids == []


# -- the ID that is not in a header ----------------------------------------------------------------------------------


def test_home_of_an_id_from_the_value() -> None:
    """The digest of the value decides the home of a record without a group.

    Equal bytes meet in one lane, whatever their sender.
    """
    records = [Given(index, value=b"value-%d" % (index % 10)) for index in range(20)]

    found: dict[bytes | None, set[int]] = {}
    for lane in range(PARTITIONS):
        outcome = _decide(_path(lane, duplicate_id_from="value"), records, partition=lane)
        assert outcome.checked.verdicts == [
            ACCEPTED if offset < 10 else DUPLICATE for offset in offsets(outcome.here)
        ]
        for item in outcome.here:
            found.setdefault(item.record.value, set()).add(lane)
        for item in outcome.forwarded:
            found.setdefault(item.record.value, set()).add(item.home)

    assert len(found) == 10
    assert all(len(value) == 1 for value in found.values())


def test_id_from_the_key() -> None:
    """A key that serves as ID is the group too, and its hash decides the home."""
    records = [
        Given(0, HOME),
        Given(1, AWAY),
        Given(2, HOME),
        Given(3, HOME_2),
        Given(4, AWAY_2),
        Given(5, HOME_3),
    ]

    outcome = _decide(_path(duplicate_id_from="key"), records)

    assert outcome.checked.verdicts == [ACCEPTED, DUPLICATE, ACCEPTED, ACCEPTED]
    assert homes(outcome) == [(1, 1), (1, 4)]


# -- messages without an ID -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["orders", FORWARD])
def test_without_an_id_to_quarantine(topic: str) -> None:
    """A message without an ID goes to quarantine if the address says so, wherever its home is; the reason names the part."""
    path = _path(duplicate_id_from=["header:a", "header:b"], duplicate_id_missing="quarantine")
    records = [
        Given(0, HOME, [("a", b"1"), ("b", b"1")]),
        Given(1, HOME, [("a", b"1")]),
        Given(2, AWAY, [("b", b"1")]),
    ]
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

"""Envelopes on the path: at home by their key, judged whole, emitted part by part."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import pytest
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record import MemoryRecords

from agents.batch.batch import DueRecords, FetchedBatch
from agents.decision.decide import Outcome, Path
from agents.decision.partitioner import Partitioner
from agents.output.build import Emitter
from agents.output.topic_batches import Outputs, TooLargeError
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol.stored_ids import encode_id, foreign_id
from tables.ring import Verdict
from tables.table import LaneTable
from tests.unit.agents.decision.test_decide import Given, Table, homes, offsets

ACCEPTED, DUPLICATE, UNCHECKED = Verdict.ACCEPTED, Verdict.DUPLICATE, Verdict.UNCHECKED
FORWARD = "ringfence-transfers-forward"
HERE, LANES = 1, 4
BYTES_MAX = 10_000

SETTINGS = validate(
    {
        "addresses": [
            {"name": "transfers", "transaction_addresses": ["payments", "notes"], "duplicates": "divert"},
            {"name": "payments", "partitioner": "crc32"},
            {"name": "notes", "group_header": "region", "duplicate_id_from": "key"},
            {"name": "ledgers"},
        ]
    }
)
COUNTS = {"transfers.accepted": 3, "payments.accepted": 5, "notes.accepted": 2, FORWARD: LANES}
COUNTS |= {"transfers.duplicates": 4, "transfers.quarantine": 4}
AT_HOME, AWAY = (
    next(key for key in (b"key-%d" % index for index in range(200)) if Partitioner(LANES)[key] == lane)
    for lane in (HERE, 2)
)


def part(address: str | None = None, key: str | None = None, value: str | None = "v", **headers: str) -> Any:
    found: dict[str, Any] = {"key": key, "value": value}
    if address is not None:
        found["address"] = address
    named = {name.replace("ID", "_AMQ_DUPL_ID"): text for name, text in headers.items()}
    return found | {"headers": [{"name": name, "value": text} for name, text in named.items()]}


def envelope(offset: int, *parts: Any, key: bytes | None = AT_HOME, **headers: bytes) -> Given:
    named = [(name.replace("ID", "_AMQ_DUPL_ID"), value) for name, value in headers.items()]
    value = json.dumps({"parts": parts}).encode()
    return Given(offset, key, [("_RF_TX", b"json/1"), *named], value, timestamp=77)


class Lane:
    """Path, ring and emitter of one lane of ``transfers``, or of another address with its own counts of partitions."""

    def __init__(
        self,
        capacity: int = 100,
        address: AddressSettings = SETTINGS.addresses[0],
        place: tuple[int, int] = (HERE, LANES),
        counts: dict[str, int] = COUNTS,
        bytes_max: int = BYTES_MAX,
        **keys: Any,
    ) -> None:
        address = address.model_copy(update=keys)
        self.table = Table(capacity)
        self.bytes_max = bytes_max
        self._topic = address.input_topic
        targets = SETTINGS.transaction_targets(address)
        self._path = Path(address, *place, FORWARD, targets)
        outputs = Outputs(counts, dict.fromkeys(counts, bytes_max), {})
        self.emitter = Emitter(address, FORWARD, outputs, targets)

    def decide(self, *records: Given, topic: str = "", refused: dict[int, str] | None = None) -> Outcome:
        """Decide one batch without applying the outcome."""
        places = {(HERE, offset): reason for offset, reason in (refused or {}).items()}
        return self.decide_all({HERE: records}, places, topic)

    def decide_all(
        self,
        batches: Mapping[int, Sequence[Given]],
        refused: dict[tuple[int, int], str] | None = None,
        topic: str = "",
    ) -> Outcome:
        """Decide one batch of each of these partitions; one without records ends at 50."""
        due = []
        for number, records in batches.items():
            end = records[-1].offset + 1 if records else 50
            batch = FetchedBatch(topic or self._topic, number, 0, end, records, 0)
            due.append(DueRecords(batch, records))
        return self._path.decide(due, cast("LaneTable", self.table), refused or {})

    def verdicts(self, *records: Given) -> list[Verdict]:
        outcome = self.decide(*records)
        self.table.apply(outcome)
        return outcome.checked.verdicts


class Out(NamedTuple):
    """A record as the broker would store it."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes | None]
    timestamp: int


def emitted(lane: Lane, outcome: Outcome) -> list[Out]:
    """Return the records that go out, grouped by topic in order of first appearance."""
    found = []
    for item in lane.emitter.emit(outcome, lambda: BatchBuilder(lane.bytes_max, 0, is_transactional=1)):
        records = MemoryRecords(bytes(item.builder._build()))
        while (batch := records.next_batch()) is not None:
            found += [
                Out(item.topic, item.partition, r.key, r.value, dict(r.headers), r.timestamp) for r in batch
            ]
    return found


def test_ids_of_other_addresses_are_apart() -> None:
    """IDs follow the rules of each address: ``7`` of payments is not ``7`` of transfers, and notes uses the key."""
    lane = Lane()
    outcome = lane.decide(envelope(0, part("payments", ID="7"), part("notes", key="7", ID="x"), part(ID="7")))
    lane.table.apply(outcome)

    assert outcome.checked.new_ids == [
        foreign_id("payments", encode_id(b"7")), foreign_id("notes", encode_id(b"7")), encode_id(b"7"),
    ]  # fmt: skip
    assert [origin.offset for origin in outcome.new_origins] == [0, 0, 0]
    assert lane.verdicts(envelope(1, part("payments", ID="7"))) == [DUPLICATE]
    assert lane.verdicts(envelope(2, part("notes", key="8", ID="7"))) == [ACCEPTED]


@pytest.mark.parametrize("group_header", ["", "region"])
def test_home_by_the_key_alone(group_header: str) -> None:
    """The key alone decides the home of an envelope: its producer chose it. One with another home is forwarded unread."""
    records = [
        envelope(0, part(key=AWAY.decode()), region=AWAY),
        envelope(1, part(), key=AWAY, region=AT_HOME),
        Given(2, AWAY, [("_RF_TX", b"json/9")], b"not even JSON"),
    ]
    outcome = Lane(group_header=group_header).decide(*records)

    assert offsets(outcome.here) == [0]
    assert homes(outcome) == [(2, 1), (2, 2)]
    assert outcome.quarantined == []


def test_observed_whole() -> None:
    """If the address observes, all parts of a duplicate envelope pass, each with the verdict on the whole."""
    lane = Lane(mode="observe")
    lane.verdicts(Given(3, AT_HOME, [("_AMQ_DUPL_ID", b"known")]))
    record = envelope(4, part("payments", ID="new"), part(ID="known"), part("notes"))
    out = emitted(lane, lane.decide(record, envelope(5, part(ID="new"))))

    assert {(item.topic, item.headers["_RF_TX_PART"]): item.headers["_RF_VERDICT"] for item in out} == {
        ("payments.accepted", b"1/3"): b"DUPLICATE transfers/1/3",
        ("transfers.accepted", b"2/3"): b"DUPLICATE transfers/1/3",
        ("notes.accepted", b"3/3"): b"DUPLICATE transfers/1/3",
        ("transfers.accepted", b"1/1"): b"ACCEPTED",
    }


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (envelope(0, part(), part("ledgers")), "part 2/2: address 'ledgers' is not in transaction_addresses of transfers"),
        (envelope(0, part(), {"nonsense": 1}), "part 2/2: unknown name 'nonsense'"),
        (Given(0, AT_HOME, [("_RF_TX", b"json/2")], b"{}"), "_RF_TX is 'json/2'"),
        (Given(0, AT_HOME, [("_RF_TX", None)], b"{}"), "_RF_TX is ''"),
        (Given(0, AT_HOME, [("_RF_TX", b"json/1")], None), "it has no value"),
        (envelope(0, part("\U000e0001" * 300)), "part 1/1: address '\\U000e0001"),
    ],
)  # fmt: skip
def test_refused_whole(record: Given, reason: str) -> None:
    """A malformed envelope is refused before its IDs are judged, with a reason that fits its header, and later records flow."""
    lane = Lane()
    after = envelope(1, part(ID="x"), ID=b"y")
    outcome = lane.decide(record, after)
    out = emitted(lane, outcome)

    assert [reason in item.reason for item in outcome.quarantined] == [True]
    assert outcome.checked.verdicts == [ACCEPTED]
    assert [item.topic for item in out] == ["transfers.accepted", "transfers.quarantine"]
    assert (out[1].key, out[1].value) == (record.key, record.value)
    assert len(out[1].headers["_RF_REASON"] or b"") < 300


@pytest.mark.parametrize("value", ["x" * BYTES_MAX, "x" * (BYTES_MAX - 60)])
def test_part_too_large_for_its_topic(value: str) -> None:
    """An envelope with too large a part is refused with the part named, before its IDs are judged: neither new nor known ones count."""
    lane = Lane()
    large = envelope(1, part(ID="b"), part("payments", value=value), ID=b"a")
    records = [envelope(0, part(), ID=b"a"), large]
    with pytest.raises(TooLargeError) as refused:
        emitted(lane, lane.decide(*records))
    ((place, reason),) = refused.value.reasons.items()

    assert place == (HERE, 1)
    assert reason.startswith("part 2/2: ")
    assert reason.endswith("payments.accepted takes max.message.bytes = 10000")

    outcome = lane.decide(*records, refused={1: reason})
    emitted(lane, outcome)

    assert offsets(outcome.quarantined) == [1]
    assert outcome.checked.new_ids == [encode_id(b"a")]


def test_a_transaction_without_any_id() -> None:
    """If IDs are needed, a transaction without any ID is refused whole. One ID is enough, its own or a part's."""
    lane = Lane(duplicate_id_missing="quarantine")
    outcome = lane.decide(
        envelope(0, part(key="a"), part(key="b"), ID=b"1"),
        envelope(1, part(key="a"), part("payments", "b", ID="7")),
        envelope(2, part(key="a"), part(key="b")),
        Given(3, AT_HOME),
    )

    assert [item.record.offset for item in outcome.here] == [0, 1]
    assert [(item.record.offset, item.reason.partition(" (")[0]) for item in outcome.quarantined] == [
        (2, "no duplicate ID: neither the transaction nor a part of it has one"),
        (3, "no duplicate ID: the headers _AMQ_DUPL_ID, _HQ_DUPL_ID are missing or empty"),
    ]

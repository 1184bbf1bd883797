"""A lane of several partitions judges them one after the other, against one ring."""

from typing import Any, cast

import pytest
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record import MemoryRecords

from agents.batch.batch import DueRecords, FetchedBatch
from agents.decision.decide import Outcome, Path
from agents.output.build import Emitter
from agents.output.topic_batches import Outputs, TooLargeError
from ringfence_kafka.config.load import validate
from tables.codec import Origin
from tables.ring import Verdict
from tables.table import LaneTable
from tests.unit.agents.decision.test_decide import ACCEPTED, DUPLICATE, UNCHECKED, Given, Table
from tests.unit.agents.decision.test_decide_envelopes import envelope as make_envelope
from tests.unit.agents.decision.test_decide_envelopes import part

PARTITIONS = 6
FORWARD = "ringfence-orders-forward"


def record(offset: int, group: bytes | None, data: bytes | None, *more: tuple[str, bytes]) -> Given:
    own = [] if data is None else [("_AMQ_DUPL_ID", data)]
    return Given(offset, group, [*own, *more])


def envelope(offset: int, own: str | None, *ids: str | None) -> Given:
    parts = [part(key="g", **({} if id_ is None else {"ID": id_})) for id_ in ids]
    return make_envelope(offset, *parts, key=b"g", **({} if own is None else {"ID": own.encode()}))


class Lane:
    """Path, ring and emitter of lane 0 of ``orders``."""

    def __init__(self, lanes: int, *, capacity: int = 100, bytes_max: int = 2**20, **keys: Any) -> None:
        address = validate({"addresses": [{"name": "orders", "lanes": lanes, **keys}]}).addresses[0]
        topics = [*address.topics("ringfence").values(), FORWARD]
        outputs = Outputs(dict.fromkeys(topics, 2), dict.fromkeys(topics, bytes_max), {})
        self.table = Table(capacity)
        self._bytes_max = bytes_max
        self._path = Path(address, 0, PARTITIONS, FORWARD)
        self._emitter = Emitter(address, FORWARD, outputs)

    def decide(self, **batches: list[Given]) -> Outcome:
        return self.decide_again({}, **batches)

    def decide_again(self, refused: dict[tuple[int, int], str], /, **batches: list[Given]) -> Outcome:
        due = []
        for name, records in batches.items():
            number = int(name.removeprefix("p"))
            end = records[-1].offset + 1 if records else 50
            due.append(DueRecords(FetchedBatch("orders", number, 0, end, records, 0), records))
        return self._path.decide(due, cast("LaneTable", self.table), refused)

    def emitted(self, outcome: Outcome, topic: str) -> list[dict[str, bytes | None]]:
        """Return the headers of what goes to a topic, in order."""
        found = []
        for item in self._emitter.emit(outcome, lambda: BatchBuilder(self._bytes_max, 0, is_transactional=1)):
            batch = MemoryRecords(bytes(item.builder._build())).next_batch()
            if item.topic == topic and batch is not None:
                found += [dict(record.headers) for record in batch]
        return found


def test_an_id_is_known_in_all_partitions() -> None:
    """An ID is known in all partitions of a lane, even within one transaction. Each origin names its partition."""
    lane = Lane(1)
    outcome = lane.decide(
        p0=[record(5, b"a", b"1"), record(6, b"a", None)], p3=[record(1, b"z", b"1"), record(2, b"z", b"2")]
    )
    lane.table.apply(outcome)

    assert outcome.checked.verdicts == [ACCEPTED, UNCHECKED, DUPLICATE, ACCEPTED]
    assert outcome.new_origins == [Origin(0, 5, 5), Origin(3, 2, 5)]
    assert list(outcome.ends) == [7, 3]
    assert lane.decide(p5=[record(9, b"q", b"2")]).checked.verdicts == [DUPLICATE]


def test_sequences_count_accepted_ids() -> None:
    """A message without an ID has none, and a forged one is replaced."""
    lane = Lane(1)
    first = lane.decide(
        p0=[record(0, b"a", b"1", ("_RF_SEQ", b"77")), record(1, b"a", None, ("_RF_SEQ", b"78"))],
        p1=[record(0, b"b", b"1"), record(1, b"b", b"2")],
    )
    headers = lane.emitted(first, "orders.accepted")
    lane.table.apply(first)
    later = lane.emitted(lane.decide(p2=[record(0, b"c", b"3")]), "orders.accepted")

    assert {item["_RF_SOURCE"]: item.get("_RF_SEQ") for item in headers + later} == {
        b"orders/0/0": b"0",
        b"orders/0/1": None,
        b"orders/1/1": b"1",
        b"orders/2/0": b"2",
    }


@pytest.mark.parametrize(
    ("own", "ids", "sequences"),
    [
        ("e", ["1", None, "2"], [b"2", b"1", b"3"]),
        (None, ["1", None, "2"], [b"1", None, b"2"]),
        ("e", [None, None], [b"1", b"1"]),
        ("1", ["1", "2"], [b"1", b"2"]),
    ],
)
def test_sequences_of_parts(own: str | None, ids: list[str | None], sequences: list[bytes | None]) -> None:
    """A part has the number of its own ID, or else of the envelope's. The first message has number 0."""
    lane = Lane(1)
    outcome = lane.decide(p0=[record(0, b"a", b"x")], p1=[envelope(0, own, *ids)])
    headers = lane.emitted(outcome, "orders.accepted")

    assert [item.get("_RF_SEQ") for item in headers if "_RF_TX_PART" in item] == sequences


@pytest.mark.parametrize(("lanes", "capacity"), [(0, 100), (1, 0)])
def test_no_sequence_without_detection_or_lanes(lanes: int, capacity: int) -> None:
    lane = Lane(lanes, capacity=capacity)
    headers = lane.emitted(lane.decide(p0=[record(0, b"2", b"1")]), "orders.accepted")

    assert all("_RF_SEQ" not in item for item in headers)


def test_cut_before_an_envelope(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records behind a cut wait for the next transaction, in its partition and in later ones."""
    monkeypatch.setattr("agents.decision.decide.BATCH_PARTS_MAX", 3)
    outcome = Lane(1).decide(
        p0=[envelope(0, None, "1", "2")],
        p1=[record(4, b"a", b"3"), envelope(7, None, "4", "5"), record(8, b"a", b"6")],
        p2=[record(9, b"a", b"7")],
        p3=[],
    )

    assert list(outcome.ends) == [1, 7, 9, 50]
    assert outcome.checked.verdicts == [Verdict.ACCEPTED] * 2


def test_too_large_in_one_partition() -> None:
    """The record at the same offset of another partition is not refused with it."""
    lane = Lane(1, bytes_max=2_000)
    large = Given(3, b"a", [("_AMQ_DUPL_ID", b"1")], bytes(5_000))
    batches = {"p0": [record(3, b"a", b"0")], "p1": [large]}
    with pytest.raises(TooLargeError) as refused:
        lane.emitted(lane.decide(**batches), "orders.accepted")
    outcome = lane.decide_again(refused.value.reasons, **batches)

    assert list(refused.value.reasons) == [(1, 3)]
    assert [item.source for item in outcome.here] == [b"orders/0/3"]
    assert [item.source for item in outcome.quarantined] == [b"orders/1/3"]

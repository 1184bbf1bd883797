"""A lane of several partitions judges them one after the other, against one ring."""

from collections.abc import Mapping

import pytest

from agents.decision.decide import Outcome
from agents.output.topic_batches import TooLargeError
from ringfence_kafka.config.load import validate
from tables.codec import Origin
from tests.unit.agents.decision.test_decide import ACCEPTED, DUPLICATE, UNCHECKED, Given
from tests.unit.agents.decision.test_decide_envelopes import FORWARD, Lane, emitted, part
from tests.unit.agents.decision.test_decide_envelopes import envelope as make_envelope


def record(offset: int, group: bytes | None, data: bytes | None, *more: tuple[str, bytes]) -> Given:
    own = [] if data is None else [("_AMQ_DUPL_ID", data)]
    return Given(offset, group, [*own, *more])


def envelope(offset: int, own: str | None, *ids: str | None) -> Given:
    parts = [part(key="g", **({} if id_ is None else {"ID": id_})) for id_ in ids]
    return make_envelope(offset, *parts, key=b"g", **({} if own is None else {"ID": own.encode()}))


def _lane(lanes: int = 1, capacity: int = 100, bytes_max: int = 2**20) -> Lane:
    """Return lane 0 of ``orders``, which has six partitions."""
    address = validate({"addresses": [{"name": "orders", "lanes": lanes}]}).addresses[0]
    counts = dict.fromkeys([*address.topics("ringfence").values(), FORWARD], 2)
    return Lane(capacity, address, (0, 6), counts, bytes_max)


def _headers(lane: Lane, outcome: Outcome) -> list[Mapping[str, bytes | None]]:
    return [out.headers for out in emitted(lane, outcome) if out.topic == "orders.accepted"]


def test_an_id_is_known_in_all_partitions() -> None:
    """An ID is known in all partitions of a lane, even within one transaction. Each origin names its partition."""
    lane = _lane()
    first, second = (
        [record(5, b"a", b"1"), record(6, b"a", None)],
        [record(1, b"z", b"1"), record(2, b"z", b"2")],
    )
    outcome = lane.decide_all({0: first, 3: second})
    lane.table.apply(outcome)

    assert outcome.checked.verdicts == [ACCEPTED, UNCHECKED, DUPLICATE, ACCEPTED]
    assert outcome.new_origins == [Origin(0, 5, 5), Origin(3, 2, 5)]
    assert list(outcome.ends) == [7, 3]
    assert lane.decide_all({5: [record(9, b"q", b"2")]}).checked.verdicts == [DUPLICATE]


def test_sequences_count_accepted_ids() -> None:
    """A message without an ID has none, and a forged one is replaced."""
    lane = _lane()
    batches = {
        0: [record(0, b"a", b"1", ("_RF_SEQ", b"77")), record(1, b"a", None, ("_RF_SEQ", b"78"))],
        1: [record(0, b"b", b"1"), record(1, b"b", b"2")],
    }
    first = lane.decide_all(batches)
    headers = _headers(lane, first)
    lane.table.apply(first)
    later = _headers(lane, lane.decide_all({2: [record(0, b"c", b"3")]}))

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
    lane = _lane()
    outcome = lane.decide_all({0: [record(0, b"a", b"x")], 1: [envelope(0, own, *ids)]})
    headers = _headers(lane, outcome)

    assert [item.get("_RF_SEQ") for item in headers if "_RF_TX_PART" in item] == sequences


def test_cut_before_an_envelope(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records behind a cut wait for the next transaction, in its partition and in later ones."""
    monkeypatch.setattr("agents.decision.decide.BATCH_PARTS_MAX", 3)
    batches = {
        0: [envelope(0, None, "1", "2")],
        1: [record(4, b"a", b"3"), envelope(7, None, "4", "5"), record(8, b"a", b"6")],
        2: [record(9, b"a", b"7")],
        3: [],
    }
    outcome = _lane().decide_all(batches)

    assert list(outcome.ends) == [1, 7, 9, 50]
    assert outcome.checked.verdicts == [ACCEPTED] * 2


def test_too_large_in_one_partition() -> None:
    """The record at the same offset of another partition is not refused with it."""
    lane = _lane(bytes_max=2_000)
    large = Given(3, b"a", [("_AMQ_DUPL_ID", b"1")], bytes(5_000))
    batches = {0: [record(3, b"a", b"0")], 1: [large]}
    with pytest.raises(TooLargeError) as refused:
        _headers(lane, lane.decide_all(batches))
    outcome = lane.decide_all(batches, refused.value.reasons)

    assert list(refused.value.reasons) == [(1, 3)]
    assert [item.source for item in outcome.here] == [b"orders/0/3"]
    assert [item.source for item in outcome.quarantined] == [b"orders/1/3"]

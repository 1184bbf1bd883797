"""An ID that makes up a large part of a lane's duplicates is found, with little memory."""

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

import native
from agents.batch.batch import DueRecords, FetchedBatch
from agents.batch.native_records import parse
from agents.decision.decide import Outcome
from agents.decision.frequent_ids import COUNTERS, HALF_HOUR_S, FrequentId, FrequentIds, meaning
from agents.decision.item import Item
from agents.lane.outcome_counts import OutcomeCounts
from ringfence_kafka.config.load import validate
from ringfence_kafka.protocol.duplicate_id import composed
from ringfence_kafka.protocol.stored_ids import encode_id
from tables.ring import Checked, Verdict
from tests.support.records.stored_batches import Stored, stored

CONSTANT = encode_id(b"constant")


def _add(found: FrequentIds, *ids: bytes | None) -> None:
    """Add a batch of duplicates with these IDs, between accepted messages."""
    verdicts = [verdict for _ in ids for verdict in (Verdict.ACCEPTED, Verdict.DUPLICATE)]
    found.count(verdicts, len(ids), lambda place: ids[place // 2])


@pytest.mark.parametrize(("constant", "others", "named"), [(10, 90, False), (11, 89, True), (9, 0, False)])
def test_more_than_a_tenth(constant: int, others: int, named: bool, clock: SimpleNamespace) -> None:
    """A tenth is not enough, and neither are fewer than ten duplicates: those are resends."""
    found = FrequentIds("orders-0")
    for number in range(constant):
        _add(found, CONSTANT, *[encode_id(b"%d" % (number % 4))] * 2)
    for _ in range(others - 2 * constant):
        _add(found, None)

    assert (found.most is not None and found.most.id == CONSTANT) is named


@pytest.mark.parametrize("share", [0.15, 0.5])
def test_among_many(share: float, clock: SimpleNamespace) -> None:
    """The ID is found among any number of others, whatever the batches, and with a fixed number of counters."""
    rng = random.Random(4)
    found = FrequentIds("orders-0")
    sent: Counter[bytes] = Counter()
    for number in range(400):
        ids = [encode_id(b"%d-%d" % (number, at)) for at in range(rng.choice([1, 30, 300]))]
        ids = [CONSTANT if rng.random() < share else id_ for id_ in ids]
        sent.update(ids)
        _add(found, *ids)

    most = found.most
    assert most is not None
    assert (most.id, most.duplicates) == (CONSTANT, sent.total())
    assert share - 0.05 < most.share < share + 0.02
    assert all(len(window.counts) <= COUNTERS for window in found._windows)


def test_retries_of_one_message_are_no_large_part(clock: SimpleNamespace) -> None:
    """A large batch is sampled, and a few resends in a row in it do not count for all of its duplicates."""
    found = FrequentIds("orders-0")
    for _ in range(3):
        _add(found, *[CONSTANT] * 4, *[encode_id(b"%d" % number) for number in range(499)])
        assert found.most is None

    _add(found, *[CONSTANT] * 999)
    assert found.most is not None
    assert 0.2 < found.most.share < 0.6


def test_an_hour_later(clock: SimpleNamespace) -> None:
    found = FrequentIds("orders-0")
    _add(found, *[CONSTANT] * 20)
    shown = []
    for _ in range(4):
        shown.append(found.most and found.most.repeats)
        clock.now += HALF_HOUR_S - 1
        _add(found, None)
        clock.now += 1

    assert shown == [20, 20, None, None]
    assert FrequentIds("orders-0").most is None


@pytest.mark.parametrize(
    ("keys", "means"),
    [
        ({}, "loses all but the first"),
        ({"duplicates": "divert"}, "go to orders.duplicates"),
        ({"on_conflict": "divert"}, "go to orders.duplicates"),
        ({"on_conflict": "accept"}, "loses those whose value came before"),
        ({"mode": "observe"}, "loses none here"),
    ],
)
def test_what_it_means(keys: dict[str, str], means: str) -> None:
    """A producer with one ID loses messages only where the address drops them."""
    (address,) = validate({"addresses": [{"name": "orders", **keys}]}).addresses

    assert means in meaning(address)


def test_the_log_names_it_once_an_hour(clock: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    found = FrequentIds("orders-0", means="A producer with one ID loses all but the first")
    for _ in range(5):
        _add(found, *[CONSTANT] * 10)
    clock.now += 2 * HALF_HOUR_S
    _add(found, *[CONSTANT] * 10)

    line = (
        "lane orders-0: 100 % of the 10 duplicates of the last hour have the ID constant. A producer with one ID loses all but the first: "
        "give each message an ID of its own"
    )
    assert caplog.messages == [line, line]


def _counts(**address: Any) -> OutcomeCounts:
    made = validate({"addresses": [{"name": "orders", **address}]}).addresses[0]
    opening: Any = SimpleNamespace(chained=False, name="orders-0", number=0, address=made)
    return OutcomeCounts(opening, Counter(), lambda _seconds, _parts: None)


def _due(partition: int, *ids: bytes) -> DueRecords:
    data = stored([Stored(at, key=item, headers=[("_AMQ_DUPL_ID", item)]) for at, item in enumerate(ids)])
    part = parse(data, 0, [], lambda *_: None)
    assert part is not None
    return DueRecords(FetchedBatch("orders", partition, 0, len(ids), part.records, 0), part.records)


OF_PARTS = FrequentId(encode_id(composed([b"constant"] * 2)), 11, 11, ["constant"] * 2)


@pytest.mark.skipif(native.core is None, reason=native.spoken)
@pytest.mark.parametrize(
    ("source", "named"),
    [("header", FrequentId(CONSTANT, 11, 11)), (["key", "header:_AMQ_DUPL_ID"], OF_PARTS)],
)
def test_records_of_the_core(source: str | list[str], named: FrequentId, clock: SimpleNamespace) -> None:
    """The native path makes no objects of records: the IDs of duplicates are read from its bytes, in several batches."""
    counts = _counts(duplicate_id_from=source)
    due = [_due(0, b"a", b"b"), _due(1, b"c", *[b"constant"] * 12)]
    verdicts: Any = bytes([0, 0, 0, 0, *[Verdict.DUPLICATE] * 11])
    counts.count(Outcome(Checked(verdicts, [], 0, [], [])), due, 0.1, 2)

    assert counts.frequent_ids.most == named


def test_records_of_python(clock: SimpleNamespace) -> None:
    """The path in Python has the IDs at hand. A message that its hop has decided about counts with no ID.

    A header that is configured for IDs and null is not named as a possible ID.
    """
    counts = _counts()
    headers = (("_AMQ_DUPL_ID", None), ("order-id", b"7"))
    records: list[Any] = [SimpleNamespace(headers=headers)] * 25
    here = [Item(record, b"", CONSTANT, None, None, 0) for record in records]
    for item in here[12:]:
        item.resent = True
    verdicts = [Verdict.ACCEPTED, *[Verdict.DUPLICATE] * 23, Verdict.UNCHECKED]
    counts.count(Outcome(Checked(verdicts, [], 0, [], []), here), [], 0.1, 1)

    assert counts.frequent_ids.most == FrequentId(CONSTANT, 11, 23)
    assert counts.missing_ids.names == ["order-id"]

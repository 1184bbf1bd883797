"""The inbox of a lane: batches in order and joined where possible."""

import random
from typing import Any

import pytest

from agents.batch import batch as batches
from agents.batch.batch import FetchedBatch
from agents.batch.inbox import MAIL_MAX, Inbox

INPUT, FORWARD = "orders", "app-orders-forward"


def batch(begin: int, end: int, topic: str = INPUT, seek: int = 1, partition: int = 0) -> FetchedBatch:
    """Offsets stand for records."""
    records: Any = list(range(begin, end))
    return FetchedBatch(topic, partition, begin, end, records, seek)


def taken(mail: Inbox) -> list[FetchedBatch]:
    return [batch for some in iter(mail.pop_batches, []) for batch in some]


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(batch(11, 12), id="a gap between them"),
        pytest.param(batch(9, 12), id="the two overlap"),
        pytest.param(batch(10, 12, seek=2), id="rewound between them"),
        pytest.param(batch(10, 12, topic=FORWARD), id="another topic"),
    ],
)
def test_what_does_not_go_on_stays_apart(later: FetchedBatch) -> None:
    """The lane must see where a batch began, and after which rewind it was fetched."""
    mail = Inbox()

    assert mail.add(batch(0, 10))
    assert mail.add(later)
    assert taken(mail) == [batch(0, 10), later]


def test_no_batch_becomes_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction has a limit, also one of many small batches."""
    monkeypatch.setattr(batches, "BATCH_RECORDS_MAX", 12)
    mail = Inbox()
    for begin in range(0, 20, 5):
        assert mail.add(batch(begin, begin + 5))

    assert taken(mail) == [batch(0, 10), batch(10, 20)]


def test_room_is_bounded() -> None:
    """A full inbox refuses batches, which stay with Faust and the broker until there is room again."""
    mail = Inbox()
    for number in range(MAIL_MAX):
        assert mail.add(batch(10 * number, 10 * number + 5))

    assert not mail.add(batch(100, 101))
    assert mail.pop_batches() == [batch(0, 5)]
    assert mail.add(batch(100, 101))
    assert len(taken(mail)) == MAIL_MAX


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_doubled_or_overtaken(seed: int) -> None:
    """The records of each topic leave in their order of arrival, without loss or repetition."""
    rng = random.Random(seed)
    mail = Inbox()
    came: dict[str, list[Any]] = {INPUT: [], FORWARD: []}
    went: dict[str, list[Any]] = {INPUT: [], FORWARD: []}
    ends = dict.fromkeys(came, 0)
    for _ in range(500):
        topic = rng.choice([INPUT, FORWARD])
        begin = ends[topic] + rng.choice([0, 0, 0, 3])
        each = batch(begin, begin + rng.randint(1, 4), topic)
        if rng.random() < 0.7 and mail.add(each):
            came[topic] += each.records
            ends[topic] = each.end
        else:
            for one in mail.pop_batches():
                went[one.topic] += one.records
    for one in taken(mail):
        went[one.topic] += one.records

    assert went == came
    assert all(value == sorted(value) for value in went.values())


def test_a_transaction_takes_what_all_partitions_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction takes one batch of each partition, up to its number of records. A forwarded batch goes alone."""
    monkeypatch.setattr("agents.batch.inbox.TRANSACTION_RECORDS_MAX", 10)
    mail = Inbox()
    first = [
        *(batch(0, 4, partition=number) for number in (0, 1)),
        batch(0, 1, FORWARD),
        batch(0, 4, partition=2),
        batch(9, 10),
        batch(0, 2, partition=3),
    ]

    assert [mail.add(item) for item in first] == [True, True, True, True, False, True]
    assert mail.pop_batches() == [first[0], first[1], first[5]]
    assert mail.add(first[4])
    assert mail.pop_batches() == [first[2]]
    assert mail.pop_batches() == [first[3], first[4]]
    assert not mail

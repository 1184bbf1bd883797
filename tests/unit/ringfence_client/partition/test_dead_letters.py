"""Dead letters that wait are written some at a time, in few batches."""

from typing import Any

import pytest
from aiokafka.producer.message_accumulator import BatchBuilder

from ringfence_client.partition import dead_letters
from ringfence_client.partition.dead_letters import DeadLetter, DeadLetters, DeadLetterTopic, PendingLetters
from ringfence_kafka.producer.transactional import Outgoing
from tests.support.consumers.windows import Fetched


class _Producer:
    def builder(self) -> BatchBuilder:
        return BatchBuilder(64 * 1024, 0, is_transactional=1)


def _outgoing(letters: list[Fetched], bytes_max: int = 100_000) -> list[Outgoing]:
    of = DeadLetters(DeadLetterTopic("orders.dlq", 4, bytes_max), "readers")
    return of.outgoing([DeadLetter(letter, "no", 1) for letter in letters], _Producer())  # type: ignore[arg-type]


async def test_those_of_a_partition_go_together() -> None:
    """Dead letters of one partition go into one batch, as far as there is room, because each batch is a round trip."""
    keyed = [Fetched(offset, b"%d" % (offset % 2)) for offset in range(100)]
    alone = [Fetched(offset, None) for offset in range(100, 150)]
    found = _outgoing([*keyed, *alone])

    assert len({batch.partition for batch in found}) == len(found) <= 3
    assert sum(batch.builder.record_count() for batch in found) == 150


@pytest.mark.parametrize("bytes_max", [5_000, 1_000_000])
async def test_as_far_as_there_is_room(bytes_max: int) -> None:
    """A batch never exceeds the limit of the topic or of the producer."""
    found = _outgoing([Fetched(offset, None, b"x" * 1_000) for offset in range(200)], bytes_max)

    assert sum(item.builder.record_count() for item in found) == 200
    assert max(item.builder.size() for item in found) <= min(bytes_max, 64 * 1024)
    assert len(found) > 2


def _pending(count: int, size: int = 1) -> tuple[PendingLetters, list[Any]]:
    of = DeadLetters(DeadLetterTopic("orders.dlq", 4, 100_000_000), "readers")
    hurried: list[Any] = []
    pending = PendingLetters("orders.accepted/1", of, lambda: hurried.append(None))
    for offset in range(count):
        pending.add_letter(DeadLetter(Fetched(offset, None, b"x" * size), "no", 1))
    hurried.clear()
    return pending, hurried


async def test_however_many_wait() -> None:
    """Dead letters are taken in order, as many at a time as can be written in time, without a pause between."""
    pending, hurried = _pending(1_200)
    written = []
    while len(pending):
        assert len(pending.take_letters()) <= dead_letters.LETTERS_MAX
        written += [item.record.offset for item in pending.written()]
        assert bool(hurried) == bool(len(pending))
        hurried.clear()

    assert written == list(range(1_200))


async def test_large_ones() -> None:
    """Large dead letters are bounded in bytes too; one above the bound goes alone."""
    pending, _ = _pending(10, dead_letters.LETTERS_BYTES_MAX // 3)
    assert len(pending.take_letters()) == 3
    pending, _ = _pending(2, dead_letters.LETTERS_BYTES_MAX + 1)
    assert len(pending.take_letters()) == 1


async def test_fewer_after_a_failure() -> None:
    """A failed write halves the number of dead letters tried next, and a success raises it again."""
    pending, _ = _pending(2_000)
    taken = len(pending.take_letters())
    for _ in range(3):
        pending.rest(TimeoutError())
        assert pending._reviving is not None
        pending._reviving.cancel()
        pending._reviving = None
        pending.mark_uncommitted()
        assert len(pending.take_letters()) == (taken := taken // 2)
    pending.written()
    assert len(pending.take_letters()) == 2 * taken
    pending.give_up(RuntimeError())

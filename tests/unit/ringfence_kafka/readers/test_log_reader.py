import gc
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from ringfence_kafka.readers.log_reader import _stop

PLACE = TopicPartition("orders", 0)


class Watched(PartitionRecords):  # type: ignore[misc]
    """Fetched records, of which a test can see whether they still exist."""


@pytest.fixture
def _uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _fetched() -> Watched:
    """Two records, of which one was read."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 10_000)
    for offset in range(2):
        builder.append(offset, 1, None, b"value", [])
    found = Watched(PLACE, MemoryRecords(bytes(builder.build())), None, 0, None, None, True, 0)
    next(found)
    return found


@pytest.mark.usefixtures("_uncollected")
async def test_what_was_not_read_is_free() -> None:
    """Unread records are freed at once, and not only by Python's rare search for cycles."""
    found = _fetched()
    fetcher = SimpleNamespace(
        _records={PLACE: SimpleNamespace(_partition_records=found)},
        _wait_consume_future=None,
        _notify=lambda _future: None,
    )
    consumer: Any = SimpleNamespace(stop=AsyncMock(), _fetcher=fetcher)
    gone = weakref.ref(found)
    del found
    await _stop(consumer)

    consumer.stop.assert_awaited_once()
    assert gone() is None


async def test_a_consumer_that_was_never_started() -> None:
    """A consumer that was never started, since brokers were away, has nothing to drop."""
    consumer: Any = SimpleNamespace(stop=AsyncMock(), _fetcher=None)
    await _stop(consumer)

"""What the core has read of a fetch, in the place of aiokafka's records."""

import asyncio
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED, FetchResult

import native
from agents.raw import RawRecords
from app.worker import raw_fetch
from ringfence_kafka.records import KeptRecords, TolerantRecords
from tests.support.raw import Stored, marker, stored

TP = TopicPartition("orders", 0)


class Fetcher:
    """What of aiokafka's fetcher is gone into: one result, and the position that moves."""

    def __init__(self, data: bytes) -> None:
        self.state = SimpleNamespace(paused=False, position=0)
        self.state.consumed_to = lambda position: setattr(self.state, "position", position)
        assignment = SimpleNamespace(active=True, state_value=lambda _tp: self.state)
        parsed = TolerantRecords(TP, KeptRecords(data), [], 0, None, None, True, READ_COMMITTED)
        result = FetchResult(TP, assignment=assignment, partition_records=parsed, backoff=0)
        self._records: dict[TopicPartition, Any] = {TP: result}
        self._wait_consume_future = None
        self.notified = 0

    def _notify(self, _future: None) -> None:
        self.notified += 1

    async def fetched_records(self, _partitions: set[TopicPartition], **options: Any) -> Any:
        return {TP: self._records[TP].getall(options["max_records"])}


def _take(fetcher: Fetcher, records_max: int) -> tuple[list[int], int]:
    """Offsets, and the position then."""
    taken = asyncio.run(raw_fetch.take(fetcher, TP, records_max))
    assert isinstance(taken, RawRecords | list)
    return [each.offset for each in taken], fetcher.state.position


@pytest.mark.parametrize("in_python", [True, False])
def test_positions(monkeypatch: pytest.MonkeyPatch, in_python: bool) -> None:
    """They move as aiokafka moves them: behind the last record that is taken, and past markers once nothing is left."""
    if in_python:
        monkeypatch.setattr(native, "core", None)
    data = stored([Stored(0), Stored(3)]) + stored(
        [Stored(4), Stored(7)], producer_id=7, more_attributes=0x10
    )
    fetcher = Fetcher(data + marker(8, 7, abort=False))

    assert [_take(fetcher, 2), _take(fetcher, 2), _take(fetcher, 2)] == [([0, 3], 4), ([4, 7], 8), ([], 9)]


@pytest.mark.skipif(native.core is None, reason=native.spoken)
def test_a_fetch_that_is_done_makes_room() -> None:
    """The fetcher is told when nothing is left, and not before: it fetches no partition of which it has something."""
    fetcher = Fetcher(stored([Stored(0), Stored(1)]))
    _take(fetcher, 2)
    assert (fetcher.notified, TP in fetcher._records) == (0, True)
    _take(fetcher, 2)

    assert (fetcher.notified, TP in fetcher._records) == (1, False)


@pytest.mark.skipif(native.core is None, reason=native.spoken)
def test_somebody_has_moved_the_position() -> None:
    """What was fetched before a rewind is dropped."""
    fetcher = Fetcher(stored([Stored(0), Stored(1)]))
    fetcher.state.position = 1

    assert _take(fetcher, 5) == ([], 1)
    assert TP not in fetcher._records


@pytest.mark.skipif(native.core is None, reason=native.spoken)
def test_its_bytes_are_freed() -> None:
    """Without a collection, which comes rarely: some hundred MiB of a worker would wait for it."""
    fetcher = Fetcher(stored([Stored(0)]))
    parsed = weakref.ref(fetcher._records[TP]._partition_records)
    gc.disable()
    try:
        _take(fetcher, 5)

        assert parsed() is None
    finally:
        gc.enable()

"""Records that the core has read are taken in parts of bounded size, and counted as long as they exist."""

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED, Fetcher, FetchResult
from aiokafka.consumer.subscription_state import Assignment

import native
from agents.batch.batch import FetchedBatch
from app.worker.fetch.buffers import RAW_COPIES, RAW_RECORD_BYTES, RECORD_BYTES, Buffers, Held
from native.records import RawRecords
from ringfence_kafka.aiokafka_patches.batch_parts import HEADER_BYTES, PartedRecords
from ringfence_kafka.aiokafka_patches.lenient_records import LenientRecords
from tests.support.records.stored_batches import Stored, marker, stored
from tests.support.records.unusual import Latin1, Raw, batch

pytestmark = pytest.mark.skipif(native.core is None, reason=native.spoken)

MIB = 2**20
TP = TopicPartition("orders", 0)


class Fetched(Fetcher):  # type: ignore[misc]
    """aiokafka's fetcher with one fetch, and without a cluster."""

    def __init__(self, data: bytes, begin: int = 0, aborted: Sequence[tuple[int, int]] = ()) -> None:
        self._records: dict[TopicPartition, FetchResult] = {}
        self._closed = True
        self._wait_consume_future = None
        self._subscriptions = self
        self.reassignment_in_progress = False
        self.assignment = Assignment([TP])
        self.assignment.state_value(TP).reset_to(begin)
        self.answer(data, aborted)

    def answer(self, data: bytes, aborted: Sequence[tuple[int, int]] = ()) -> None:
        records = LenientRecords(
            TP, PartedRecords(data), list(aborted), self.position, None, None, True, READ_COMMITTED
        )
        self._records[TP] = FetchResult(TP, assignment=self.assignment, partition_records=records, backoff=0)

    @property
    def position(self) -> int:
        return int(self.assignment.state_value(TP).position)

    def is_assigned(self, _tp: TopicPartition) -> bool:
        return True


def buffers_of(bytes_max: int = 16 * MIB) -> Buffers:
    buffers = Buffers(bytes_max)
    buffers.assign([TP])
    return buffers


def log_of(
    batches: int, each: int, size: int = 100, codec: int = 0, headers: Sequence[tuple[str, bytes]] = ()
) -> bytes:
    records = [
        Stored(number, key=b"group", value=b"v" * size, headers=headers) for number in range(batches * each)
    ]
    return b"".join(stored(records[at : at + each], codec) for at in range(0, len(records), each))


def settled(buffers: Buffers) -> int:
    """Return the bytes held, without those that were given back."""
    buffers.apply_changes()
    return buffers.used


async def part_of(buffers: Buffers, fetched: Fetched) -> tuple[Sequence[Any], Held]:
    records, held = await buffers.read(fetched, TP)
    assert held is not None
    return records, held


async def read_all(buffers: Buffers, fetched: Fetched) -> list[tuple[Sequence[Any], Held]]:
    found = []
    while TP in fetched._records:
        records, held = await buffers.read(fetched, TP)
        if held is not None:
            found.append((records, held))
    return found


async def test_taken_raw_and_whole() -> None:
    """A fetch is taken raw as one batch, without an object for each record, and the position moves behind it."""
    buffers, fetched = buffers_of(), Fetched(log_of(4, 50))
    ((records, held),) = await read_all(buffers, fetched)

    assert isinstance(records, RawRecords)
    assert [record.offset for record in records] == list(range(200))
    assert fetched.position == 200
    size = records.core.size()
    assert size > 200 * 100
    assert held.bytes == buffers.used == size + 200 * (RAW_RECORD_BYTES + RAW_COPIES * 105)


@pytest.mark.parametrize("codec", [0, 1, 4])
async def test_bounded_by_bytes(codec: int) -> None:
    """A part takes as many records as fit, in order, without loss or repetition."""
    buffers, fetched = buffers_of(4 * MIB), Fetched(log_of(170, 7, 10_000, codec))
    limit = buffers.batch_bytes_max(TP)
    found: list[int] = []
    counts = []
    while TP in fetched._records:
        records, held = await part_of(buffers, fetched)
        assert held.bytes <= 2 * limit
        assert buffers.used <= 3 * limit
        found += [record.offset for record in records]
        counts.append(len(records))
        del records, held
        buffers.apply_changes()

    assert found == list(range(1_190))
    assert min(counts[:-1]) > max(counts) / 2
    assert buffers.used == 0


async def test_what_lies_does_not_stop_a_partition_that_has_nothing() -> None:
    """A batch far larger than the bound stays whole until its last record is done, so it is processed in turns."""
    buffers, fetched = buffers_of(MIB), Fetched(log_of(1, 200, 20_000))
    found = 0
    while TP in fetched._records:
        assert buffers.has_room(TP)
        records, held = await part_of(buffers, fetched)
        found += len(records)
        assert not buffers.has_room(TP)
        assert buffers.used > 200 * 20_000
        held.free()

    assert found == 200
    del records, held
    assert settled(buffers) == 0


async def test_dropped_with_the_fetch() -> None:
    """A rewind drops unread records without notice, and no cycle of objects keeps their bytes."""
    buffers, fetched = buffers_of(MIB), Fetched(log_of(1, 400, 1_000))
    gc.disable()
    try:
        _, held = await part_of(buffers, fetched)
        data = weakref.ref(fetched._records[TP]._partition_records)
        fetched._records.pop(TP)
        held.free()
        assert settled(buffers) == 0
        assert data() is None
    finally:
        gc.enable()


async def test_objects_cost_more() -> None:
    """The memory of Python objects is counted when a batch is unpacked, and in advance from the next batch on."""
    headers = [("_AMQ_DUPL_ID", b"1234")]
    buffers, fetched = buffers_of(), Fetched(log_of(1, 10, headers=headers))
    records, held = await part_of(buffers, fetched)
    batch = FetchedBatch("orders", 0, 0, 10, records, 0, bytes=held.bytes, held=(held,))
    raw_bytes = buffers.used
    batch.unpack()
    batch.unpack()
    more = settled(buffers) - raw_bytes
    fixed = 10 * (RECORD_BYTES - RAW_RECORD_BYTES + HEADER_BYTES)
    assert fixed + 10 * 100 < more < fixed + 10 * 200

    batch.free()
    fetched.answer(log_of(1, 20, headers=headers))
    _, again = await part_of(buffers, fetched)
    assert again.bytes >= 10 * (RECORD_BYTES + HEADER_BYTES)
    again.free()
    assert settled(buffers) == 0


async def test_nothing_to_take() -> None:
    """Markers alone move the position and count no bytes. Records fetched for another position are dropped."""
    buffers = buffers_of()
    fetched = Fetched(stored([Stored(0)], 0, 7, 0x10) + marker(1, 7, abort=True), aborted=[(7, 0)])
    moved = Fetched(log_of(1, 10))
    moved.assignment.state_value(TP).seek(5)

    for fetcher, position in ((fetched, 2), (moved, 5)):
        assert await buffers.read(fetcher, TP) == ([], None)
        assert fetcher.position == position
        assert not fetcher._records
    assert settled(buffers) == 0


async def test_transactions_over_parts() -> None:
    """A part knows the transactions aborted before it, even if they began in an earlier part."""
    aborted = [stored([Stored(number, value=b"aborted")], 0, 7, 0x10) for number in (0, 3)]
    plain = [stored([Stored(number, value=b"v" * MIB)]) for number in (1, 2)]
    data = aborted[0] + plain[0] + plain[1] + aborted[1] + marker(4, 7, abort=True)
    buffers, fetched = buffers_of(MIB), Fetched(data, aborted=[(7, 0)])
    found = await read_all(buffers, fetched)

    assert [[record.offset for record in records] for records, _ in found] == [[1], [2]]
    assert fetched.position == 5


async def test_what_the_core_leaves_in_the_middle() -> None:
    """Records before an unreadable batch pass, and aiokafka fetches and reads the rest.

    Unread bytes of a fetch that is taken in part still count.
    """
    odd = stored([Stored(60, headers=[("\u00e9", b"")]), Stored(61)])
    buffers, fetched = buffers_of(4 * MIB), Fetched(log_of(3, 20, 100_000) + odd)
    found = [record.offset for records, _ in await read_all(buffers, fetched) for record in records]
    assert found == list(range(60))
    assert fetched.position == 60
    fetched.answer(odd)
    records, _ = await part_of(buffers, fetched)

    assert [record.offset for record in records] == [60, 61]
    assert not isinstance(records, RawRecords)

    data = bytes(batch([Raw(b"v" * 100, [(Latin1("\u00e9"), b"")], 1)] * 300).build())
    buffers, fetched = buffers_of(MIB), Fetched(data)
    records, _held = await part_of(buffers, fetched)
    buffers.count_unread(fetched)
    assert 0 < len(records) < 300
    assert buffers.memory.fetched == len(data)

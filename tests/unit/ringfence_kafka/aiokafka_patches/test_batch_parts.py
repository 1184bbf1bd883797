"""A compressed batch of any size is read in parts: by the core, by aiokafka, and by a reader of all records."""

import gzip
import json
import tracemalloc
from hashlib import blake2b
from typing import Any, Final

import pytest
from aiokafka.errors import CorruptRecordException

import native
from app.worker.fetch.buffers import Buffers
from native.records import RawRecords
from ringfence_kafka.aiokafka_patches import batch_parts, fetch_buffer
from ringfence_kafka.aiokafka_patches.batch_parts import PartedRecords, RecordBytes
from ringfence_kafka.aiokafka_patches.lenient_records import LenientRecords
from ringfence_kafka.protocol.record_batch import BATCH_HEADER_BYTES, whole_records
from tests.support.records.stored_batches import TRANSACTIONAL, Stored, checked, marker, stored
from tests.unit.app.worker.fetch.test_raw_fetch import TP, Fetched

MIB: Final = 2**20
NEEDS_CORE: Final = pytest.mark.skipif(native.core is None, reason=native.spoken)
CODECS: Final = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def _large(count: int, size: int, codec: int) -> bytes:
    records = [
        Stored(number, key=b"%d" % (number % 3), value=b"%08d" % number * (size // 8), headers=[("h", b"%d" % number)])
        for number in range(count)
    ]  # fmt: skip
    return stored(records, codec)


@pytest.fixture(params=[pytest.param("core", marks=NEEDS_CORE), "objects"])
def read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "objects":
        monkeypatch.setattr(native, "core", None)


@pytest.fixture
def buffers() -> Buffers:
    found = Buffers(16 * MIB)
    found.assign([TP])
    return found


async def _all(buffers: Buffers, fetched: Fetched) -> tuple[list[Any], int]:
    """Return the records, batch by batch, and the most bytes that were counted. Records have the length of their value."""
    found, most = [], 0
    while TP in fetched._records:
        records, held = await buffers.read(fetched, TP)
        most = max(most, 0 if held is None else held.bytes)
        for record in records:
            value = bytes(record.value or b"")
            found.append((record.offset, record.key, value[:8], len(value), tuple(record.headers)))
        if held is not None:
            held.free()
        del records, held
        buffers.apply_changes()
    return found, most


@pytest.mark.parametrize("codec", CODECS)
async def test_a_worker_reads_it_in_parts(buffers: Buffers, codec: str, read: None) -> None:
    """32 MiB of one batch, in a buffer of 16 MiB: all records in order, and never more than a part in memory."""
    data = _large(80, 400_000, CODECS[codec])
    limit = buffers.batch_bytes_max(TP)
    fetched = Fetched(data)
    tracemalloc.start()
    try:
        found, most = await _all(buffers, fetched)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert found == [(n, b"%d" % (n % 3), b"%08d" % n, 400_000, (("h", b"%d" % n),)) for n in range(80)]
    assert fetched.position == 80
    assert most <= 2 * limit
    assert peak < 8 * MIB + len(data)


async def test_dropped_and_fetched_again(buffers: Buffers, read: None) -> None:
    """A rewind or a rebalance drops it between two parts. The next fetch begins within the batch: nothing twice, nothing missing."""
    data = _large(60, 100_000, 4)
    fetched, found = Fetched(data), []
    while fetched.position < 60:
        records, held = await buffers.read(fetched, TP)
        found += [record.offset for record in records]
        assert held is not None
        held.free()
        buffers.apply_changes()
        if TP in fetched._records:
            fetched._records.pop(TP)._partition_records = None
        fetched.answer(data)

    assert found == list(range(60))


async def test_aborted_and_control(buffers: Buffers, read: None) -> None:
    """A large aborted batch is not decompressed; the position passes it, the batch behind it and their markers."""
    lost = stored([Stored(n, value=b"lost" * 100_000) for n in range(20)], 4, 7, TRANSACTIONAL)
    kept = stored([Stored(n, value=b"kept" * 100_000) for n in range(21, 41)], 4, 8, TRANSACTIONAL)
    data = lost + marker(20, 7, abort=True) + kept + marker(41, 8, abort=False)
    fetched = Fetched(data, aborted=[(7, 0)])
    found, _ = await _all(buffers, fetched)

    assert [item[0] for item in found] == list(range(21, 41))
    assert fetched.position == 42


async def test_a_record_that_no_memory_is_for(
    buffers: Buffers, read: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record too large for memory is malformed, with sizes and digests in its place. Its neighbours come as usual."""
    monkeypatch.setattr(LenientRecords, "record_bytes_max", 3 * MIB)
    large = b"v" * 5 * MIB
    records = [
        Stored(700),
        Stored(701, key=b"k", value=large, headers=[("h", b"x")]),
        Stored(702, key=b"k" * 4 * MIB, value=b"v"),
        Stored(703, headers=[("h", b"x" * 4 * MIB)]),
        Stored(704, value=b"v" * 2 * MIB),
    ]
    fetched = Fetched(stored(records, 4))
    parsed = fetched._records[TP]._partition_records
    found: dict[int, Any] = {}
    while TP in fetched._records:
        batch, held = await buffers.read(fetched, TP)
        found |= {record.offset: (record.key, record.value, list(record.headers)) for record in batch}
        if held is not None:
            held.free()

    assert sorted(found) == [700, 701, 702, 703, 704]
    assert sorted(parsed.malformed) == [701, 702, 703]
    digests = [json.loads(text) for text in (found[701][1], found[702][0])]
    assert digests[0] == {"bytes": len(large), "blake2b_256": blake2b(large, digest_size=32).hexdigest()}
    assert digests[1]["bytes"] == 4 * MIB
    assert (found[701][0], found[701][2]) == (b"k", [("h", b"x")])
    assert (found[702][1], found[703][2]) == (b"v", [])
    assert len(found[704][1]) == 2 * MIB
    why = "more than 3,145,728 bytes is not read completely: size and digest stand for its value"
    assert why in parsed.malformed[701]


@pytest.mark.parametrize("more", [b"", b"\x0c\x00\x00\x01\x01\x00", b"\x00"])
def test_count_and_bytes_must_agree(more: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong count of records in the header is reported as damage, after the readable records."""
    monkeypatch.setattr(batch_parts, "PART_BYTES", 100)
    good = bytearray(_large(20, 80, 4))
    wrong = bytearray(good)
    wrong[57:61] = (21 if not more else 19).to_bytes(4, "big")
    records = PartedRecords(checked(wrong))
    parted = records.next_batch()
    found: list[int] = []
    with pytest.raises(CorruptRecordException):
        found.extend(item.offset for item in parted)

    assert found == list(range(len(found)))
    assert 15 <= len(found) <= 20


@NEEDS_CORE
def test_the_core_cuts_as_python_does() -> None:
    """The core cuts as Python does at every limit of bytes and records, even within a length."""
    assert native.core is not None
    sizes = [3, 0, 200, 70, 20_000, 1]
    data = stored([Stored(n, value=b"v" * size) for n, size in enumerate(sizes)])[BATCH_HEADER_BYTES:]
    for limit in (*range(300), 1_000, 20_400, len(data) - 1, len(data), len(data) + 5):
        for most in (0, 1, 3, 100):
            assert native.core.cut(data, most, limit) == whole_records(data, most, limit)


def test_a_length_that_none_has() -> None:
    """A negative length, or one of too many bytes, is damage and does not cause an endless search."""
    header = _large(3, 80, 1)[:BATCH_HEADER_BYTES]
    for damage in (b"\x01", b"\xff" * 30):
        data = checked(bytearray(header))
        plain = RecordBytes(data, gzip.compress(damage))
        with pytest.raises(CorruptRecordException):
            plain.next(10, 1)


async def test_what_is_kept_is_counted(buffers: Buffers) -> None:
    """The window and the decompressed bytes beyond a part count as fetched between two parts, and so do bytes that the core keeps."""
    data = _large(20, 100_000, 4)
    fetched = Fetched(data)
    parsed = fetched._records[TP]._partition_records
    assert fetch_buffer.sizes(fetched)[TP] == len(data)
    next(parsed)

    assert fetch_buffer.sizes(fetched)[TP] > len(data) + 2 * batch_parts.PART_BYTES // 2
    assert fetch_buffer.sizes(fetched)[TP] < len(data) + 8 * MIB
    if native.core is not None:
        fetched = Fetched(_large(80, 100_000, 4))
        size = fetch_buffer.sizes(fetched)[TP]
        records, _ = await buffers.read(fetched, TP)
        assert isinstance(records, RawRecords)
        assert fetch_buffer.sizes(fetched)[TP] > size + 100_000


@NEEDS_CORE
async def test_what_the_core_leaves_in_the_middle(buffers: Buffers) -> None:
    """A header name of record 50 is not ASCII: the parts before it are taken, the rest is fetched again and is aiokafka's."""
    headers = [("\u00e9" if number == 50 else "e", b"") for number in range(60)]
    data = stored([Stored(n, value=b"v" * 40_000, headers=[header]) for n, header in enumerate(headers)], 4)
    fetched, found, objects = Fetched(data), [], 0
    while fetched.position < 60:
        if TP not in fetched._records:
            fetched.answer(data)
        records, held = await buffers.read(fetched, TP)
        if held is not None:
            held.free()
        objects += 0 if isinstance(records, RawRecords) else len(records)
        found += [record.offset for record in records]
        buffers.apply_changes()

    assert found == list(range(60))
    assert 10 <= objects < 60


async def test_who_asks_for_all_gets_a_part() -> None:
    """A reader that asks for all records gets a part. Headers alone count too, because their objects are large."""
    large = Fetched(_large(60, 100_000, 4))._records[TP]
    counts = []
    while large.has_more():
        counts.append(len(large.getall()))
    headers = [Stored(n, key=None, value=None, headers=[("", None)] * 5_000) for n in range(20)]

    assert sum(counts) == 60
    assert max(counts) <= 1 + batch_parts.TAKEN_BYTES // 100_000
    assert len(Fetched(stored(headers, 4))._records[TP].getall()) == 2


def test_an_empty_batch() -> None:
    empty = bytearray(_large(1, 8, 4)[:BATCH_HEADER_BYTES])
    empty[8:12] = (BATCH_HEADER_BYTES - 12).to_bytes(4, "big")
    empty[57:61] = bytes(4)

    assert list(PartedRecords(checked(empty)).next_batch()) == []

"""Fetches in the native core: the same records as aiokafka, and no memory of others."""

import os
import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

import pytest
from aiokafka import TopicPartition
from hypothesis import example, given, settings
from hypothesis import strategies as st

import native
from agents.batch import native_records
from agents.batch.batch import Record
from native.records import RawRecords
from native.sources import digest
from ringfence_kafka.aiokafka_patches.batch_parts import PartedRecords
from ringfence_kafka.aiokafka_patches.fetch_buffer import decompress
from ringfence_kafka.aiokafka_patches.lenient_records import LenientRecords
from tests.property import examples
from tests.support.records.stored_batches import (
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Stored,
    checked,
    emptied,
    marker,
    noted,
    stored,
)

pytestmark = pytest.mark.skipif(native.core is None, reason=native.spoken)

Seen = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
Read = tuple[list[Seen], int]
COMMITTED = 1

some_bytes = st.none() | st.binary(max_size=12) | st.binary(min_size=60, max_size=200)
SELDOM = st.integers(0, 7).map(lambda drawn: drawn == 7)
names = st.sampled_from(["_AMQ_DUPL_ID", "a", "", "_RF_SOURCE", "b" * 70])
odd_names = names | st.text(max_size=5)
times = st.integers(0, 2**41)
odd_times = times | st.integers(-(2**40), 2**62)


@st.composite
def fetches(draw: st.DrawFn) -> tuple[bytes, int, list[tuple[int, int]]]:
    """Bytes, the offset at which the fetch begins, and aborted transactions."""
    data, aborted, offset = b"", [], draw(st.integers(0, 2**40))
    begin = offset
    # One record that is not usual makes the whole fetch aiokafka's.
    name, time = (odd_names, odd_times) if draw(SELDOM) else (names, times)
    headers = st.lists(st.tuples(name, some_bytes), max_size=3)
    for _ in range(draw(st.integers(1, 4))):
        first, records = offset, []
        for _ in range(draw(st.integers(1, 5))):
            offset += draw(st.sampled_from([0, 0, 0, 1, 200]))
            records.append(Stored(offset, draw(time), draw(some_bytes), draw(some_bytes), draw(headers)))
            offset += 1
        codec, producer = draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4])), draw(st.sampled_from([-1, 7, 8]))
        flags = draw(st.sampled_from([0, LOG_APPEND_TIME])) | (TRANSACTIONAL if producer > 0 else 0)
        offset += draw(st.sampled_from([0, 0, 3]))
        if not data:
            begin = draw(st.integers(first, offset - 1))  # a broker sends the batch that holds it
        data += stored(records, codec, producer, flags, offset)
        if producer > 0:
            abort = draw(st.booleans())
            # As the broker's cleaner leaves it.
            cleaned = draw(st.sampled_from([None, None, noted, emptied]))
            end = marker(offset, producer, abort=abort)
            data += end if cleaned is None else cleaned(end)
            offset += 1
            if abort:
                aborted.append((producer, first))
    return data, begin, aborted


def _seen(record: Record) -> Seen:
    return record.offset, record.timestamp, record.key, record.value, tuple(record.headers)


def by_aiokafka(data: bytes, begin: int, aborted: list[tuple[int, int]], level: int) -> Read | None:
    """Records that aiokafka reads. None = it cannot read the fetch, or not as it is."""
    batches = PartedRecords(data)
    records = LenientRecords(TopicPartition("t", 0), batches, list(aborted), begin, None, None, True, level)
    try:
        found = [_seen(record) for record in records]
    except Exception:
        return None
    cut = records.next_fetch_offset
    return (found, cut) if not records.malformed else None


def by_core(data: bytes, begin: int, aborted: list[tuple[int, int]], level: int) -> Read | None:
    found = native_records.parse(data, begin, aborted, decompress, committed=level == COMMITTED)
    return None if found is None else ([_seen(item) for item in found[0]], found[1])


@settings(max_examples=examples(300))
@given(fetches(), st.sampled_from([0, COMMITTED]))
@example(
    (stored([Stored(0), Stored(1)], 0, 7, TRANSACTIONAL, 2) + marker(2, 7, abort=True), 0, [(7, 0)]),
    COMMITTED,
)
def test_same_records(fetch: tuple[bytes, int, list[tuple[int, int]]], level: int) -> None:
    """The core reads the same records as aiokafka, of all codecs, with gaps, aborted transactions, markers and empty stretches."""
    data, begin, aborted = fetch
    core, reference = by_core(data, begin, aborted, level), by_aiokafka(data, begin, aborted, level)

    assert core is None or core == reference
    if core is None and reference is not None:
        everything = by_aiokafka(data, 0, [], 0)  # what lies below the fetch's begin, too
        assert everything is None or not all(map(_is_usual, everything[0]))


@settings(max_examples=examples(200))
@given(fetches(), st.integers(1, 6), st.integers(1, 1_000))
def test_parts_are_the_whole(
    fetch: tuple[bytes, int, list[tuple[int, int]]], records_max: int, bytes_max: int
) -> None:
    """A fetch that is read part by part, with all its transactions known in each, gives the same records and the same end."""
    data, begin, aborted = fetch
    whole = by_core(data, begin, aborted, COMMITTED)
    found: list[Seen] = []
    start, more = begin, True
    while more:
        part = native_records.parse(
            data, begin, aborted, decompress, start=start, records_max=records_max, bytes_max=bytes_max
        )
        if part is None:
            assert whole is None
            return
        found += map(_seen, part.records)
        assert part.end > start
        start, more = part.end, part.more

    assert whole is None or (found, start) == whole


def _is_usual(record: Seen) -> bool:
    return record[1] >= 0 and all(name.isascii() for name, _ in record[4])


@settings(max_examples=examples(400))
@given(fetches(), st.data())
def test_damage(fetch: tuple[bytes, int, list[tuple[int, int]]], more: st.DataObject) -> None:
    """The core reads the same records as aiokafka from damaged bytes, or none, under a checksum that fits or does not."""
    data, begin, aborted = fetch
    damaged = bytearray(data)
    for _ in range(more.draw(st.integers(1, 3))):
        damaged[more.draw(st.integers(0, len(damaged) - 1))] = more.draw(st.integers(0, 255))
    damaged = damaged[: more.draw(st.integers(len(damaged) // 2, len(damaged)))]
    if more.draw(st.booleans()) and len(damaged) >= 61:
        (length,) = struct.unpack_from(">i", damaged, 8)
        if 49 <= length <= len(damaged) - 12:
            damaged[: 12 + length] = checked(damaged[: 12 + length])
    read = bytes(damaged)
    core = by_core(read, begin, aborted, COMMITTED) if PartedRecords(read).has_next() else None

    assert core is None or core == by_aiokafka(read, begin, aborted, COMMITTED)


def test_slices_and_joins() -> None:
    """Slices of records, and records of two fetches joined, equal those of lists."""
    first = [Stored(number, key=b"%d" % number) for number in (3, 4, 9)]
    later = [Stored(number, key=b"%d" % number, headers=[("h", None)]) for number in (10, 12)]
    one, two = (native_records.parse(stored(item), 0, [], decompress) for item in (first, later))
    assert one is not None
    assert two is not None
    both = native_records.joined(one[0], two[0])

    assert isinstance(both, RawRecords)
    assert [item.key for item in both] == [b"3", b"4", b"9", b"10", b"12"]
    assert [item.offset for item in both[1:4]] == [4, 9, 10]
    assert [item.offset for item in both[::2]] == [3, 9, 12]
    assert both[-1].headers == (("h", None),)
    assert [record.offset for record in native_records.since(both, 5)] == [9, 10, 12]
    assert len(native_records.since(both, 13)) == 0
    with pytest.raises(IndexError):
        both[5]


ROOT: Final = Path(__file__).parents[2]
SECONDS: Final = 30
FLAGS: Final = (
    "-shared", "-fPIC", "-O1", "-g", "-std=c11", "-fno-omit-frame-pointer", "-DPy_LIMITED_API=0x030B0000",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined",
)  # fmt: skip


def _fuzz(seed: int, seconds: float, *more: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tests.property.fuzz_core", str(seed), str(seconds), *more],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=seconds * 5 + 60,
        check=False,
    )


@pytest.mark.skipif(native.core is None, reason=native.spoken)
def test_a_while() -> None:
    """Nothing ends the process and nothing is left behind when the core runs with freed memory overwritten."""
    ended = _fuzz(1, 2, MALLOC_PERTURB_="165")

    assert ended.returncode == 0, ended.stderr[-3_000:] or ended.stdout


@pytest.mark.long
@pytest.mark.skipif(native.core is None, reason=native.spoken)
def test_with_sanitizers(tmp_path: Path) -> None:
    """The core reads and writes no foreign byte, and no number overflows."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is not there")
    sources = map(str, sorted((ROOT / "native/src").glob("*.c")))
    built = tmp_path / "_core.so"
    carried = f'-DSOURCES="{digest(ROOT / "native/src")}"'
    command = [compiler, *FLAGS, carried, f"-I{sysconfig.get_path('include')}", *sources, "-o", str(built)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if "libasan" in made.stderr and made.returncode:
        pytest.skip("gcc has no sanitizers here")
    assert made.returncode == 0, made.stderr
    libraries = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    ended = _fuzz(
        2,
        SECONDS,
        str(built),
        LD_PRELOAD=" ".join(libraries),
        ASAN_OPTIONS="detect_leaks=0",
        PYTHONMALLOC="malloc",  # else Python's own pools hide what is read behind the end of bytes
    )

    assert ended.returncode == 0, ended.stderr[-5_000:] or ended.stdout

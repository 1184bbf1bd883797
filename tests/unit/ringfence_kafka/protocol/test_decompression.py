"""No batch is decompressed beyond what is asked for, whatever its codec, its framing and its size."""

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final
from unittest.mock import Mock

import cramjam
import lz4.frame
import pytest
import zstandard
from aiokafka import codec
from aiokafka.errors import CorruptRecordException, UnsupportedCodecError

from ringfence_kafka.protocol import decompression
from ringfence_kafka.protocol.decompression import GZIP, LZ4, SNAPPY, ZSTD, Stream, whole

MIB: Final = 2**20
Compress = Callable[[bytes], bytes]


def _linked(data: bytes) -> bytes:
    return bytes(lz4.frame.compress(data, block_linked=True, content_checksum=True, store_size=True))


def _halves(compress: Compress, between: bytes = b"") -> Compress:
    """Compress both halves apart."""
    return lambda data: compress(data[: len(data) // 2]) + between + compress(data[len(data) // 2 :])


def _without_size(data: bytes) -> bytes:
    """As Java's client compresses: the frame does not tell how much it holds."""
    compressor = zstandard.ZstdCompressor().compressobj()
    return bytes(compressor.compress(data) + compressor.flush())


WAYS: Final[dict[str, tuple[int, Compress]]] = {
    "gzip": (GZIP, codec.gzip_encode),
    "gzip, two members": (GZIP, lambda data: _halves(codec.gzip_encode, b"\0\0")(data) + b"\0"),
    "snappy, framed": (SNAPPY, codec.snappy_encode),
    "snappy, raw block": (SNAPPY, lambda data: bytes(codec.snappy_encode(data, xerial_compatible=False))),
    "lz4": (LZ4, codec.lz4_encode),
    "lz4, linked blocks": (LZ4, _linked),
    "lz4, blocks of 4 MiB": (LZ4, lambda data: bytes(lz4.frame.compress(data, block_size=7))),
    "zstd": (ZSTD, codec.zstd_encode),
    "zstd, two frames": (ZSTD, _halves(codec.zstd_encode)),
    "zstd, size unknown": (ZSTD, _without_size),
}
ALL = pytest.mark.parametrize("way", WAYS)


def _text(size: int) -> bytes:
    return b"".join(random.Random(size).choice([b"group", b"value", b"\0\1\2"]) for _ in range(size // 4))


@ALL
@pytest.mark.parametrize("size", [0, 1, 100, 70_000, 300_000])
def test_same_bytes(way: str, size: int) -> None:
    """A stream returns its data in steps of any size, and then nothing."""
    number, compress = WAYS[way]
    data = _text(size)
    compressed = compress(data)
    steps = random.Random(size)
    stream, found = Stream(number, compressed), []
    while part := stream.read(most := steps.choice([1, 7, 1_000, 40_000])):
        assert len(part) <= most
        found.append(part)

    assert b"".join(found) == data
    assert whole(number, compressed, len(data)) == data
    assert not data or whole(number, compressed, len(data) - 1) is None


@ALL
def test_cut_off(way: str) -> None:
    """A truncated stream gives at most its own data, and ends."""
    number, compress = WAYS[way]
    data = _text(100_000)
    compressed = compress(data)
    for length in range(0, len(compressed), 1 + len(compressed) // 50):
        try:
            found = whole(number, compressed[:length], len(data))
        except CorruptRecordException:
            continue
        assert found is not None
        assert data.startswith(found)


def test_damage_is_named() -> None:
    """Damage has one error, whatever the library reports: so has a sum that does not fit the bytes."""
    for number, _ in WAYS.values():
        with pytest.raises(CorruptRecordException, match="cannot be decompressed"):
            whole(number, b"\xff" * 40, 1_000)
    compressed = bytearray(codec.gzip_encode(b"text" * 100))
    compressed[-8] ^= 1
    with pytest.raises(CorruptRecordException):
        whole(GZIP, bytes(compressed), 1_000)
    with pytest.raises(UnsupportedCodecError):
        Stream(5, b"")


def test_a_snappy_block_claims_too_much() -> None:
    """A block of 20 bytes claims 4 GiB, which no block of that size holds: it is refused before memory is taken for it."""
    claim = b"\xff\xff\xff\xff\x0f" + b"\0" * 15
    for data in (claim, decompression._XERIAL + struct.pack(">i", len(claim)) + claim):
        with pytest.raises(CorruptRecordException, match="claims to have"):
            Stream(SNAPPY, data).read(10)


@pytest.mark.parametrize("way", ["gzip", "snappy, framed", "lz4, blocks of 4 MiB", "zstd, size unknown"])
def test_the_peak_is_small(way: str) -> None:
    """A part of 64 KiB is read of 64 MiB: memory grows by the part and the library's window, and by no more."""
    number, compress = WAYS[way]
    compressed = compress(bytes(64 * MIB))
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        before = _peak()
        stream = Stream(number, compressed)
        for _ in range(20):
            stream.read(2**16)
        os.write(write, b"%d" % (_peak() - before))
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    grown = int(os.read(read, 100))
    os.close(read)

    assert grown < 24 * MIB


def _peak() -> int:
    """Return the largest resident size of this process from now on, in bytes: the mark is set back to the present size first."""
    status = Path("/proc/self/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    resident = int(fields["VmHWM"].split()[0]) * 1024
    Path("/proc/self/clear_refs").write_text("5")
    return resident


def test_one_large_window_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one of two batches with large windows has its window at a time, and both come whole. A dropped stream ends its turn."""
    monkeypatch.setattr(decompression, "LARGE_WINDOW_BYTES", 100)
    texts = [_text(300_000), _text(200_000)]
    streams = [Stream(ZSTD, _without_size(text)) for text in texts]
    found: list[list[bytes]] = [[], []]
    for number in [0, 1] * 8:
        found[number].append(streams[number].read(30_000))
        assert streams[1 - number]._reader is None

    assert [b"".join(item) for item in found] == [text[:240_000] for text in texts]
    assert decompression._turn.holder() is streams[1]
    streams.clear()
    assert decompression._turn.holder() is None


def test_no_memory_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cramjam.snappy, "decompress_raw", Mock(side_effect=MemoryError))
    with pytest.raises(MemoryError):
        whole(SNAPPY, codec.snappy_encode(b"text"), 100)

"""Decompresses the records of a batch in parts. No I/O.

A small compressed record batch may have any size after decompression: 25 kB of zstd can hold half a gigabyte of valid records. Callers
decompress only as much as they request. Two codecs have blocks that are decompressed as a whole: a block of lz4 has at most 4 MiB, one of
snappy 22 times its compressed bytes. The frame of zstd defines its window size, up to 128 MiB.
"""

import struct
import threading
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeVar, cast

import cramjam
import lz4.frame
import zstandard
from aiokafka.errors import CorruptRecordException, UnsupportedCodecError

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
"""Kafka's codec numbers, in the attributes of a record batch."""
INPUT_BYTES: Final = 2**16
"""Compressed bytes that a library gets at once: it copies the bytes that it does not need yet."""
SNAPPY_GROWTH_MAX: Final = 32
"""Limit above the format's own: the densest element copies 64 bytes with 3. A block that claims more is damaged."""
LARGE_WINDOW_BYTES: Final = 8 * 2**20
"""A process keeps only one window above this size at a time, in bytes."""

_GZIP_WINDOW: Final = 31
_GZIP_BYTES: Final = 2**16
_XERIAL: Final = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
_BLOCK_LENGTH: Final = struct.Struct(">i")
_T = TypeVar("_T")
Read = Callable[[int], bytes]
"""Returns the next bytes of a batch, at most the given number; empty at the end."""


class _Gzip:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._input = b""
        self._member = zlib.decompressobj(_GZIP_WINDOW)

    def read(self, size: int) -> bytes:
        while True:
            if self._member.eof and not self._next_member():
                return b""
            if not self._input:
                self._input = self._data[self._at : self._at + INPUT_BYTES]
                self._at += len(self._input)
            ends = not self._input
            found = self._member.decompress(self._input, size)
            self._input = self._member.unconsumed_tail
            if found:
                return found
            if ends and not self._member.eof:
                raise EOFError("the compressed bytes end before their stream does")

    def _next_member(self) -> bool:
        """Begin the next stream of the same bytes. Zeros may separate the two."""
        self._at -= len(self._member.unused_data)
        self._input = b""
        while self._data[self._at : self._at + 1] == b"\x00":
            self._at += 1
        if self._at >= len(self._data):
            return False
        self._member = zlib.decompressobj(_GZIP_WINDOW)
        return True


class _Snappy:
    def __init__(self, data: bytes) -> None:
        self._blocks = _snappy_blocks(data)
        self._block = memoryview(b"")

    def read(self, size: int) -> bytes:
        while not self._block:
            block = next(self._blocks, None)
            if block is None:
                return b""
            claimed = cramjam.snappy.decompress_raw_len(block)
            if claimed > SNAPPY_GROWTH_MAX * len(block):
                raise ValueError(f"a snappy block of {len(block)} bytes claims to have {claimed}")
            self._block = memoryview(cast("Any", cramjam.snappy.decompress_raw(block)))
        found, self._block = self._block[:size], self._block[size:]
        return bytes(found)


def _snappy_blocks(data: bytes) -> Iterator[memoryview]:
    """Yield each compressed block. Java's library frames blocks, other libraries send one without a frame."""
    view = memoryview(data)
    if not data.startswith(_XERIAL):
        yield view
        return
    at = len(_XERIAL)
    while at < len(data):
        (length,) = _BLOCK_LENGTH.unpack_from(data, at)
        at += _BLOCK_LENGTH.size
        if not 0 <= length <= len(data) - at:
            raise ValueError(
                f"a snappy block of {length} bytes is longer than the {len(data) - at} that are left"
            )
        yield view[at : at + length]
        at += length


class _Lz4:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._frame: Any = lz4.frame.LZ4FrameDecompressor()

    def read(self, size: int) -> bytes:
        while not self._frame.eof:
            given = b""
            if self._frame.needs_input:
                given = self._data[self._at : self._at + INPUT_BYTES]
                self._at += len(given)
                if not given:
                    raise EOFError("the compressed bytes end before their frame does")
            found: bytes = self._frame.decompress(given, size)
            if found:
                return found
        return b""


def _zstd(data: bytes) -> Read:
    return (
        zstandard.ZstdDecompressor().stream_reader(data, read_size=INPUT_BYTES, read_across_frames=True).read
    )


_READERS: Final[Mapping[int, Callable[[bytes], Read]]] = {
    GZIP: lambda data: _Gzip(data).read,
    SNAPPY: lambda data: _Snappy(data).read,
    LZ4: lambda data: _Lz4(data).read,
    ZSTD: _zstd,
}


def _window(codec: int, data: bytes) -> int:
    """Return how many bytes a library keeps while it decompresses the data."""
    if codec == ZSTD:
        return int(zstandard.get_frame_parameters(data).window_size)
    if codec == SNAPPY:
        return max((cramjam.snappy.decompress_raw_len(block) for block in _snappy_blocks(data)), default=0)
    if codec == LZ4:  # a block in compressed and decompressed form
        return 2 * int(lz4.frame.get_frame_info(data)["block_size"])
    return _GZIP_BYTES


class Stream:
    """Decompressed bytes of one record batch, read in order."""

    def __init__(self, codec: int, data: bytes) -> None:
        """Create a stream for records with Kafka's codec number. Nothing is decompressed yet.

        Raises:
            UnsupportedCodecError: Kafka has no such codec.
            CorruptRecordException: the bytes do not start like this codec.
        """
        if codec not in _READERS:
            raise UnsupportedCodecError(f"Unknown compression codec {codec:#04x}")
        self._codec = codec
        self._data = data
        self._at = 0
        self._reader: Read | None = None
        self.window: int = _sound(lambda: _window(codec, data))
        """Approximate number of bytes that the library keeps between two calls."""

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes, or fewer at the end.

        Raises:
            CorruptRecordException: the bytes are damaged.
        """
        if self.window <= LARGE_WINDOW_BYTES:
            return self._filled(size)
        with _turn.lock:
            holder = _turn.holder()
            if holder is not self:
                if holder is not None:
                    holder.close()
                _turn.holder = weakref.ref(self)
            return self._filled(size)

    def close(self) -> None:
        """Release the window. The stream must not be read any more."""
        self._reader = None

    def _filled(self, size: int) -> bytes:
        reader = self._reader
        if reader is None:
            reader = self._reader = _sound(lambda: _READERS[self._codec](self._data))
            skipped = 0
            while skipped < self._at:  # another stream has taken the window in the meantime
                again = min(INPUT_BYTES, self._at - skipped)
                skipped += len(_sound(partial(reader, again)))
        found = _sound(partial(reader, size))
        if 0 < len(found) < size:
            parts = [found]
            left = size - len(found)
            while left and (more := _sound(partial(reader, left))):
                parts.append(more)
                left -= len(more)
            found = b"".join(parts)
        self._at += len(found)
        return found


class _Turn:
    """The stream that has the one large window."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holder: Callable[[], Stream | None] = lambda: None


_turn: Final = _Turn()


def _sound(act: Callable[[], _T]) -> _T:
    """Return the result of a library call.

    Raises:
        CorruptRecordException: the library raised one of its own errors.
        MemoryError: the process has no memory left; the bytes may be valid.
    """
    try:
        return act()
    except MemoryError:
        raise
    except Exception as error:
        raise CorruptRecordException(f"the records cannot be decompressed: {error!r}") from error


class _Local(threading.local):
    """Decompressor of one thread: its creation costs more than a small batch."""

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor()


_local: Final = _Local()


def _zstd_at_once(data: bytes, most: int) -> bytes | None:
    """Return the bytes of one small frame; None = a stream must read it and report its problem."""
    try:
        frame = zstandard.get_frame_parameters(data)
        claimed = 0 if frame.content_size == zstandard.CONTENTSIZE_UNKNOWN else frame.content_size
        if claimed > most or frame.window_size > LARGE_WINDOW_BYTES:
            return None
        return _local.decompressor.decompress(data, max_output_size=most, allow_extra_data=False)
    except zstandard.ZstdError:
        return None


def whole(codec: int, data: bytes, most: int) -> bytes | None:
    """Return all decompressed bytes of a batch; None = they exceed ``most``.

    Raises:
        UnsupportedCodecError: Kafka has no such codec.
        CorruptRecordException: the bytes are damaged.
    """
    if codec == ZSTD and (at_once := _zstd_at_once(data, most)) is not None:
        return at_once
    stream = Stream(codec, data)
    if stream.window > LARGE_WINDOW_BYTES:
        return None
    found = stream.read(most + 1)
    return None if len(found) > most else found

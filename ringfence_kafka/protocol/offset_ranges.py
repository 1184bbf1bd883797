"""Runs of offsets above a floor, and their bytes. Pure.

Stored form, relative to ``next``: a kind byte and a payload.

======= ===============================================================================================
kind    payload
======= ===============================================================================================
``01``  varints (LEB128, at most 63 bits, in the shortest form), alternately: numbers of offsets outside
        and inside of runs. The first may be 0. No varints = no runs
``02``  bitmap: bit i, lowest bit of a byte first, is set if ``next`` + i is in a run. The last byte is
        not 0
======= ===============================================================================================

:func:`encode` uses the shorter form, and varints if both have the same length.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, cycle
from operator import mul
from typing import Final

from ringfence_kafka.protocol import varints

OFFSET_MAX: Final = 2**63 - 1
"""Kafka's offsets are signed 64-bit numbers."""

_VARINTS: Final = b"\x01"
_BITMAP: Final = b"\x02"
_ONE: Final = ord("1")
_DENSE: Final = 16
"""If the span has at least this many offsets for each known one, varints are at most as long as a bitmap."""

Run = tuple[int, int]
"""Start and exclusive end of a run of offsets."""


def encode(next_offset: int, runs: Sequence[Run]) -> bytes:
    """Encode runs.

    Raises:
        ValueError: as :func:`check`.
    """
    check(next_offset, runs)
    lengths = b"".join(varints.encode(length) for length in _lengths(next_offset, runs))
    span = runs[-1][1] - next_offset if runs else 0
    if len(lengths) <= (span + 7) // 8:
        return _VARINTS + lengths
    bits = "".join(map(mul, cycle("01"), _lengths(next_offset, runs)))
    return _BITMAP + int(bits[::-1], 2).to_bytes((span + 7) // 8, "little")


def decode(next_offset: int, data: bytes) -> list[Run]:
    """Decode the bytes of :func:`encode` with the same ``next_offset``.

    Raises:
        ValueError: the bytes are not valid; the text names the problem.
    """
    kind, payload = data[:1], data[1:]
    if kind == _VARINTS:
        runs = _from_varints(next_offset, payload)
    elif kind == _BITMAP:
        runs = _from_bitmap(next_offset, payload)
    else:
        raise ValueError(f"runs of kind {kind.hex() or 'nothing'}: this version reads 01 and 02")
    check(next_offset, runs)
    return runs


def encode_offsets(next_offset: int, offsets: Sequence[int]) -> bytes:
    """Encode offsets in ascending order, all at least ``next_offset``. Even many offsets take at most a millisecond.

    Raises:
        ValueError: as :func:`check`.
    """
    span = offsets[-1] + 1 - next_offset if offsets else 0
    if offsets and offsets[0] >= next_offset and span <= _DENSE * len(offsets):
        last = span - 1 + next_offset
        digits = bytearray(b"0") * span
        for offset in offsets:
            digits[last - offset] = _ONE
        bits, size = int(digits, 2), (span + 7) // 8
        if 2 * (bits & ~(bits << 1)).bit_count() > size:  # a run takes at least two varints
            return _BITMAP + bits.to_bytes(size, "little")
    return encode(next_offset, of_offsets(offsets))


def of_offsets(offsets: Iterable[int]) -> list[Run]:
    """Return the smallest number of runs that cover offsets in ascending order."""
    found: list[Run] = []
    start = stop = -1
    for offset in offsets:
        if offset != stop:
            if start < stop:
                found.append((start, stop))
            start = offset
        stop = offset + 1
    if start < stop:
        found.append((start, stop))
    return found


def near(offsets: Iterable[int], apart_max: int) -> list[Run]:
    """Group offsets in ascending order whose distance is at most ``apart_max``. Return first and last offset of each group."""
    found: list[Run] = []
    for offset in offsets:
        if found and offset - found[-1][1] <= apart_max:
            found[-1] = found[-1][0], offset
        else:
            found.append((offset, offset))
    return found


def texts(runs: Iterable[Run]) -> list[str]:
    """Return runs as ``3`` and ``5-9``."""
    return [str(start) if stop == start + 1 else f"{start}-{stop - 1}" for start, stop in runs]


def shown(offsets: Iterable[int], most: int = 10) -> str:
    """Return offsets for a log line. Only the first runs are listed."""
    given = sorted(offsets)
    found = of_offsets(given)
    noun = "offset" if len(given) == 1 else "offsets"
    return f"{len(given)} {noun}: {', '.join(texts(found[:most]))}{', …' if len(found) > most else ''}"


def check(next_offset: int, runs: Sequence[Run]) -> None:
    """Check that the runs are valid.

    Raises:
        ValueError: runs are empty, overlap, touch, are not in order or begin below ``next_offset``.
    """
    if not 0 <= next_offset <= OFFSET_MAX:
        raise ValueError(f"{next_offset} is no offset")
    end = next_offset - 1
    for start, stop in runs:
        if not end < start < stop <= OFFSET_MAX:
            raise ValueError(
                f"the run from {start} to {stop} is empty, begins at or below {end}, or exceeds {OFFSET_MAX}"
            )
        end = stop


def _lengths(next_offset: int, runs: Iterable[Run]) -> Iterator[int]:
    """Return alternating lengths: offsets outside of runs, then inside of runs."""
    end = next_offset
    for start, stop in runs:
        yield start - end
        yield stop - start
        end = stop


def _from_varints(next_offset: int, payload: bytes) -> list[Run]:
    lengths = list(varints.decode_all(payload, OFFSET_MAX.bit_length(), "the runs"))
    if len(lengths) % 2:
        raise ValueError("the runs end with how many are not finished")
    ends = list(accumulate(lengths, initial=next_offset))
    return list(zip(ends[1::2], ends[2::2], strict=True))


def _from_bitmap(next_offset: int, payload: bytes) -> list[Run]:
    if not payload or not payload[-1]:
        raise ValueError("the bitmap of the runs ends with nothing finished")
    bits = f"{int.from_bytes(payload, 'little'):b}"[::-1]
    runs: list[Run] = []
    stop = 0
    while (start := bits.find("1", stop)) >= 0:
        stop = bits.find("0", start)
        if stop < 0:
            stop = len(bits)
        runs.append((next_offset + start, next_offset + stop))
    return runs

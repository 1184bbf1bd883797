"""The watermark: which offsets of a partition are finished, and up to where all are. Pure.

A consumer group commits one offset, but messages of different groups finish in any order. So the progress is a floor,
``next``, below which everything is finished, and runs of finished offsets above it; both are written down, and a
restart repeats nothing that was finished.

Offsets have gaps (control records, compaction, retention), so the watermark is told which exist. What lies between two
delivered offsets does not exist and counts as finished; that makes runs few. Kept are the delivered offsets that are not
finished, in order: a delivery, a finish and the floor cost O(1), the runs what lists them.

Runs on disk, relative to ``next``; a kind byte, then:

======= ===============================================================================================
kind    payload
======= ===============================================================================================
``01``  varints (LEB128, at most 63 bits, no longer than needed), by turns: how many are not finished,
        how many are. The first may be 0. Without any: nothing above ``next`` is finished
``02``  a bitmap: bit i of it, the lowest of a byte first, is set where ``next`` + i is finished. Its last
        byte is not 0
======= ===============================================================================================

:func:`encode` takes the shorter, and varints of equals.
"""

import copy
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, cycle
from operator import mul
from typing import Final

OFFSET_MAX: Final = 2**63 - 1
"""Kafka's offsets are signed 64-bit numbers."""

_VARINTS: Final = b"\x01"
_BITMAP: Final = b"\x02"
_VARINT_BITS: Final = 7
_MORE: Final = 0x80

Run = tuple[int, int]
"""Offsets from the first, up to and without the second."""


class Watermark:
    """What is finished of one partition."""

    def __init__(self, next_offset: int = 0, runs: Iterable[Run] = ()) -> None:
        """From what was written down: reading goes on at ``next_offset``, and the runs above it are finished.

        Raises:
            ValueError: the runs are empty, overlap, touch, are not in order or begin below ``next_offset``.
        """
        self._stored: list[Run] = list(runs)
        _check(next_offset, self._stored)
        self._reached = 0
        """How many of the stored runs end at or below the end."""
        self._end = next_offset
        """The log was read up to here; from here on only the stored runs are known to be finished."""
        self._unfinished: OrderedDict[int, None] = OrderedDict()
        """Not a dict: its first key is found in O(1) also after many were removed before it."""

    @property
    def next(self) -> int:
        """All below is finished: the lowest unfinished offset, or without one the end of what is known to be finished."""
        for first in self._unfinished:
            return first
        return self._pending_end()

    @property
    def unfinished(self) -> int:
        """How many delivered offsets are not finished."""
        return len(self._unfinished)

    def delivered(self, offset: int) -> bool:
        """A record of this offset was read, and none since the one before it; offsets come in rising order.

        Returns whether it has yet to be processed: False = it was finished before the restart.

        Raises:
            ValueError: the log was read beyond this offset already.
        """
        if offset < self._end:
            raise ValueError(
                f"offset {offset} was delivered, but the log was read up to {self._end}: offsets rise"
            )
        if due := not self.is_finished(offset):
            self._unfinished[offset] = None
        self.reached(offset + 1)
        return due

    def reached(self, offset: int) -> None:
        """The log was read up to here, exclusive: what was not delivered below does not exist."""
        self._end = max(self._end, offset)
        stored = self._stored
        while self._reached < len(stored) and stored[self._reached][1] <= self._end:
            self._reached += 1
        if self._reached == len(stored):
            stored.clear()
            self._reached = 0

    def finish(self, offset: int) -> None:
        """A delivered offset is finished.

        Raises:
            KeyError: it is already, or was never delivered.
        """
        if offset not in self._unfinished:
            why = "it is finished" if self.is_finished(offset) else "it was never delivered"
            raise KeyError(f"offset {offset} cannot be finished: {why}")
        del self._unfinished[offset]

    def without(self, offsets: Iterable[int]) -> "Watermark":
        """As it would be if these delivered offsets were finished too; this one stays as it is."""
        unfinished = self._unfinished.copy()
        for offset in offsets:
            del unfinished[offset]
        other = copy.copy(self)
        other._unfinished = unfinished  # noqa: SLF001 - one of its own kind
        return other

    def is_finished(self, offset: int) -> bool:
        """Whether nothing is to be done about this offset any more, because it is finished or does not exist."""
        if offset < self._end:
            return offset not in self._unfinished
        index = bisect_right(self._stored, offset, lo=self._reached, key=lambda run: run[0]) - 1
        return index >= self._reached and offset < self._stored[index][1]

    def runs(self) -> list[Run]:
        """The finished offsets above ``next``: as few runs as can be, in order, none empty."""
        found: list[Run] = []
        begin: int | None = None
        for offset in self._unfinished:
            if begin is not None and begin < offset:
                found.append((begin, offset))
            begin = offset + 1
        # Without anything unfinished the next offset lies at the end of what is known.
        end = self._pending_end()
        if begin is not None and begin < end:
            found.append((begin, end))
        found.extend(run for run in self._pending() if run[0] > end)
        return found

    def _pending(self) -> Iterator[Run]:
        """The stored runs that reach beyond the end."""
        return (self._stored[index] for index in range(self._reached, len(self._stored)))

    def _pending_end(self) -> int:
        """The end, or that of the stored run that it lies in: runs do not touch, so one at most."""
        for start, stop in self._pending():
            return stop if start <= self._end else self._end
        return self._end


def encode(next_offset: int, runs: Sequence[Run]) -> bytes:
    """The runs of a watermark, in bytes.

    Raises:
        ValueError: as :class:`Watermark`.
    """
    _check(next_offset, runs)
    varints = b"".join(_varint(length) for length in _lengths(next_offset, runs))
    span = runs[-1][1] - next_offset if runs else 0
    if len(varints) <= (span + 7) // 8:
        return _VARINTS + varints
    bits = "".join(map(mul, cycle("01"), _lengths(next_offset, runs)))
    return _BITMAP + int(bits[::-1], 2).to_bytes((span + 7) // 8, "little")


def decode(next_offset: int, data: bytes) -> list[Run]:
    """Read what :func:`encode` wrote for the same ``next_offset``.

    Raises:
        ValueError: it did not; the text names the fault.
    """
    kind, payload = data[:1], data[1:]
    if kind == _VARINTS:
        runs = _from_varints(next_offset, payload)
    elif kind == _BITMAP:
        runs = _from_bitmap(next_offset, payload)
    else:
        raise ValueError(f"runs of kind {kind.hex() or 'nothing'}: this version reads 01 and 02")
    _check(next_offset, runs)
    return runs


def _check(next_offset: int, runs: Sequence[Run]) -> None:
    """Raises ValueError where a run is not one, or not where it may be."""
    if not 0 <= next_offset <= OFFSET_MAX:
        raise ValueError(f"{next_offset} is no offset")
    end = None
    for start, stop in runs:
        if start >= stop:
            raise ValueError(f"the run from {start} to {stop} is empty")
        if end is None and start < next_offset:
            raise ValueError(f"the run from {start} to {stop} begins below the next offset, {next_offset}")
        if end is not None and start <= end:
            raise ValueError(
                f"the run from {start} to {stop} does not lie apart from the one that ends at {end}"
            )
        if stop > OFFSET_MAX:
            raise ValueError(f"the run from {start} to {stop} ends where there are no offsets")
        end = stop


def _lengths(next_offset: int, runs: Iterable[Run]) -> Iterator[int]:
    """By turns how many offsets are not finished, and how many are."""
    end = next_offset
    for start, stop in runs:
        yield start - end
        yield stop - start
        end = stop


def _varint(number: int) -> bytes:
    data = bytearray()
    while number >= _MORE:
        data.append(number & (_MORE - 1) | _MORE)
        number >>= _VARINT_BITS
    data.append(number)
    return bytes(data)


def _varints(payload: bytes) -> Iterator[int]:
    number = shift = 0
    for index, byte in enumerate(payload):
        number |= (byte & (_MORE - 1)) << shift
        shift += _VARINT_BITS
        if shift > OFFSET_MAX.bit_length():
            raise ValueError(f"the varint that ends at byte {index} of the runs has more than 63 bits")
        if not byte & _MORE:
            if not byte and shift > _VARINT_BITS:
                raise ValueError(f"the varint that ends at byte {index} of the runs is longer than needed")
            yield number
            number = shift = 0
    if shift:
        raise ValueError("the runs end within a varint")


def _from_varints(next_offset: int, payload: bytes) -> list[Run]:
    lengths = list(_varints(payload))
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

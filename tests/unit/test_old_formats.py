"""Records of formats 0 and 1 are read as any others, wherever they are read, and whatever lies beside them."""

import importlib
import struct
from collections.abc import Callable
from itertools import product
from typing import Any, Final, Literal

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.errors import CorruptRecordException

from ringfence_kafka.records import TolerantRecords, kept
from tests.support.malformed import Latin1, Raw, batch
from tests.support.old_formats import Old, old
from tests.support.raw import Stored, stored

TP: Final = TopicPartition("orders", 0)
GZIP: Final = 1
TIME: Final = 1_700_000_000_123
Read = Callable[[bytes], list[Any]]


def _everywhere(data: bytes) -> list[Any]:
    """As any program of ours does: all of them know this module."""
    importlib.import_module("ringfence_kafka.insides")
    return list(PartitionRecords(TP, fetcher.MemoryRecords(data), [], 0, None, None, True, READ_COMMITTED))


def _leniently(data: bytes) -> list[Any]:
    """As lanes and bridges do."""
    return list(TolerantRecords(TP, kept(data), [], 0, None, None, True, READ_COMMITTED))


READERS: Final = pytest.mark.parametrize("read", [_everywhere, _leniently])


def _part(begin: int, magic: Literal[0, 1, 2], codec: int) -> tuple[bytes, list[tuple[int, int, bytes]]]:
    """Two records of a format, as a broker stores them; offset, timestamp and value of each, as they are to be read."""
    times = (-1, -1) if magic == 0 else (TIME, -1)
    values = [b"%d of %d" % (begin + number, magic) for number in range(2)]
    places = [(begin + number, time) for number, time in enumerate(times)]
    expected = [(*place, value) for place, value in zip(places, values, strict=True)]
    if magic == 2:
        return stored(
            [Stored(*place, value=value) for place, value in zip(places, values, strict=True)], codec
        ), expected
    return old(
        [Old(*place, value=value) for place, value in zip(places, values, strict=True)], magic, codec
    ), expected


@READERS
@pytest.mark.parametrize("formats", [(0, 1), (0, 2), (1, 2), (0, 1, 2), (1, 0, 2)])
def test_one_after_the_other(formats: tuple[Literal[0, 1, 2], ...], read: Read) -> None:
    """A cluster that was upgraded left them so, compressed or not: in one fetch they are read by the format of each, none is passed over."""
    for codecs in product([0, GZIP], repeat=len(formats)):
        parts = [
            _part(4 + 2 * number, each, codec)
            for number, (each, codec) in enumerate(zip(formats, codecs, strict=True))
        ]
        records = read(b"".join(data for data, _ in parts))

        assert [(each.offset, each.timestamp, each.value) for each in records] == [
            each for _, expected in parts for each in expected
        ], codecs
        assert {(each.topic, each.partition, each.key, each.headers) for each in records} == {
            ("orders", 0, b"group", ())
        }


@READERS
def test_cut_off(read: Read) -> None:
    """The broker cuts off the last message of a fetch: all before it are read."""
    data, expected = _part(0, 1, 0)
    for length in range(len(data) - 1, len(data) // 2, -1):
        assert [each.offset for each in read(data[:length])] == [expected[0][0]]


@READERS
@pytest.mark.parametrize("length", [-1, -(2**31), 0, 13])
def test_a_length_that_cannot_be(length: int, read: Read) -> None:
    """It is said that this is damaged."""
    data = bytearray(_part(0, 0, 0)[0])
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(CorruptRecordException):
        read(bytes(data))


def test_malformed_behind_old() -> None:
    """A header name that is not UTF-8, in the same fetch: both are read."""
    data, _ = _part(0, 0, GZIP)
    today = batch([Raw(b"bad", [(Latin1("é"), b"")], 1), Raw(b"good", timestamp=1)]).build()
    today[:8] = struct.pack(">q", 2)
    records = TolerantRecords(TP, kept(data + bytes(today)), [], 0, None, None, True, READ_COMMITTED)

    assert [each.offset for each in records] == [0, 1, 2, 3]
    assert list(records.malformed) == [2]

"""Readers refuse messages of formats 0 and 1 by name, and pass none of them over."""

from collections.abc import Callable
from typing import Any, Final, Literal

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords

from ringfence_kafka import aiokafka_patches
from ringfence_kafka.aiokafka_patches.batch_parts import PartedRecords
from ringfence_kafka.aiokafka_patches.lenient_records import LenientRecords
from ringfence_kafka.protocol.record_batch import OldFormatError
from tests.support.records.stored_batches import Stored, stored
from tests.support.records.unusual import Old, old

TP: Final = TopicPartition("orders", 0)
GZIP: Final = 1


def _everywhere(data: bytes) -> Any:
    """Read as any process does that installs the patches."""
    aiokafka_patches.install()
    return PartitionRecords(TP, fetcher.MemoryRecords(data), [], 0, None, None, True, READ_COMMITTED)


def _leniently(data: bytes) -> Any:
    """Read as lanes and bridges do."""
    return LenientRecords(TP, PartedRecords(data), [], 0, None, None, True, READ_COMMITTED)


READERS: Final = pytest.mark.parametrize("read", [_everywhere, _leniently])


@READERS
@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_format_is_refused(magic: Literal[0, 1], codec: int, read: Callable[[bytes], Any]) -> None:
    """The error names offset, format and the way out; the position stays."""
    data = old([Old(4, value=b"a"), Old(5, value=b"b")], magic, codec) + stored([Stored(6)])
    records = read(data)
    with pytest.raises(OldFormatError) as caught:
        next(records)

    assert str(caught.value).startswith(f"the message at offset {5 if codec else 4} has format {magic}, ")
    assert "kafka-delete-records.sh" in str(caught.value)
    assert records.next_fetch_offset == 0


def test_records_before_it_are_read() -> None:
    records = _leniently(stored([Stored(0), Stored(1)]) + old([Old(2)], 1))

    assert [record.offset for record in records] == [0, 1]
    assert records.next_fetch_offset == 2


@READERS
def test_an_old_message_that_is_cut_off(read: Callable[[bytes], Any]) -> None:
    """Brokers cut off the last message of a fetch: it comes whole with the next fetch, and is refused then."""
    assert [item.offset for item in read(stored([Stored(0)]) + old([Old(1)], 1)[:-1])] == [0]

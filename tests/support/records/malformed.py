"""Records with header names that are not UTF-8: clients that take names for mere bytes can write them, ours cannot."""

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

GZIP: Final = 1
BYTES_MAX: Final = 1_000_000


class Latin1(str):
    """A header name as such a client writes it."""

    __slots__ = ()

    def encode(self, encoding: str = "", errors: str = "") -> bytes:
        """Not UTF-8, if there is more than ASCII in it."""
        return super().encode("latin-1")


class Raw(NamedTuple):
    """A record, as it is to be written."""

    value: bytes
    headers: Sequence[tuple[str, bytes]] = ()
    timestamp: int = 0
    """0 = now."""


MALFORMED: Final = Raw(b"bad", [("a", b"0"), (Latin1("größe"), b"1"), ("_AMQ_DUPL_ID", b"bad")])


def batch(
    records: Sequence[Raw], compression: int = 0, transactional: bool = False, producer: int = -1
) -> Any:
    """The builder of one record batch; all records have the key ``g``."""
    builder = _DefaultRecordBatchBuilderPy(2, compression, int(transactional), producer, -1, -1, BYTES_MAX)
    for offset, record in enumerate(records):
        timestamp = record.timestamp or int(time.time() * 1000)
        assert builder.append(offset, timestamp, b"g", record.value, list(record.headers))
    return builder


async def send(
    bootstrap: str, topic: str, records: Sequence[Raw], compression: int = 0, abort: bool = False
) -> None:
    """Write one record batch to partition 0, or write it in a transaction that is aborted."""
    transaction = {"transactional_id": f"{topic}-malformed"} if abort else {}
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, **transaction) as producer:
        if abort:
            await producer.begin_transaction()
        builder = producer.create_batch()
        written = batch(records, compression, abort)
        builder._builder, builder._relative_offset = written, len(records)
        builder._set_producer_state = written.set_producer_state  # it insists on the builder that we replaced
        await (await producer.send_batch(builder, topic, partition=0))
        if abort:
            await producer.abort_transaction()

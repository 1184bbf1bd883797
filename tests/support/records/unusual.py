"""Records that no client of ours writes: odd header names, old formats, and batches that are large in memory."""

import struct
import time
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import zstandard
from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from ringfence_kafka.protocol.varints import encode_signed
from ringfence_kafka.protocol.wire_names import NO_TIMESTAMP

GZIP: Final = 1
BYTES_MAX: Final = 1_000_000


class Latin1(str):
    """A header name of a client that does not use UTF-8."""

    __slots__ = ()

    def encode(self, encoding: str = "", errors: str = "") -> bytes:
        """Encode as Latin-1: not UTF-8, if there is more than ASCII in it."""
        return super().encode("latin-1")


class Raw(NamedTuple):
    """A record to be written."""

    value: bytes
    headers: Sequence[tuple[str, bytes]] = ()
    timestamp: int = 0


MALFORMED: Final = Raw(b"bad", [("a", b"0"), (Latin1("größe"), b"1"), ("_AMQ_DUPL_ID", b"bad")])


def batch(
    records: Sequence[Raw], compression: int = 0, transactional: bool = False, producer: int = -1
) -> Any:
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
        builder._set_producer_state = written.set_producer_state  # aiokafka insists on the replaced builder
        await (await producer.send_batch(builder, topic, partition=0))
        if abort:
            await producer.abort_transaction()


_BYTES_MAX: Final = 2**20


class Old(NamedTuple):
    """A record of an old log: it has no headers, and in format 0 no timestamp."""

    offset: int
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = b"group"
    value: bytes | None = b"value"


def old(records: Sequence[Old], magic: Literal[0, 1], codec: int = 0) -> bytes:
    """Return the bytes of old records; with a codec they are within one message, numbered as a broker did."""
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=_BYTES_MAX)
    for number, record in enumerate(records):
        offset = number if codec and magic else record.offset
        assert builder.append(offset, record.timestamp, record.key, record.value) is not None
    data = bytearray(builder.build())
    if codec:
        struct.pack_into(">q", data, 0, records[-1].offset)
    return bytes(data)


ZSTD = 4
ID_HEADER = b"_AMQ_DUPL_ID"


def _sized(data: bytes) -> bytes:
    return encode_signed(len(data)) + data


def large_batch(count: int, size: int, key: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor().compressobj()
    parts = []
    for number in range(count):
        value = b"%06d" % number + b"x" * (size - 6)
        header = encode_signed(1) + _sized(ID_HEADER) + _sized(b"%b-%d" % (key, number))
        body = b"\0" + encode_signed(0) + encode_signed(number) + _sized(key) + _sized(value) + header
        parts.append(compressor.compress(_sized(body)))
    parts.append(compressor.flush())
    now = round(time.time() * 1000)
    counted = struct.pack(">hiqqqhii", ZSTD, count - 1, now, now, -1, -1, -1, count) + b"".join(parts)
    return struct.pack(">qiibI", 0, 9 + len(counted), -1, 2, calc_crc32c(counted)) + counted


async def send_batch(bootstrap: str, topic: str, data: bytes) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, compression_type="zstd", request_timeout_ms=120_000
    )
    await producer.start()
    try:
        batch = producer.create_batch()
        batch.append(key=None, value=b"", timestamp=None)
        batch.close()
        batch._buffer = data
        batch._build = lambda: data
        await (await producer.send_batch(batch, topic, partition=0))
    finally:
        await producer.stop()

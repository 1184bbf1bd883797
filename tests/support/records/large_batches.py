"""Record batches that are small on the wire and large in memory, as a producer with a good codec may send them."""

import struct
import time

import zstandard
from aiokafka import AIOKafkaProducer
from aiokafka.record.util import calc_crc32c

from ringfence_kafka.protocol.record_batch import varint

ZSTD = 4
ID_HEADER = b"_AMQ_DUPL_ID"


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def large_batch(count: int, size: int, key: bytes) -> bytes:
    """Return a batch of so many records with values of so many bytes, each with an ID. It is never whole in memory."""
    compressor = zstandard.ZstdCompressor().compressobj()
    parts = []
    for number in range(count):
        value = b"%06d" % number + b"x" * (size - 6)
        header = varint(1) + _sized(ID_HEADER) + _sized(b"%b-%d" % (key, number))
        body = b"\0" + varint(0) + varint(number) + _sized(key) + _sized(value) + header
        parts.append(compressor.compress(_sized(body)))
    parts.append(compressor.flush())
    now = round(time.time() * 1000)
    counted = struct.pack(">hiqqqhii", ZSTD, count - 1, now, now, -1, -1, -1, count) + b"".join(parts)
    return struct.pack(">qiibI", 0, 9 + len(counted), -1, 2, calc_crc32c(counted)) + counted


async def send_batch(bootstrap: str, topic: str, data: bytes) -> None:
    """Send a batch as it is to partition 0."""
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

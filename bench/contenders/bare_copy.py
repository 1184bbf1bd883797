"""The yardstick: an exactly-once copy with nothing but aiokafka. No ring, no verdict, no state, no Faust.

Ringfence's extra cost over this is the price of its features. Batch sizes, fetch sizes and the partitioning
of the output are Ringfence's, so that the two differ in the features only. Any error ends it: a yardstick need
not recover.
"""

import argparse
import asyncio
import signal
from collections.abc import Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.partitioner import murmur2

BATCH_RECORDS_MAX: Final = 5_000
BATCH_BYTES_MAX: Final = 512 * 1024
FETCH_BYTES_MAX: Final = 2 * 2**20
FETCH_WAIT_MS: Final = 100
REQUEST_BYTES_MAX: Final = 64 * 2**20


class Partitions(dict[bytes, int]):
    """Output partition of a key, computed once a key."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def __missing__(self, key: bytes) -> int:
        partition: int = (murmur2(key) & 0x7FFFFFFF) % self._count
        self[key] = partition
        return partition


def build(
    producer: AIOKafkaProducer, records: Sequence[Any], partitions: Partitions
) -> list[tuple[int, Any]]:
    """Record batches of the output, with their partitions."""
    full: list[tuple[int, Any]] = []
    open_: dict[int, Any] = {}
    for record in records:
        key, value, timestamp, headers = record.key, record.value, record.timestamp, list(record.headers)
        partition = partitions[key]
        builder = open_.get(partition)
        if builder is None:
            builder = open_[partition] = producer.create_batch()
        if builder.append(timestamp=timestamp, key=key, value=value, headers=headers) is None:
            full.append((partition, builder))
            builder = open_[partition] = producer.create_batch()
            builder.append(timestamp=timestamp, key=key, value=value, headers=headers)
    return full + list(open_.items())


async def copy(consumer: AIOKafkaConsumer, tp: TopicPartition, options: argparse.Namespace) -> None:
    """Copy one partition for ever: a batch, a transaction."""
    producer = AIOKafkaProducer(
        bootstrap_servers=options.bootstrap,
        transactional_id=f"{options.group}-{tp.partition}",
        max_batch_size=BATCH_BYTES_MAX,
        max_request_size=REQUEST_BYTES_MAX,
        acks="all",
    )
    partitions = Partitions(options.partitions)
    await producer.start()
    try:
        while True:
            fetched = await consumer.getmany(tp, timeout_ms=1000, max_records=BATCH_RECORDS_MAX)
            records = fetched.get(tp)
            if not records:
                continue
            async with producer.transaction():
                futures = [
                    await producer.send_batch(builder, options.output, partition=partition)
                    for partition, builder in build(producer, records, partitions)
                ]
                offsets = {tp: records[-1].offset + 1}
                await asyncio.gather(*futures, producer.send_offsets_to_transaction(offsets, options.group))
    finally:
        await producer.stop()


async def run(options: argparse.Namespace) -> None:
    """Copy all partitions of the input until SIGTERM."""
    consumer = AIOKafkaConsumer(
        options.input,
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=FETCH_BYTES_MAX,
        fetch_max_wait_ms=FETCH_WAIT_MS,
    )
    await consumer.start()
    try:
        tasks = [
            asyncio.create_task(copy(consumer, TopicPartition(options.input, index), options))
            for index in range(options.partitions)
        ]
        everything = asyncio.gather(*tasks)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, everything.cancel)
        await everything
    except asyncio.CancelledError:
        return
    finally:
        await consumer.stop()


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "group", "input", "output"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()

"""Reads a topic like a consumer of committed records."""

import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from app.check.records import CannotJudgeError, Record

SILENCE_LIMIT_S: Final = 60.0
"""Time limit without an answer, in seconds; exceeds the broker's timeout of abandoned transactions."""


def read_topic(bootstrap: str, topic: str) -> list[Record]:
    """Return all committed records of a topic, by partition and offset.

    Raises:
        CannotJudgeError: The topic does not exist or does not answer, or one of its transactions stays open.
    """
    options = {
        "bootstrap.servers": bootstrap,
        "group.id": "check",  # required by the client; no offset is committed
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "log_level": 0,
    }
    reader = Consumer(options | {"isolation.level": "read_committed"})
    witness = Consumer(options | {"isolation.level": "read_uncommitted"})
    try:
        partitions = _partitions(reader, topic)
        _await_no_open_transaction(reader, witness, partitions)
        return _read_to_end(reader, partitions)
    except KafkaException as error:
        raise CannotJudgeError(f"topic {topic}: {error.args[0].str()}") from error
    finally:
        reader.close()
        witness.close()


def _partitions(consumer: Consumer, topic: str) -> list[TopicPartition]:
    described = consumer.list_topics(topic, timeout=SILENCE_LIMIT_S).topics[topic]
    if described.error is not None:
        raise CannotJudgeError(f"topic {topic}: {described.error.str()}")
    return [TopicPartition(topic, number, 0) for number in sorted(described.partitions)]


def _await_no_open_transaction(
    reader: Consumer, witness: Consumer, partitions: Sequence[TopicPartition]
) -> None:
    """Wait until no transaction is open, because an open one hides the records behind it."""
    deadline = time.monotonic() + SILENCE_LIMIT_S
    for partition in partitions:
        while _end(reader, partition) != _end(witness, partition):
            if time.monotonic() > deadline:
                raise CannotJudgeError(f"a transaction on {partition.topic}/{partition.partition} stays open")
            time.sleep(0.1)


def _end(consumer: Consumer, partition: TopicPartition) -> int:
    offsets = consumer.get_watermark_offsets(partition, timeout=SILENCE_LIMIT_S)
    if offsets is None:
        raise CannotJudgeError(f"{partition.topic}/{partition.partition} does not answer")
    return int(offsets[1])


def _read_to_end(consumer: Consumer, partitions: list[TopicPartition]) -> list[Record]:
    records: list[Record] = []
    ended: set[int | None] = set()
    consumer.assign(partitions)
    deadline = time.monotonic() + SILENCE_LIMIT_S
    while len(ended) < len(partitions):
        messages = consumer.consume(5_000, timeout=0.5)
        if messages:
            deadline = time.monotonic() + SILENCE_LIMIT_S
        elif time.monotonic() > deadline:
            raise CannotJudgeError(f"topic {partitions[0].topic} stopped answering before its end")
        for message in messages:
            if (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                ended.add(message.partition())
                continue
            records.append(_record(message))
    return sorted(records, key=lambda record: (record.partition, record.offset))


def _record(message: Message) -> Record:
    pairs = message.headers() or ()
    headers = pairs.items() if isinstance(pairs, dict) else pairs
    return Record(
        message.partition() or 0,
        message.offset() or 0,
        _bytes(message.key()),
        _bytes(message.value()),
        tuple((name, _bytes(value)) for name, value in headers),
        message.timestamp()[1],
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value

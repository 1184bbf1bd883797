"""Topics and offsets, seen through a client that none of the contenders uses."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.errors import BenchError
from bench.traffic import ID_HEADER, LOG_LEVEL

LIMIT_S: Final = 30.0
"""For one answer of the broker."""
_READ_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Counted:
    """What a reader of committed data finds in an output topic."""

    records: int
    distinct: int


def create(bootstrap: str, topic: str, partitions: int) -> None:
    """Create a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": LOG_LEVEL})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(LIMIT_S)


def delete(bootstrap: str, topics: Iterable[str]) -> None:
    """Delete those of the topics that exist, and wait until the broker no longer lists them.

    Raises:
        BenchError: they are still listed after :data:`LIMIT_S`.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": LOG_LEVEL})
    present = set(topics) & admin.list_topics(timeout=LIMIT_S).topics.keys()
    if not present:
        return
    for future in admin.delete_topics(sorted(present)).values():
        future.result(LIMIT_S)
    deadline = time.monotonic() + LIMIT_S
    while present & admin.list_topics(timeout=LIMIT_S).topics.keys():
        if time.monotonic() > deadline:
            raise BenchError(
                f"topics {', '.join(sorted(present))} are still there {LIMIT_S:.0f} s after deletion"
            )
        time.sleep(0.1)


class Progress:
    """How far a group has committed a topic."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        # Read-uncommitted: otherwise the client waits for a moment at which no transaction is open.
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "isolation.level": "read_uncommitted",
                "log_level": LOG_LEVEL,
            }
        )
        self._partitions = [TopicPartition(topic, each) for each in range(partitions)]

    def committed(self) -> int:
        """Messages committed in all partitions together; the topic's log must start at 0.

        Raises:
            KafkaException: the group's coordinator did not answer well for :data:`LIMIT_S`.
        """
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                found = self._consumer.committed(self._partitions, LIMIT_S)
            except KafkaException:  # a coordinator that has just been chosen refuses for a moment
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return sum(max(each.offset, 0) for each in found)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def count(bootstrap: str, topic: str, partitions: int) -> Counted:
    """Read all committed records of a topic, to its end.

    Raises:
        BenchError: the broker stopped answering.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-count",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": LOG_LEVEL,
        }
    )
    records = 0
    distinct: set[bytes | str | None] = set()
    ended: set[int | None] = set()
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
        while len(ended) < partitions:
            messages = consumer.consume(_READ_AT_ONCE, timeout=1.0)
            if not messages:
                messages = consumer.consume(1, timeout=LIMIT_S)
                if not messages:
                    raise BenchError(f"{topic}: no answer within {LIMIT_S:.0f} s while counting")
            for message in messages:
                error = message.error()
                if error is None:
                    records += 1
                    distinct.add(dict(message.headers() or ()).get(ID_HEADER))
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the constant's public name
                    ended.add(message.partition())
                else:
                    raise BenchError(f"{topic}: {error}")
    finally:
        consumer.close()
    return Counted(records, len(distinct))

"""Topics and offsets, seen through a client that none of the contenders uses."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.errors import BenchError
from bench.traffic import ID_HEADER, LOG_LEVEL
from ringfence_kafka.protocol import wire_names

LIMIT_S: Final = 30.0
"""For one answer of the broker."""
_READ_AT_ONCE: Final = 10_000
_TAIL_RECORDS: Final = 100
"""Behind the last record lie markers, one a transaction; rarely more than a few."""

Header = bytes | str | None


@dataclass(frozen=True, slots=True)
class Counted:
    """Content of a topic for a reader of committed data."""

    records: int
    distinct: int
    """Different duplicate IDs, and parts of different transactions."""
    out_of_order: int
    """Records behind a later one of their group and input partition, where they name their source."""


@dataclass(frozen=True, slots=True)
class Committed:
    """How far a group is."""

    messages: int
    """Committed messages of the input, all partitions together; its log must start at 0 and hold no markers."""
    forward: tuple[int, ...] = ()
    """The offset in each partition of the forward topic. It counts markers too, so that it differs from the number of messages."""

    @property
    def position(self) -> int:
        """Grows with each commit that consumed something."""
        return self.messages + sum(self.forward)

    def complete(self, messages: int, forward_ends: Callable[[], Sequence[int]]) -> bool:
        """Whether the input and all that was forwarded are consumed.

        A record is forwarded in the transaction that commits its input offset: after a consumed input everything was forwarded, but perhaps
        not judged yet.

        Args:
            messages: In the input.
            forward_ends: Asked when the input is consumed, and not before: then nobody forwards any more.
        """
        return self.messages >= messages and all(
            offset >= end for offset, end in zip(self.forward, forward_ends(), strict=True)
        )


def create(bootstrap: str, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
    """Create a topic, with as many copies as the brokers go by."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": LOG_LEVEL})
    for future in admin.create_topics([NewTopic(topic, partitions, -1, config=dict(config or {}))]).values():
        future.result(LIMIT_S)


def settle(bootstrap: str, topic: str, partitions: int) -> None:
    """Wait until each partition of a topic that was just made has a leader that answers.

    Raises:
        KafkaException: not within :data:`LIMIT_S`.
    """
    with Written(bootstrap, topic, partitions) as written:
        written.committed()


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
    """How far a group has committed a topic, and the one that it forwards through."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int, forward: str = "") -> None:
        """``forward`` has as many partitions as the topic; empty = there is none."""
        # Read-uncommitted: otherwise the client waits for a moment at which no transaction is open.
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "isolation.level": "read_uncommitted",
                "log_level": LOG_LEVEL,
            }
        )
        self._topic = topic
        self._partitions = [
            TopicPartition(name, index) for name in (topic, forward) if name for index in range(partitions)
        ]

    def committed(self) -> Committed:
        """Return the offsets that the group has committed now.

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
                offsets = [
                    (topic_partition.topic, max(topic_partition.offset, 0)) for topic_partition in found
                ]
                return Committed(
                    sum(offset for name, offset in offsets if name == self._topic),
                    tuple(offset for name, offset in offsets if name != self._topic),
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


class Written:
    """How much stands in a topic without transactions."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "bench-count", "log_level": LOG_LEVEL}
        )
        self._partitions = [TopicPartition(topic, index) for index in range(partitions)]

    def committed(self) -> Committed:
        """Return the sum of the end offsets of now.

        Raises:
            KafkaException: the broker did not answer well for :data:`LIMIT_S`.
        """
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                ends = [
                    self._consumer.get_watermark_offsets(partition, LIMIT_S) for partition in self._partitions
                ]
            except KafkaException:  # a topic that was just made has no leader for a moment
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return Committed(sum(end for _, end in ends))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def count(bootstrap: str, topic: str, partitions: int) -> Counted:
    """Read all committed records of a topic, to its end.

    Raises:
        BenchError: the broker stopped answering.
    """
    records = out_of_order = 0
    distinct: set[Header] = set()
    newest: dict[tuple[bytes | None, bytes], int] = {}
    """By group and input partition: the input offset of the record read last."""
    for message in _read(bootstrap, topic, [0] * partitions):
        records += 1
        headers: dict[str, Header] = dict(message.headers() or ())
        source, part = headers.get(wire_names.HEADER_SOURCE), headers.get(wire_names.HEADER_PART)
        source = headers.get(wire_names.HEADER_HOP) if source is None else source
        distinct.add(headers.get(ID_HEADER) if part is None else f"{source!r} {part!r}")
        if isinstance(source, bytes):
            place, _, offset = source.rpartition(b"/")
            lane = (message.key(), place)
            number = int(offset)
            out_of_order += number < newest.get(lane, 0)
            newest[lane] = number
    return Counted(records, len(distinct), out_of_order)


def data_ends(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """Return the offset after the last committed record of each partition: markers behind it do not count.

    Only the tail is read. Nobody may begin to write to the topic meanwhile; markers may be still on their way.

    Raises:
        BenchError: the broker stopped answering.
    """
    ends = [0] * partitions
    starts = highs = _high_watermarks(bootstrap, topic, partitions)
    tail = _TAIL_RECORDS
    while any(start > 0 and end == 0 for start, end in zip(starts, ends, strict=True)):
        starts = [max(high - tail, 0) for high in highs]
        for message in _read(bootstrap, topic, starts, highs):
            ends[message.partition() or 0] = (message.offset() or 0) + 1
        tail *= 10
    return ends


def _high_watermarks(bootstrap: str, topic: str, partitions: int) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-count",
            "isolation.level": "read_uncommitted",
            "log_level": LOG_LEVEL,
        }
    )
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, index), LIMIT_S)[1]
            for index in range(partitions)
        ]
    finally:
        consumer.close()


def _read(bootstrap: str, topic: str, starts: Sequence[int], ends: Sequence[int] = ()) -> Iterator[Message]:
    """Yield the committed records of all partitions from these offsets on, to the end of what is readable.

    ``ends``: offsets that the end must have reached; an open transaction holds it back.
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
    ended: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, number, start) for number, start in enumerate(starts)])
        while len(ended) < len(starts):
            messages = consumer.consume(_READ_AT_ONCE, timeout=1.0)
            if not messages:
                messages = consumer.consume(1, timeout=LIMIT_S)
                if not messages:
                    raise BenchError(f"{topic}: no answer within {LIMIT_S:.0f} s while counting")
            for message in messages:
                error, partition = message.error(), message.partition() or 0
                if error is None:
                    yield message
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise BenchError(f"{topic}: {error}")
                elif not ends or (message.offset() or 0) >= ends[partition]:
                    ended.add(partition)
    finally:
        consumer.close()

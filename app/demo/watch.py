"""How far the worker is, seen from outside: what its group committed and what a reader may read."""

import threading
from collections.abc import Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

ANSWER_LIMIT_S: Final = 10.0
_SOURCE_HEADER: Final = "_RF_SOURCE"
_PART_HEADER: Final = "_RF_TX_PART"

Positions = dict[str, dict[int, int]]
"""Input topic → partition → offset up to which the worker has committed."""


class Watch:
    """Counts while the worker works.

    High watermarks would count transaction markers and what is not yet committed. So what is *consumed* are the
    group's committed offsets, and what is *accepted* is counted by a reader of committed records.

    Args:
        bootstrap: ``host:port``.
        group: The worker's consumer group; it is asked, not joined.
        accepted_topics: Input topic → accepted topic.
        partitions: Of each topic.
    """

    def __init__(
        self, bootstrap: str, group: str, accepted_topics: Mapping[str, str], partitions: int
    ) -> None:
        self._committed = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                # With read_committed the answer would wait until no lane has a transaction under way.
                "isolation.level": "read_uncommitted",
                "log_level": 0,
            }
        )
        self._inputs = [
            TopicPartition(topic, index) for topic in accepted_topics for index in range(partitions)
        ]
        self._reader = _AcceptedReader(
            bootstrap, [TopicPartition(topic, index, 0) for topic in accepted_topics.values() for index in range(partitions)]
        )  # fmt: skip
        self._reader.start()

    def positions(self) -> Positions:
        """Committed offsets, 0 where there is none; asked for now. The broker's refusal leaves as KafkaException."""
        found: Positions = {}
        for topic_partition in self._committed.committed(self._inputs, ANSWER_LIMIT_S):
            if topic_partition.error is not None:
                raise KafkaException(topic_partition.error)
            found.setdefault(topic_partition.topic, {})[topic_partition.partition] = max(
                topic_partition.offset, 0
            )
        return found

    @property
    def accepted(self) -> int:
        """Accepted messages and transactions read so far."""
        return self._reader.count

    @property
    def duplicates(self) -> int:
        """Dropped messages among those up to the last accepted one read; both counts are of one moment."""
        return max(0, self._reader.decided - self._reader.count)

    def close(self) -> None:
        """Stop reading."""
        self._reader.stop()
        self._committed.close()


class _AcceptedReader(threading.Thread):
    """Counts accepted records as any consumer would see them."""

    def __init__(self, bootstrap: str, partitions: list[TopicPartition]) -> None:
        super().__init__(name="accepted", daemon=True)
        self.count = 0
        self.decided = 0
        """Input records up to the last accepted one of each input partition."""
        self._stopped = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "demo-watch",  # required by the client; nothing is ever committed to it
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.assign(partitions)

    def run(self) -> None:
        """The thread."""
        ends: dict[bytes, int] = {}
        while not self._stopped.is_set():
            messages = [
                message for message in self._consumer.consume(5_000, timeout=0.2) if message.error() is None
            ]
            for message in messages:
                headers = dict(message.headers() or ())
                part = headers.get(_PART_HEADER)
                if isinstance(part, bytes) and not part.startswith(b"1/"):
                    continue  # of each transaction one counts
                self.count += 1
                source = headers.get(_SOURCE_HEADER)
                if message.key() is not None and isinstance(
                    source, bytes
                ):  # else it may come from another lane
                    lane, _, offset = source.rpartition(b"/")
                    ends[lane] = max(ends.get(lane, 0), int(offset or -1) + 1)
            self.decided = sum(ends.values())
        self._consumer.close()

    def stop(self) -> None:
        """Returns when the thread has ended."""
        self._stopped.set()
        self.join()

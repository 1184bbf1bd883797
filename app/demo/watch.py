"""Progress of workers and bridges from outside: committed offsets and accepted messages."""

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

ANSWER_LIMIT_S: Final = 10.0
_SOURCE_HEADER: Final = "_RF_SOURCE"
_PART_HEADER: Final = "_RF_TX_PART"

Positions = dict[str, dict[int, int]]
"""Topic → partition → committed offset."""


class Offsets:
    """Committed offsets of a group, and ends of topics. It does not join the group.

    High watermarks count transaction markers and uncommitted records, so progress is measured in committed
    offsets.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: Iterable[str],
        partitions: int,
        isolation_level: str = "read_uncommitted",
    ) -> None:
        """Create the clients. ``isolation_level`` read_committed: ends for readers of committed records."""
        self._partitions = [TopicPartition(topic, index) for topic in topics for index in range(partitions)]
        # with read_committed the answer would wait until no lane has an open transaction
        self._consumer = Consumer(options(bootstrap, group, isolation_level))

    def positions(self) -> Positions:
        """Return the committed offsets; 0 = none committed. Raises KafkaException if the broker refuses."""
        positions: Positions = {}
        for partition in self._consumer.committed(self._partitions, ANSWER_LIMIT_S):
            if partition.error is not None:
                raise KafkaException(partition.error)
            positions.setdefault(partition.topic, {})[partition.partition] = max(partition.offset, 0)
        return positions

    def committed(self) -> int:
        """Return the sum of the committed offsets."""
        return total(self.positions())

    def ends(self) -> Positions:
        """Return the ends of the partitions."""
        ends: Positions = {}
        for partition in self._partitions:
            _, end = self._consumer.get_watermark_offsets(partition, timeout=ANSWER_LIMIT_S)
            ends.setdefault(partition.topic, {})[partition.partition] = end
        return ends

    def written(self) -> int:
        """Return the number of records and transaction markers in the topics."""
        return total(self.ends())

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()


class AcceptedReader(threading.Thread):
    """Counts accepted messages like an ordinary consumer."""

    def __init__(self, bootstrap: str, topics: Iterable[str], partitions: int) -> None:
        super().__init__(name="accepted", daemon=True)
        self.accepted = 0
        """Number of accepted messages and transactions read so far."""
        self._decided = 0
        """Number of input records up to the last accepted one of each input partition."""
        self._stopped = threading.Event()
        self._consumer = reader(bootstrap, topics, partitions)

    @property
    def duplicates(self) -> int:
        """Number of dropped messages up to the last accepted one that was read."""
        return max(0, self._decided - self.accepted)

    def run(self) -> None:
        """Count outputs until :meth:`stop`."""
        ends: dict[bytes, int] = {}
        while not self._stopped.is_set():
            for message in self._consumer.consume(5_000, timeout=0.2):
                if message.error() is not None:
                    continue
                headers = dict(message.headers() or ())
                part = headers.get(_PART_HEADER)
                if isinstance(part, bytes) and not part.startswith(b"1/"):
                    continue  # count one part of each transaction
                self.accepted += 1
                source = headers.get(_SOURCE_HEADER)
                if message.key() is not None and isinstance(source, bytes):  # else maybe from another lane
                    lane, _, offset = source.rpartition(b"/")
                    ends[lane] = max(ends.get(lane, 0), int(offset or -1) + 1)
            self._decided = sum(ends.values())
        self._consumer.close()

    def stop(self) -> None:
        """Stop, and wait until the thread has ended."""
        self._stopped.set()
        self.join()


def total(positions: Mapping[str, Mapping[int, int]]) -> int:
    """Return the sum of the offsets."""
    return sum(offset for partitions in positions.values() for offset in partitions.values())


def options(bootstrap: str, group: str, isolation_level: str) -> dict[str, Any]:
    """Return options of a consumer that commits nothing."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "isolation.level": isolation_level,
        "log_level": 0,
    }


def reader(bootstrap: str, topics: Iterable[str], partitions: int, **further: object) -> Consumer:
    """Return a consumer of committed records, from the start of all partitions."""
    # the client requires a group; no offset is committed
    own = options(bootstrap, "demo-watch", "read_committed")
    consumer = Consumer({**own, "enable.auto.commit": False, **further})
    consumer.assign([TopicPartition(topic, index, 0) for topic in topics for index in range(partitions)])
    return consumer

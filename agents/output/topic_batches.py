"""Record batches of one output topic while they are filled, and facts about a lane's output topics."""

from dataclasses import dataclass

from agents.decision.item import Item, Place
from ringfence_kafka.producer.transactional import Builder, NewBuilder, Outgoing
from ringfence_kafka.protocol.wire_names import NO_TIMESTAMP

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Outputs:
    """Output topics of a lane, without its changelog: partition counts and size limits."""

    partitions: dict[str, int]
    bytes_max: dict[str, int]
    """``max.message.bytes`` of each topic."""
    aged_ms: dict[str, float]
    """Age from which a record is :attr:`ringfence_kafka.producer.transactional.Outgoing.aged`, in ms, by topic; absent = never."""


class TooLargeError(Exception):
    """Records that are too large for their topic. ``reasons``: reason by partition and offset."""

    def __init__(self, reasons: dict[Place, str]) -> None:
        super().__init__(f"{len(reasons)} records are too large")
        self.reasons = reasons


@dataclass(slots=True)
class OpenBatch:
    """A record batch that is being filled."""

    builder: Builder
    young: bool
    """Whether a record in it is not aged."""
    timeless: bool
    """Whether its records have no timestamp. In a batch with timestamps aiokafka would give them one."""


class TopicBatches:
    """Record batches of one topic, with one open batch for each partition."""

    def __init__(
        self,
        topic: str,
        bytes_max: int,
        new_builder: NewBuilder,
        too_large: dict[Place, str],
        aged_before: float,
    ) -> None:
        """Create empty batches. ``aged_before``: records with a lower timestamp are aged; ``too_large`` receives the reasons."""
        self._topic = topic
        self._bytes_max = bytes_max
        self._new = new_builder
        self._too_large = too_large
        self._aged_before = aged_before
        self._open: dict[int, OpenBatch] = {}
        self._full: list[Outgoing] = []

    def append(
        self, partition: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> int:
        """Append a record. Return 0, or, if the topic cannot take it, the size of a batch with only this record, in bytes."""
        batch = self._open.get(partition)
        if batch is not None:
            if (not batch.timeless or timestamp == NO_TIMESTAMP) and batch.builder.append(
                timestamp=timestamp, key=key, value=value, headers=headers
            ) is not None:
                if not batch.young:
                    batch.young = timestamp >= self._aged_before
                return 0
            self._close(partition)
        builder = self._new()
        builder.append(timestamp=timestamp, key=key, value=value, headers=headers)
        size: int = builder.size()
        if size > self._bytes_max:
            return size
        self._open[partition] = OpenBatch(
            builder, young=timestamp >= self._aged_before, timeless=timestamp == NO_TIMESTAMP
        )
        return 0

    def refuse(self, item: Item, size: int, part: str = "") -> None:
        """Record that a record is too large. For an envelope the first such part counts."""
        reason = f"{part}{size} bytes, {self._topic} takes max.message.bytes = {self._bytes_max}"
        self._too_large.setdefault(item.place, reason)

    def _close(self, partition: int) -> None:
        batch = self._open.pop(partition)
        self._full.append(Outgoing(self._topic, partition, batch.builder, not batch.young))

    def finish(self) -> list[Outgoing]:
        """Return all batches, in order for each partition."""
        for partition in list(self._open):
            self._close(partition)
        return self._full

"""Record batches of one output topic while they are filled; topics that a lane writes to."""

from dataclasses import dataclass

from agents.decision.item import Item, Place
from ringfence_kafka.producer.transactional import Builder, NewBuilder, Outgoing
from ringfence_kafka.protocol.wire_names import NO_TIMESTAMP

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Outputs:
    """The topics that a lane writes to, besides its changelog: partition counts and largest record batches."""

    partitions: dict[str, int]
    bytes_max: dict[str, int]
    """``max.message.bytes`` of each topic."""
    aged_ms: dict[str, float]
    """How old a record must be, by its timestamp, to be :attr:`ringfence_kafka.producer.transactional.Outgoing.aged`; absent = never is."""


class TooLargeError(Exception):
    """Records that fit into no batch that their topic takes; ``reasons`` by where they were read."""

    def __init__(self, reasons: dict[Place, str]) -> None:
        super().__init__(f"{len(reasons)} records are too large")
        self.reasons = reasons


@dataclass(slots=True)
class OpenBatch:
    """A record batch that is being filled."""

    builder: Builder
    young: bool
    """It has a record that is not aged."""
    timeless: bool
    """Its records have no timestamp; aiokafka would give them that of a record that has one."""


class TopicBatches:
    """Record batches of one topic, one open a partition."""

    def __init__(
        self,
        topic: str,
        bytes_max: int,
        new_builder: NewBuilder,
        too_large: dict[Place, str],
        aged_before: float,
    ) -> None:
        """``aged_before``: a timestamp; records older than that are aged. ``too_large`` is added to: place → reason."""
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
        """Append a record. Returns 0, or the bytes of a batch of it alone, if the topic takes no such batch: it is left out then."""
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
        """Note that a record is too large; of an envelope the first part."""
        reason = f"{part}{size} bytes, {self._topic} takes max.message.bytes = {self._bytes_max}"
        self._too_large.setdefault(item.place, reason)

    def _close(self, partition: int) -> None:
        batch = self._open.pop(partition)
        self._full.append(Outgoing(self._topic, partition, batch.builder, not batch.young))

    def finish(self) -> list[Outgoing]:
        """All batches, in order within each partition."""
        for partition in list(self._open):
            self._close(partition)
        return self._full

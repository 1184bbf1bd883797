"""Input of a lane: the records of one fetch, its first position, and its memory cost. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol, Self

from agents.batch import native_records
from agents.batch.record import Record, RecordContent

__all__ = ["BATCH_RECORDS_MAX", "DueRecords", "FetchedBatch", "Record", "RecordContent"]

BATCH_RECORDS_MAX: Final = 5_000
"""Records of one batch, and so of one transaction of a lane with one partition."""
TRANSACTION_RECORDS_MAX: Final = 4 * BATCH_RECORDS_MAX
"""Records of one transaction of a lane with several partitions."""
JOINED_BYTES_MAX: Final = 8 * 2**20
"""Most memory that joined batches may use together, in bytes; a single batch may use more."""


class Held(Protocol):
    """Memory that a batch uses."""

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        ...

    def free(self) -> None:
        """Give back what the batch holds. May be called again; memory without an owner is freed anyway."""
        ...

    def unpack(self) -> None:
        """Make an object of each record. The batch takes more memory from then on."""
        ...


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """Committed records of one input partition, in order, with nothing missing between ``begin`` and ``end``.

    ``begin`` is the position at which the fetch began, not the first record's offset: markers and aborted records may lie between the two.
    A batch that begins above the lane's next offset shows skipped offsets. A batch without records holds only markers and aborted
    records up to ``end``.
    """

    topic: str
    partition: int
    begin: int
    end: int
    """Position after the batch; at least one more than the last record's offset."""
    records: Sequence[Record]
    seek: int
    """How often the partition had been rewound when this was fetched."""
    malformed: Mapping[int, str] = field(default_factory=dict)
    """Offset → reason: records that no output takes as they came; they are shown here as far as they can be."""
    bytes: int = field(default=0, compare=False)
    """Memory that the batch uses until its transaction has ended, in bytes."""
    held: tuple[Held, ...] = field(default=(), compare=False, repr=False)
    """The memory itself."""
    asked_at: float = field(default=0.0, compare=False)
    """When the broker was asked for it, which then had it, by the monotonic clock; 0 = that counts no more."""

    def joined(self, later: Self) -> Self | None:
        """Join both, if ``later`` goes on where this ends and the two are not too many; else None."""
        end = self.topic, self.partition, self.seek, self.end
        begin = later.topic, later.partition, later.seek, later.begin
        if begin != end or len(self.records) + len(later.records) > BATCH_RECORDS_MAX:
            return None
        if self.bytes + later.bytes > JOINED_BYTES_MAX:
            return None
        return replace(
            self,
            end=later.end,
            records=native_records.joined(self.records, later.records),
            malformed={**self.malformed, **later.malformed},
            bytes=self.bytes + later.bytes,
            held=(*self.held, *later.held),
        )

    def free(self) -> None:
        """Free the memory after the transaction has ended, even if something still refers to the batch."""
        for held in self.held:
            held.free()

    def unpack(self) -> None:
        """Make an object of each record, because Python reads them one by one."""
        for held in self.held:
            held.unpack()


class DueRecords(NamedTuple):
    """The records of a batch that its lane has not processed yet."""

    batch: FetchedBatch
    records: Sequence[Record]


class Parcel:
    """Batches of one lane on their way through Faust. It keeps each message until the next one comes."""

    def __init__(self, batches: Sequence[FetchedBatch]) -> None:
        """``batches``: each of another partition."""
        self._batches: Sequence[FetchedBatch] = batches

    def take(self) -> Sequence[FetchedBatch]:
        """Return the batches; nothing is left behind."""
        batches, self._batches = self._batches, ()
        return batches

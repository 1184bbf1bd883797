"""Input of a lane: the records of one fetch, its first position, and its memory cost. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol, Self

from agents.batch import native_records
from agents.batch.record import Record, RecordContent

__all__ = ["BATCH_RECORDS_MAX", "DueRecords", "FetchedBatch", "Record", "RecordContent"]

BATCH_RECORDS_MAX: Final = 5_000
"""Maximum number of records in a batch, and in a transaction of a lane with one partition."""
TRANSACTION_RECORDS_MAX: Final = 4 * BATCH_RECORDS_MAX
"""Maximum number of records in a transaction of a lane with several partitions."""
JOINED_BYTES_MAX: Final = 8 * 2**20
"""Maximum memory of joined batches, in bytes; a single batch may use more."""


class Held(Protocol):
    """Memory of a batch."""

    @property
    def bytes(self) -> int:
        """Size in bytes."""

    def free(self) -> None:
        """Free the memory. It may be called again; memory without an owner is freed anyway."""

    def unpack(self) -> None:
        """Create an object for each record. The batch then uses more memory."""


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """Committed records of one input partition, ordered and without gaps between ``begin`` and ``end``.

    ``begin`` is the position at which the fetch began, not the first record's offset: markers and aborted records may be between the two.
    A batch that begins above the lane's next offset reveals skipped offsets. A batch without records covers only markers and aborted
    records up to ``end``.
    """

    topic: str
    partition: int
    begin: int
    end: int
    """Position after the batch; greater than the last record's offset."""
    records: Sequence[Record]
    seek: int
    """Number of rewinds of the partition before this fetch."""
    malformed: Mapping[int, str] = field(default_factory=dict)
    """Reason by offset, of records that no output accepts unchanged. ``records`` has them as far as they can be read."""
    bytes: int = field(default=0, compare=False)
    """Memory that the batch uses until its transaction ends, in bytes."""
    held: tuple[Held, ...] = field(default=(), compare=False, repr=False)
    asked_at: float = field(default=0.0, compare=False)
    """Monotonic time of the fetch request that returned the records, in seconds; 0 = not measured."""

    def joined(self, later: Self) -> Self | None:
        """Return both batches as one; None if ``later`` does not continue this batch or both are too large together."""
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
        """Free the memory after the transaction, even if references to the batch remain."""
        for held in self.held:
            held.free()

    def unpack(self) -> None:
        """Create an object for each record, because Python code is going to read all of them."""
        for held in self.held:
            held.unpack()


class DueRecords(NamedTuple):
    """Records of a batch that the lane has not processed yet."""

    batch: FetchedBatch
    records: Sequence[Record]


class Parcel:
    """Batches of one lane on their way through Faust. Faust references each message until the next one arrives."""

    def __init__(self, batches: Sequence[FetchedBatch]) -> None:
        """Create a parcel of batches, each from a different partition."""
        self._batches: Sequence[FetchedBatch] = batches

    def release(self) -> Sequence[FetchedBatch]:
        """Return the batches and drop this parcel's references to them."""
        batches, self._batches = self._batches, ()
        return batches

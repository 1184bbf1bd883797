"""What a lane is given: the records of one fetch, and where the fetch began. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from agents import raw
from agents.content import Content, Record

__all__ = ["BATCH_RECORDS_MAX", "Content", "FetchedBatch", "Record"]

BATCH_RECORDS_MAX: Final = 5_000
"""Records of one batch, and so of one transaction of one lane."""


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """Committed records of one input partition, in order, with nothing missing between ``begin`` and ``end``.

    ``begin`` is the position at which the fetch began, not the first record's offset: between the two may lie
    markers and aborted records, and a batch that begins above what the lane expects shows that something was
    stepped over. Without records there is nothing but such up to ``end``.
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

    def joined(self, later: Self) -> Self | None:
        """Both as one, if ``later`` goes on exactly where this ends and the two are not too many; else None."""
        end = self.topic, self.partition, self.seek, self.end
        begin = later.topic, later.partition, later.seek, later.begin
        if begin != end or len(self.records) + len(later.records) > BATCH_RECORDS_MAX:
            return None
        return replace(
            self,
            end=later.end,
            records=raw.joined(self.records, later.records),
            malformed={**self.malformed, **later.malformed},
        )

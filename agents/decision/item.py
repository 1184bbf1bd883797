"""One record of a batch on its way through a lane, and what happens to it. Pure."""

from collections.abc import Sequence
from enum import Enum
from typing import Final

import msgspec

from agents.batch.batch import Record
from agents.decision.bridge_headers import BridgeHeaders
from agents.decision.envelope_parts import Unit

RESENT: Final = "came over its bridge before"
"""Start of the reason of a bridge duplicate that the duplicates topic does not take. A second publication would duplicate it."""


Place = tuple[int, int]
"""Partition and offset of a record. All records of a transaction are from one topic."""


class Fate(Enum):
    """Destination of a record."""

    HERE = "here"
    """This lane is its home and gives it a verdict."""
    FORWARDED = "forwarded"
    QUARANTINED = "quarantined"
    LATER = "later"
    """It belongs to the next transaction."""


class Item(msgspec.Struct, gc=False):
    """A record and the results of the passes of :class:`agents.decision.decide.Path`.

    The Python path makes one for each record. A msgspec struct takes a quarter of the time of a dataclass.
    """

    record: Record
    source: bytes
    """Value of ``_RF_SOURCE``."""
    id: bytes | None
    """Encoded duplicate ID."""
    group: bytes | None
    """Group of the record; for an envelope its key."""
    lead: bytes | None
    """Key of the home of a record without a group, in the form of an encoded ID."""
    partition: int
    """Partition of the input or forward topic that the record was read from."""
    unit: Unit | None = None
    """Parts of an envelope; None if it is not an envelope or not opened."""
    hop: BridgeHeaders | None = None
    """Bridge headers of the record."""
    resent: bool = False
    """Whether its hop shows that it is a duplicate."""
    home: int = -1
    """Lane that the record is forwarded to."""
    reason: str = ""
    """Reason for which the record is refused."""
    original: bytes | None = None
    """Source of a duplicate's original, if duplicates are diverted."""
    fate: Fate = Fate.HERE

    @property
    def place(self) -> Place:
        """Partition and offset of the record."""
        return self.partition, self.record.offset

    def refuse(self, reason: str) -> None:
        """Send the record to quarantine. The first reason counts.

        A record from a bridge still goes to its home, where the hop memory stores its hop.
        """
        self.reason = self.reason or reason
        if self.hop is None:
            self.fate = Fate.QUARANTINED

    def cross(self, hop: BridgeHeaders) -> None:
        """Store the bridge headers. If the record's own ID does not count, its hop decides its home, so that repeated sends meet."""
        self.hop = hop
        if self.lead is None or hop.ids_ignored:
            self.lead = hop.lead

    def open(self, unit: Unit, lead: bytes | None = None) -> None:
        """Store the parts of an envelope. ``lead`` decides the home of an envelope without key and ID."""
        self.unit = unit
        self.lead = lead or self.lead

    def send_home(self, home: int) -> None:
        """Forward the record to its home lane. A refused record goes to quarantine instead."""
        self.home = home
        self.fate = Fate.QUARANTINED if self.reason else Fate.FORWARDED

    def postpone(self) -> None:
        """Leave the record to the next transaction."""
        self.fate = Fate.LATER

    def set_arrival(self, *, known: bool) -> None:
        """Store the hop memory's answer. A repeated refused record is a duplicate, unless the duplicates topic does not take it."""
        self.resent = known and not self.reason.startswith(RESENT)
        if self.reason and not self.resent:
            self.fate = Fate.QUARANTINED

    def name_original(self, source: bytes | None) -> None:
        """Store the source of the original; None = it is no longer known."""
        self.original = source

    @property
    def checks_ids(self) -> bool:
        """Whether the record's own IDs count. A bridge may state that they are ignored."""
        return self.hop is None or not self.hop.ids_ignored

    def ids(self) -> Sequence[bytes]:
        """Return the encoded IDs to check: none if the hop decided, or if the bridge states that IDs are ignored."""
        if self.resent or not self.checks_ids:
            return ()
        if self.unit is not None:
            return self.unit.ids
        return () if self.id is None else (self.id,)

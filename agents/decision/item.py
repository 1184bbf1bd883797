"""One record of a batch on its way through a lane, with its fate. Pure."""

from collections.abc import Sequence
from enum import Enum
from typing import Final

import msgspec

from agents.batch.batch import Record
from agents.decision.bridge_headers import BridgeHeaders
from agents.decision.envelope_parts import Unit

RESENT: Final = "came over its bridge before"
"""Begins the reason of a duplicate by its hop that the duplicates topic does not take. Published again it would come twice."""


Place = tuple[int, int]
"""Partition and offset of a record; all records of a transaction are of one topic."""


class Fate(Enum):
    """Destination of a record."""

    HERE = "here"
    """At home in this lane: it gets a verdict."""
    FORWARDED = "forwarded"
    QUARANTINED = "quarantined"
    LATER = "later"
    """It belongs to the next transaction."""


class Item(msgspec.Struct, gc=False):
    """A record and what the passes of :class:`agents.decision.decide.Path` find out about it.

    A struct of msgspec is made four times as fast as a dataclass, and there is one for each record of the Python path.
    """

    record: Record
    source: bytes
    """Value of ``_RF_SOURCE``."""
    id: bytes | None
    """Encoded duplicate ID."""
    group: bytes | None
    """The group of an envelope is its key."""
    lead: bytes | None
    """Decides the home of a record without a group; in the form of an encoded ID."""
    partition: int
    """The partition that it was read from: of the input, or of the forward topic."""
    unit: Unit | None = None
    """The parts of an envelope; None = not an envelope, or not opened."""
    hop: BridgeHeaders | None = None
    """The step over a bridge."""
    resent: bool = False
    """A duplicate by its hop."""
    home: int = -1
    """The lane that it is forwarded to."""
    reason: str = ""
    """Why it is refused."""
    original: bytes | None = None
    """Source of a duplicate's original, where duplicates are diverted."""
    fate: Fate = Fate.HERE

    @property
    def place(self) -> Place:
        """Partition and offset of the record."""
        return self.partition, self.record.offset

    def refuse(self, reason: str) -> None:
        """Send it to quarantine; the first reason counts.

        A record that came over a bridge still goes to its home, where the hop memory notes it.
        """
        self.reason = self.reason or reason
        if self.hop is None:
            self.fate = Fate.QUARANTINED

    def cross(self, hop: BridgeHeaders) -> None:
        """Note that it came over a bridge. If its own ID does not count, its hop decides its home, so both sends of it meet."""
        self.hop = hop
        if self.lead is None or hop.ids_ignored:
            self.lead = hop.lead

    def open(self, unit: Unit, lead: bytes | None = None) -> None:
        """Note that it is an envelope of this unit. Without key and ID of its own, ``lead`` decides its home."""
        self.unit = unit
        self.lead = lead or self.lead

    def send_home(self, home: int) -> None:
        """Another lane is its home; what is refused goes to quarantine instead."""
        self.home = home
        self.fate = Fate.QUARANTINED if self.reason else Fate.FORWARDED

    def postpone(self) -> None:
        """Leave it to the next transaction."""
        self.fate = Fate.LATER

    def note_arrival(self, *, known: bool) -> None:
        """Note what the hop memory knows. A repeated refusal is then a duplicate, unless the duplicates topic refuses it."""
        self.resent = known and not self.reason.startswith(RESENT)
        if self.reason and not self.resent:
            self.fate = Fate.QUARANTINED

    def name_original(self, source: bytes | None) -> None:
        """Name the source of the message that it repeats; None = it is not known any more."""
        self.original = source

    @property
    def checks_ids(self) -> bool:
        """Whether its own IDs count; its bridge may state that they are ignored."""
        return self.hop is None or not self.hop.ids_ignored

    def ids(self) -> Sequence[bytes]:
        """Return the encoded IDs to judge: none if the hop has decided, or its bridge states that they are ignored."""
        if self.resent or not self.checks_ids:
            return ()
        if self.unit is not None:
            return self.unit.ids
        return () if self.id is None else (self.id,)

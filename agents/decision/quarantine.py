"""What of a batch goes to quarantine. Pure.

A record that is refused burns no slot of the ring. But one that came over a bridge has come, and its resend too: it is noted where it is at
home, and once it was noted what is refused of it again is a duplicate.
"""

from collections.abc import Collection, Container, Mapping, Sequence
from itertools import compress
from typing import Any, Final

from agents.batch.batch import Record
from agents.decision import bridge_headers, forwarding

RESENT: Final = "came over its bridge before"
"""Begins the reason of a record that is a duplicate by its hop and does not fit where duplicates go: published again it would come twice."""

Quarantined = tuple[Record, bytes, str]
"""Record, source, reason."""


def without_hop(records: Sequence[Record], refused: Mapping[int, str]) -> dict[int, str]:
    """Those of the refused of which no hop can be noted: they came over no bridge, or say so by what no bridge writes."""
    noted = {
        record.offset
        for record in records
        if refused.get(record.offset, forwarding.MALFORMED) != forwarding.MALFORMED
        and bridge_headers.readable(record)
    }
    return {offset: reason for offset, reason in refused.items() if offset not in noted}


def but_resent(refused: Mapping[int, str], resent: Container[int]) -> dict[int, str]:
    """Those of the refused that are no duplicates by their hop, or that the duplicates topic refuses."""
    return {
        offset: reason
        for offset, reason in refused.items()
        if offset not in resent or reason.startswith(RESENT)
    }


def of_those(
    records: Sequence[Record], sources: Sequence[bytes], refused: Mapping[int, str]
) -> list[Quarantined]:
    """Those of the records that are refused."""
    return [
        (record, source, refused[record.offset])
        for record, source in zip(records, sources, strict=True)
        if record.offset in refused
    ]


def in_order(quarantined: Collection[Quarantined]) -> list[Quarantined]:
    """As they came."""
    return sorted(quarantined, key=lambda each: each[0].offset)


def without(offsets: Container[int], records: Sequence[Record], *lists: Sequence[Any]) -> list[list[Any]]:
    """Lists that run in parallel to the records, without those of the records at these offsets."""
    kept = [record.offset not in offsets for record in records]
    return [list(compress(list_, kept)) for list_ in lists]

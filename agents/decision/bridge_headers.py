"""The headers of a bridge on a record: its hop, the confirmed offset, and whether the record's own ID counts. Pure.

The ID of a hop is apart from the message's own, in a header and in the lane's memory (HornetQ 37.3).
"""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agents.batch.record import RecordContent
from agents.decision.envelope import shown
from ringfence_kafka.protocol import hop, wire_names
from ringfence_kafka.protocol.hop import Hop, Source
from tables.codec import Route
from tables.hops import Arrival

Headers = Sequence[tuple[str, bytes | None]]


class MalformedHopError(Exception):
    """Headers of a bridge that no bridge writes; the text is the reason in quarantine."""


class BridgeHeaders(NamedTuple):
    """A record's step over a bridge."""

    hop: Hop
    lead: bytes
    """By what a record without a group and an ID that counts finds its home, in the form of an encoded ID."""
    confirmed: int
    ids_ignored: bool
    """Its own ID is not looked at, nor those of its parts."""
    kept: Headers
    """Headers that stay on the accepted record."""

    def arrival(self, source: bytes) -> Arrival:
        """As the hop memory judges it; ``source``: the value of ``_RF_SOURCE``."""
        step, offset = self.hop
        return Arrival(_way(step, source[: source.rindex(b"/")]), offset, self.confirmed)


@functools.lru_cache(hop.SOURCES_REMEMBERED)
def _way(source: Source, place: bytes) -> Route:
    """Return the route from a source to ``<topic>/<partition>`` of the input."""
    return Route(source, int(place.rpartition(b"/")[2]))


def read(record: RecordContent) -> BridgeHeaders:
    """Return the step of a record with :data:`ringfence_kafka.protocol.wire_names.HEADER_HOP`.

    The last of repeated headers wins, as in Kafka.

    Raises:
        MalformedHopError: no bridge wrote these headers. Nothing of them may be believed: what they say were confirmed would be dropped.
    """
    headers = dict(record.headers)
    value = headers[wire_names.HEADER_HOP]
    found = hop.decode(value)
    if value is None or found is None:
        raise MalformedHopError(
            f"{wire_names.HEADER_HOP} is {_quoted(value)}: a bridge writes <bridge>/<ID of its source topic>/<partition>/<offset>; "
            "no other producer may set it"
        )
    confirmed = _confirmed(headers, found.offset)
    ignored = wire_names.HEADER_USER_IDS in headers
    if ignored and headers[wire_names.HEADER_USER_IDS] != wire_names.USER_IDS_IGNORED:
        raise MalformedHopError(
            f"{wire_names.HEADER_USER_IDS} is {_quoted(headers[wire_names.HEADER_USER_IDS])}: this version knows "
            f"{wire_names.USER_IDS_IGNORED.decode()}, and none where IDs are checked"
        )
    kept: Headers = ()
    if wire_names.HEADER_HOPS in headers:
        kept = ((wire_names.HEADER_HOPS, headers[wire_names.HEADER_HOPS]),)
    return BridgeHeaders(found, b"\x00" + value, confirmed, ignored, kept)


def _confirmed(headers: Mapping[str, bytes | None], offset: int) -> int:
    if wire_names.HEADER_CONFIRMED not in headers:
        return 0  # nothing is: the memory is a ring
    stated = headers[wire_names.HEADER_CONFIRMED]
    confirmed = hop.decode_offset(stated)
    if confirmed is None:
        raise MalformedHopError(
            f"{wire_names.HEADER_CONFIRMED} is {_quoted(stated)}: a bridge writes an offset; no other producer may set it"
        )
    if confirmed > offset:
        raise MalformedHopError(
            f"{wire_names.HEADER_CONFIRMED} is {confirmed}, and {wire_names.HEADER_HOP} has offset {offset}: a bridge confirms "
            "lower offsets only"
        )
    return confirmed


def _quoted(value: bytes | None) -> str:
    return "null" if value is None else shown(value)


def readable(record: RecordContent) -> bool:
    """Whether it came over a bridge, by headers that a bridge writes."""
    try:
        return any(name == wire_names.HEADER_HOP for name, _ in record.headers) and bool(read(record))
    except MalformedHopError:
        return False

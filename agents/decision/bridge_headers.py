"""Headers that a bridge adds to a record: its hop, the confirmed offset, and whether the record's own ID counts. Pure.

The ID of a hop is separate from the message's own ID, in the headers and in the lane's memory (HornetQ 37.3).
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
    """Bridge headers that no bridge writes. The message is the reason in quarantine."""


class BridgeHeaders(NamedTuple):
    """Bridge headers of one record."""

    hop: Hop
    lead: bytes
    """Key of the home of a record that has no group and no ID that counts, in the form of an encoded ID."""
    confirmed: int
    ids_ignored: bool
    """Whether the IDs of the record and of its parts are ignored."""
    kept: Headers
    """Headers that the accepted record keeps."""

    def arrival(self, source: bytes) -> Arrival:
        """Return the input of the hop memory. ``source``: value of ``_RF_SOURCE``."""
        step, offset = self.hop
        return Arrival(_route(step, source[: source.rindex(b"/")]), offset, self.confirmed)


@functools.lru_cache(hop.SOURCES_REMEMBERED)
def _route(source: Source, place: bytes) -> Route:
    """Return the route from a source to the input partition in ``<topic>/<partition>``."""
    return Route(source, int(place.rpartition(b"/")[2]))


def read_headers(record: RecordContent) -> BridgeHeaders:
    """Read the bridge headers of a record with :data:`ringfence_kafka.protocol.wire_names.HEADER_HOP`.

    Among repeated headers the last one counts, as in Kafka.
    Raises MalformedHopError if no bridge wrote these headers. They are not trusted: a false confirmed offset would discard messages.
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
        return 0  # nothing is confirmed: the memory is a ring
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
    """Return whether the record has valid bridge headers."""
    try:
        return any(name == wire_names.HEADER_HOP for name, _ in record.headers) and bool(read_headers(record))
    except MalformedHopError:
        return False

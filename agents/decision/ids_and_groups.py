"""Finds a message's duplicate ID and its group. Pure; the ring then decides about the ID."""

from collections.abc import Callable, Sequence
from typing import Final

from agents.batch.batch import RecordContent
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.duplicate_id import CLOUDEVENTS_PREFIX, NO_ID, DuplicateIds
from ringfence_kafka.protocol.stored_ids import ID_BYTES_MAX, digest_id, encode_id

Headers = Sequence[tuple[str, bytes | None]]
Found = tuple[list[bytes | None], list[int], list[int]]
"""Encoded duplicate ID of each record, None = no ID; then the indexes of envelopes, and of records that came over a bridge."""

UNIDENTIFIED: Final = (
    f'{NO_ID}: neither the transaction nor a part of it has one (duplicate_id_missing = "quarantine")'
)
"""Reason in quarantine of an envelope without IDs."""


def last_header(headers: Headers, name: str) -> bytes | None:
    """Return the value of a header; None if it is missing or null. Among repeated headers the last one counts, as in Kafka."""
    found = None
    for key, value in headers:
        if key == name:
            found = value
    return found


def is_envelope(record: RecordContent) -> bool:
    """Return whether the record's value lists the parts of a transaction."""
    return any(name == wire_names.HEADER_TRANSACTION for name, _ in record.headers)


def duplicate_ids(records: Sequence[RecordContent], names: Sequence[str]) -> Found:
    """Return the duplicate IDs of messages from their headers.

    The first of ``names`` that has a value counts. A null or empty value is not an ID: otherwise a producer that leaves the field unset
    would lose all its messages but one. IDs are compared as bytes. Among repeated headers the last one counts, as in Kafka.
    """
    ids: list[bytes | None] = []
    envelopes: list[int] = []
    crossed: list[int] = []
    add = ids.append
    first, *others = names
    envelope, hop = wire_names.HEADER_TRANSACTION, wire_names.HEADER_HOP
    for record in records:
        if not record.headers:
            add(None)
            continue
        headers = dict(record.headers)
        found = headers.get(first)
        if not found:
            found = next((value for name in others if (value := headers.get(name))), None)
        if not found:
            add(None)
        elif len(found) <= ID_BYTES_MAX:
            add(b"\x00" + found)  # inlined encode_id(), to avoid a call for each message
        else:
            add(encode_id(found))
        if envelope in headers:
            envelopes.append(len(ids) - 1)
        if hop in headers:
            crossed.append(len(ids) - 1)
    return ids, envelopes, crossed


class IdReader:
    """Reads IDs and groups by the configuration of one address."""

    def __init__(self, address: AddressSettings) -> None:
        self._names = address.id_headers
        self._source = DuplicateIds(address.duplicate_id_from, address.duplicate_id_headers)
        self._group_header = address.group_header
        self._default_group = address.default_group.encode()
        self.ids: Callable[[Sequence[RecordContent]], Found] = self._ids_from_content
        if address.duplicate_id_from == "header" or (
            self._names and not self._names[0].startswith(CLOUDEVENTS_PREFIX)
        ):
            self.ids = self._ids_from_header
        self._forms = address.duplicate_id_from

    def groups(self, records: Sequence[RecordContent]) -> list[bytes | None]:
        """Return the group of each record; None = no group.

        As in Qpid: if an address groups by a header, a message without this header belongs to the default group.
        """
        name = self._group_header
        if not name:
            return [record.key for record in records]
        return [last_header(record.headers, name) or self._default_group for record in records]

    def fault(self, record: RecordContent) -> str:
        """Return which part of its ID a record lacks, as a reason for quarantine; empty if it lacks none."""
        return self._source.fault(record.headers, record.key, record.value)

    def _ids_from_header(self, records: Sequence[RecordContent]) -> Found:
        return duplicate_ids(records, self._names)

    def _ids_from_content(self, records: Sequence[RecordContent]) -> Found:
        if self._forms == "key":
            ids = [encode_id(record.key) if record.key else None for record in records]
        elif self._forms == "value":
            ids = [digest_id(record.value) if record.value else None for record in records]
        else:
            id_of = self._source.id_of
            found = [id_of(record.headers, record.key, record.value) for record in records]
            ids = [None if item is None else encode_id(item) for item in found]
        names = [dict(record.headers) if record.headers else () for record in records]
        envelopes = [number for number, some in enumerate(names) if wire_names.HEADER_TRANSACTION in some]
        return ids, envelopes, [number for number, some in enumerate(names) if wire_names.HEADER_HOP in some]

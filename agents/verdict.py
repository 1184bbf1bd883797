"""Finds a message's duplicate ID and its group. Pure; what is then said of an ID, the ring says."""

from collections.abc import Callable, Sequence

from agents.batch import Record
from ringfence_kafka.config.settings import AddressSettings
from tables.codec import digest_id, encode_id

Headers = Sequence[tuple[str, bytes | None]]


def last_header(headers: Headers, name: str) -> bytes | None:
    """The value of a header; of repeats the last wins, as in Kafka. None = missing or null."""
    found = None
    for key, value in headers:
        if key == name:
            found = value
    return found


def duplicate_id(headers: Headers, names: Sequence[str]) -> bytes | None:
    """The encoded duplicate ID of a message, or None.

    The first of ``names`` that is present with a value counts. A null value is no ID; an empty value is one. IDs are
    bytes and compared as bytes.
    """
    for name in names:
        found = last_header(headers, name)
        if found is not None:
            return encode_id(found)
    return None


class Reader:
    """Reads IDs and groups as one address is configured."""

    def __init__(self, address: AddressSettings) -> None:
        self._names = address.duplicate_id_headers
        self._group_header = address.group_header
        self._default_group = address.default_group.encode()
        self.ids: Callable[[Sequence[Record]], list[bytes | None]] = {
            "header": self._ids_from_header,
            "key": self._ids_from_key,
            "value": self._ids_from_value,
        }[address.duplicate_id_from]
        """The encoded duplicate ID of each record; None = it has none."""

    def groups(self, records: Sequence[Record]) -> list[bytes | None]:
        """The group of each record; None = it has none.

        Qpid: a message without a group identifier, at a queue that groups by a header, is of the default group.
        """
        name = self._group_header
        if not name:
            return [record.key for record in records]
        return [last_header(record.headers, name) or self._default_group for record in records]

    def _ids_from_header(self, records: Sequence[Record]) -> list[bytes | None]:
        names = self._names
        return [duplicate_id(record.headers, names) for record in records]

    def _ids_from_key(self, records: Sequence[Record]) -> list[bytes | None]:
        return [None if record.key is None else encode_id(record.key) for record in records]

    def _ids_from_value(self, records: Sequence[Record]) -> list[bytes | None]:
        return [None if record.value is None else digest_id(record.value) for record in records]

"""Records of an outbox: headers, duplicate ID and home of a message."""

import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ringfence_client.handlers.effects import Headers, encoded, encoded_headers
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.duplicate_id import DuplicateIds
from ringfence_kafka.protocol.key_hash import key_hash
from ringfence_kafka.protocol.stored_ids import digest_id, encode_id

Content = bytes | str
"""Bytes, or a text, which stands for its UTF-8 bytes."""
GivenHeaders = Mapping[str, Content] | Sequence[tuple[str, Content]]
"""A dict, or pairs of name and value."""


class OutgoingMessage(NamedTuple):
    """A record, and the facts that its lane will find in it."""

    value: bytes | None
    key: bytes | None
    headers: Headers
    id: bytes | None
    """Stored form of the duplicate ID; None = no ID."""
    group: bytes | None
    """Group of the message; None = no group, or a transaction, whose parts have their own groups."""
    home: bytes | None
    """Bytes whose hash chooses the home: the group, or without one the ID. None = the message stays in its partition."""
    transaction: bool
    sender: bytes
    """Name of the outbox; empty = no name."""


class Composer:
    """Composes the records of one address."""

    def __init__(self, address: AddressSettings, sender: str) -> None:
        """Prepare a composer. ``sender``: name in the messages' headers; empty = no header."""
        self._address = address
        self._ids = DuplicateIds(address.duplicate_id_from, address.duplicate_id_headers)
        self._sender = sender.encode()

    def compose(
        self,
        value: Content | None,
        duplicate_id: Content | None,
        key: Content | None,
        headers: GivenHeaders,
    ) -> OutgoingMessage:
        """Return the record of a message. A ValueError says why it cannot be sent, or its verdict would be impossible to find."""
        if value is None and key is None:
            raise ValueError(
                "the message has neither a value nor a key, so it cannot be sent: give one of them"
            )
        written = encoded_headers(headers)
        if duplicate_id is not None:
            written.append((self._id_header(), encoded(duplicate_id, "duplicate_id")))
        if self._sender:
            written.append((wire_names.HEADER_SENDER, self._sender))
        raw, raw_key = encoded(value, "value"), encoded(key, "key")
        found = self._stored_id(written, raw_key, raw)
        transaction = any(name == wire_names.HEADER_TRANSACTION for name, _ in written)
        if transaction and found is None:
            raise ValueError(
                "the transaction has no ID of its own, by which its verdict is found: write envelope(parts, duplicate_id)"
            )
        group = raw_key
        if self._address.group_header and not transaction:
            group = dict(written).get(self._address.group_header) or self._address.default_group.encode()
        home = found[1:] if group is None and found is not None else group
        group = None if transaction else group
        return OutgoingMessage(raw, raw_key, written, found, group, home, transaction, self._sender)

    def partition(self, home: bytes, partitions: int) -> int:
        """Return the home partition of a group or an ID."""
        number = key_hash(home) if self._address.partitioner == "murmur2" else zlib.crc32(home)
        return number % partitions

    def _id_header(self) -> str:
        if not self._address.id_headers:
            forms = self._address.duplicate_id_from
            made = forms if isinstance(forms, str) else ", ".join(forms)
            raise ValueError(
                f"{self._address.name} takes IDs from the {made} of a message: leave duplicate_id out"
            )
        return self._address.id_headers[0]

    def _stored_id(self, headers: Headers, key: bytes | None, value: bytes | None) -> bytes | None:
        if self._address.duplicate_id_from == "value":
            return digest_id(value) if value else None
        found = self._ids.id_of(headers, key, value)
        return None if found is None else encode_id(found)

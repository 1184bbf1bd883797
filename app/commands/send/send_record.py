"""Composes the record of a line of ``ringfence send``, and chooses its partition."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agents.decision.envelope_parts import Units
from agents.decision.ids_and_groups import UNIDENTIFIED, IdReader
from agents.decision.partitioner import Partitioner
from agents.rules.lane_rules import as_written
from app.commands.send.json_lines import Line, PartLine, TransactionLine, check_id
from ringfence_client.handlers.envelope import Part, envelope
from ringfence_kafka.config.settings import AddressSettings

Headers = list[tuple[str, bytes | None]]


class Outgoing(NamedTuple):
    """Record for a producer."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int = -1
    """-1 = by its key, or any partition without a key."""
    has_id: bool = False
    """Whether a resend of this record is recognized."""


class Composer:
    """Composes the records of one address."""

    def __init__(self, address: AddressSettings, others: Iterable[AddressSettings], partitions: int) -> None:
        """Take the input's ``partitions``, and ``others``: addresses that transactions may have parts for."""
        others = tuple(others)
        self._address = address
        self._targets = {other.name: other for other in others}
        self._home = Partitioner(partitions, address.partitioner)
        self._reader = IdReader(address)
        self._units = Units(address, others)

    def compose(self, line: Line | TransactionLine) -> Outgoing:
        """Return the record of a line.

        Raises:
            ValueError: Workers would not accept it. The message names the part.
        """
        return self._transaction(line) if isinstance(line, TransactionLine) else self._message(line)

    def _message(self, line: Line) -> Outgoing:
        key, headers = _key_and_headers(line, self._address)
        record = Outgoing(key, line.payload, headers)
        (own_id,), _, _ = self._reader.ids([record])
        return self._placed(record, own_id, self._reader.fault(record) if own_id is None else "")

    def _placed(self, record: Outgoing, own_id: bytes | None, fault: str) -> Outgoing:
        """Return a record with its partition. ``fault``: why it has no ID, if it has none."""
        if own_id is None:
            if self._address.duplicate_id_missing == "quarantine":
                raise ValueError(f"{fault}: give it one; workers would not accept this line")
            return record
        # a resend must reach the same lane to be recognized
        partition = self._home[own_id[1:]] if record.key is None else -1
        return record._replace(partition=partition, has_id=True)

    def _transaction(self, line: TransactionLine) -> Outgoing:
        """Compose a transaction, and read it as a worker does, to check it and to find its IDs."""
        parts = []
        for number, part in enumerate(line.parts, 1):
            try:
                parts.append(self._part(part))
            except ValueError as error:
                raise ValueError(f"part {number}/{len(line.parts)}: {error}") from error
        value, own = envelope(parts, line.id, id_header=_id_header(line, self._address))
        headers: Headers = [*_encoded(line.headers), *own]
        key = None if line.group is None else line.group.encode()
        record = Outgoing(key, value, headers)
        (own_id,), _, _ = self._reader.ids([record])
        return self._placed(record, self._units.open(record, own_id).lead, UNIDENTIFIED)

    def _part(self, line: PartLine) -> Part:
        # for an address that is not listed, any rules do, because the check of the whole refuses it
        address = self._targets.get(line.address or "", self._address)
        check_id(line, address.id_headers)
        key, headers = _key_and_headers(line, address)
        return Part(line.payload, key, line.address, headers)


def _key_and_headers(line: Line, address: AddressSettings) -> tuple[bytes | None, Headers]:
    headers = _encoded(line.headers)
    key = None if line.group is None else line.group.encode()
    if address.group_header and key is not None:
        groups = [content for name, content in headers if name == address.group_header]
        if any(content != key for content in groups):
            raise ValueError(
                f"headers: {address.group_header!r} is a group beside group = {line.group!r}: give one of them"
            )
        if not groups:
            headers.append((address.group_header, key))
    if line.id is not None:
        headers.append((_id_header(line, address), line.id.encode()))
    return key, headers


def _id_header(line: Line | TransactionLine, address: AddressSettings) -> str:
    """Return the header for "id"."""
    if not address.id_headers and line.id:
        raise ValueError(
            f"id = {line.id!r} has no effect, as {address.name} has duplicate_id_from = {as_written(address.duplicate_id_from)}: leave it out, "
            "and give what the ID is made of"
        )
    return (address.id_headers or address.duplicate_id_headers)[0]


def _encoded(headers: Sequence[tuple[str, str | None]]) -> Headers:
    return [(name, None if content is None else content.encode()) for name, content in headers]

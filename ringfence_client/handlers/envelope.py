"""Envelopes: a transaction as one record whose value lists its parts. All of them are accepted, or none. Pure.

This needs no Kafka client. Any producer can send the result, under a key that the caller chooses.
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from ringfence_kafka.protocol import wire_names

DUPLICATE_ID_HEADER: Final = "_AMQ_DUPL_ID"

Content = bytes | str | None
"""Bytes, or a text, which stands for its UTF-8 bytes; None = null."""


class Part(NamedTuple):
    """One message of a transaction. It is accepted as the same message sent alone would be."""

    value: Content
    key: Content = None
    address: str | None = None
    """None = the address that the envelope is sent to."""
    headers: Sequence[tuple[str, Content]] = ()
    """Headers in order; names may repeat. A part may have its own duplicate ID here."""


class Envelope(NamedTuple):
    """A transaction of a producer, as one record."""

    value: bytes
    headers: list[tuple[str, bytes]]


def envelope(
    parts: Iterable[Part], duplicate_id: bytes | str | None = None, *, id_header: str = DUPLICATE_ID_HEADER
) -> Envelope:
    """Return the value and the headers of a transaction's record.

    Send both under a key, and retry with the same ones under the same key: the key determines which lane judges the transaction.

    Args:
        parts: At least one part, and at most :data:`ringfence_kafka.protocol.wire_names.TRANSACTION_PARTS_MAX`.
        duplicate_id: ID of the whole transaction. None or empty = only parts have IDs, in their headers. A transaction without any ID is
            accepted each time that it is sent.
        id_header: The address's header of duplicate IDs (``duplicate_id_headers``).

    Raises:
        ValueError: A worker would refuse the transaction; the text names the part as ``i/N``.
        TypeError: A value is neither bytes nor text.
    """
    listed = list(parts)
    if not listed:
        raise ValueError("no parts: a transaction has at least one")
    if len(listed) > wire_names.TRANSACTION_PARTS_MAX:
        raise ValueError(
            f"{len(listed):,} parts: at most {wire_names.TRANSACTION_PARTS_MAX:,}; make several transactions of them"
        )
    written = []
    for number, part in enumerate(listed, 1):
        try:
            written.append(_part(part))
        except (TypeError, ValueError) as error:
            raise type(error)(f"part {number}/{len(listed)}: {error}") from None
    headers = [(wire_names.HEADER_TRANSACTION, wire_names.TRANSACTION_FORM)]
    if duplicate_id is not None:
        _check_name(id_header, "id_header")
        if identity := _bytes(duplicate_id, "duplicate_id"):
            headers.append((id_header, identity))
    value = json.dumps({"parts": written}, ensure_ascii=False, separators=(",", ":")).encode()
    return Envelope(value, headers)


def _part(part: object) -> dict[str, Any]:
    """Encode a part with its names in alphabetical order, which any language can do."""
    if not isinstance(part, Part):
        raise TypeError(
            f"it is of type {type(part).__name__}, not a Part: write Part(value, key=…, address=…, headers=[…])"
        )
    written: dict[str, Any] = {}
    if part.address is not None:
        if not isinstance(part.address, str):
            raise TypeError(
                f"address is of type {type(part.address).__name__}: give the name of one, or None"
            )
        if not part.address:
            raise ValueError("address is empty: give the name of one, or leave it out for the envelope's own")
        _bytes(part.address, "address")
        written["address"] = part.address
    if isinstance(part.headers, str | bytes) or not isinstance(part.headers, Sequence):
        raise TypeError(
            f"headers is of type {type(part.headers).__name__}: give a list of (name, value) pairs, in their order"
        )
    if part.headers:
        written["headers"] = [_header(header) for header in part.headers]
    _write(written, "key", part.key)
    _write(written, "value", part.value)
    return written


def _header(pair: object) -> dict[str, Any]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"the header {pair!r} is not a pair of a name and a value")
    name, value = pair
    _check_name(name, "the name of a header")
    written: dict[str, Any] = {"name": name}
    _write(written, "value", value, f"the header {name!r}")
    return written


def _check_name(name: object, what: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{what} is of type {type(name).__name__}: give a string")
    _bytes(name, what)
    if name.startswith(wire_names.RESERVED_PREFIX):
        raise ValueError(
            f"the header {name!r} begins with {wire_names.RESERVED_PREFIX}, which is Ringfence's own: rename it"
        )


def _write(written: dict[str, Any], name: str, content: object, what: str = "") -> None:
    """Write UTF-8 content as a readable string, and other content in base64. Null content is left out."""
    if content is None:
        return
    raw = _bytes(content, what or name)
    try:
        written[name] = raw.decode()
    except UnicodeDecodeError:
        written[f"{name}_base64"] = b64encode(raw).decode()


def _bytes(content: object, what: str) -> bytes:
    if isinstance(content, bytes):
        return content
    if not isinstance(content, str):
        raise TypeError(f"{what} is of type {type(content).__name__}: give bytes, or a string")
    try:
        return content.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{what} holds half of a surrogate pair, which is not a character: give the bytes that you mean"
        ) from None

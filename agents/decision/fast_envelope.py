"""Fast decoder for usual envelopes; :mod:`agents.decision.envelope` decodes all others. Pure.

msgspec does not detect a repeated name in an object. The decoder therefore counts quotation marks: each name and each string has two.
"""

from base64 import b64decode
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from ringfence_kafka.protocol import wire_names

Headers = Sequence[tuple[str, bytes | None]]
_Text = str | UnsetType | None
"""UNSET = the name is absent."""


class Part(msgspec.Struct, gc=False):
    """One message of a transaction, as its producer wrote it."""

    address: str | None
    """Address of the part; None = the envelope's own."""
    key: bytes | None
    value: bytes | None
    headers: Headers


class _Header(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str
    value: _Text = UNSET
    value_base64: _Text = UNSET


class _Part(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    address: _Text = UNSET
    key: _Text = UNSET
    value: _Text = UNSET
    key_base64: _Text = UNSET
    value_base64: _Text = UNSET
    headers: list[_Header] | UnsetType | None = UNSET


class _Envelope(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    parts: list[_Part]


class _BarePart(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    key: str
    value: str
    address: str | None = None


class _BareEnvelope(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    parts: list[_BarePart]


_decode: Final = msgspec.json.Decoder(_Envelope).decode
_decode_bare: Final = msgspec.json.Decoder(_BareEnvelope).decode
BASE64_UNIT: Final = 4
"""The length of base64 text with its padding is a multiple of this, in characters."""
_QUOTES: Final = 2
"""Quotation marks of one string or name."""
_BARE_QUOTES: Final = 4 * _QUOTES
"""Quotation marks of a part with only key and value, including their names."""


class _DoubtError(ValueError):
    """Only the complete decoder can judge this envelope."""


def read_parts(value: bytes) -> list[Part] | None:
    """Return the parts of an envelope in order; None if it is invalid or unusual."""
    quotes = _quotes(value)
    try:
        parts = _decode(value).parts
        if not 0 < len(parts) <= wire_names.TRANSACTION_PARTS_MAX:
            return None
        found: list[Part] = []
        strings = 1  # "parts"
        for part in parts:
            address, headers = part.address, part.headers
            keys, key = _content(part.key, part.key_base64)
            values, value_of = _content(part.value, part.value_base64)
            strings += keys + values
            if address is UNSET:
                address = None
            else:
                strings += 1 if address is None else 2
            listed: Headers = ()
            if headers is not UNSET:
                more, listed = _list(headers or ())
                strings += 1 + more
            if address == "":
                raise _DoubtError
            found.append(Part(address, key, value_of, listed))
    except (msgspec.MsgspecError, ValueError, RecursionError):  # invalid base64 or UTF-8 is a ValueError
        return None
    return found if quotes == _QUOTES * strings else None


BareParts = tuple[list[bytes], list[bytes], list[str | None]]
"""Keys, values and addresses of parts, in parallel lists. Address None = the envelope's own; an empty list = all are."""


def read_bare(value: bytes) -> BareParts | None:
    """Return the parts if each has only key and value as text and perhaps an address; None otherwise.

    One loop without an object for each part: most of the time of a transaction is spent here.
    """
    keys: list[bytes] = []
    values: list[bytes] = []
    named = 0
    try:
        parts = _decode_bare(value).parts
        for part in parts:
            keys.append(part.key.encode())
            values.append(part.value.encode())
            if part.address is not None:
                named += 1
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    count = len(keys)
    quotes = _QUOTES + _BARE_QUOTES * count + 2 * _QUOTES * named
    # Repeated names and escaped quotation marks only increase the first count.
    if value.count(b'"') != quotes and _quotes(value) != quotes:
        return None
    if not 0 < count <= wire_names.TRANSACTION_PARTS_MAX:
        return None
    addresses = [part.address for part in parts] if named else []
    return None if "" in addresses else (keys, values, addresses)


def _quotes(value: bytes) -> int:
    """Return the number of quotation marks around names and strings; -1 if only a parser can tell."""
    quotes = value.count(b'"')
    if b"\\" not in value:
        return quotes
    if b"\\\\" in value:  # a parser must find out which marks behind them are escaped
        return -1
    return quotes - value.count(b'\\"')


def _list(headers: Iterable[_Header]) -> tuple[int, Headers]:
    """Return the number of JSON strings in the headers, and the headers."""
    strings = 0
    listed = []
    for header in headers:
        if header.name.startswith(wire_names.RESERVED_PREFIX):
            raise _DoubtError
        values, value = _content(header.value, header.value_base64)
        strings += 2 + values
        listed.append((header.name, value))
    return strings, tuple(listed)


def _content(text: _Text, encoded: _Text) -> tuple[int, bytes | None]:
    """Return the number of JSON strings in the two spellings of a field, and its bytes."""
    if encoded is UNSET:
        if isinstance(text, str):  # the usual case
            return 2, text.encode()
        return (0 if text is UNSET else 1), None
    if encoded is None:
        strings, found = _content(text, UNSET)
        return 1 + strings, found
    if isinstance(text, str):
        raise _DoubtError
    if len(encoded) % BASE64_UNIT:
        raise _DoubtError
    return (2 if text is UNSET else 3), b64decode(encoded, validate=True)

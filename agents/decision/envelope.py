"""Decodes envelopes: the value of a record lists the parts of a transaction as JSON. Pure; ``docs/transactions.md`` has the format.

The grammar is closed. An envelope with anything else is refused as a whole, so that no part is read in a way its producer did not intend.
"""

import json
from base64 import b64decode
from typing import Any, Final, NamedTuple, NoReturn

from agents.decision import fast_envelope
from agents.decision.fast_envelope import BASE64_UNIT, BareParts, Headers, Part
from ringfence_kafka.protocol import wire_names

__all__ = ["PARTS_MAX", "MalformedEnvelopeError", "Part", "decode", "decode_any", "shown"]

PARTS_MAX: Final = wire_names.TRANSACTION_PARTS_MAX

_PART: Final = frozenset({"address", "key", "key_base64", "value", "value_base64", "headers"})
_HEADER: Final = frozenset({"name", "value", "value_base64"})
_SHOWN_MAX: Final = 60
"""Maximum number of characters of a found text that an error quotes."""


class MalformedEnvelopeError(ValueError):
    """The value is not a valid envelope. The message names the problem, and the part as ``i/N``."""


def decode(form: bytes, value: bytes | None) -> list[Part]:
    """Return the parts of an envelope in order, at least one. Raises MalformedEnvelopeError if it is not valid.

    ``form``: value of :data:`ringfence_kafka.protocol.wire_names.HEADER_TRANSACTION`; ``value``: value of the record.
    """
    if form != wire_names.TRANSACTION_FORM:
        _refuse(
            f"{wire_names.HEADER_TRANSACTION} is {shown(form)}: this version reads {wire_names.TRANSACTION_FORM.decode()}"
        )
    usual = None if value is None else fast_envelope.read_parts(value)
    return decode_any(value) if usual is None else usual


def decode_bare(form: bytes, value: bytes | None) -> BareParts | None:
    """Return parts that have only a key, a value and perhaps an address; None = call :func:`decode`. Never raises."""
    return None if value is None or form != wire_names.TRANSACTION_FORM else fast_envelope.read_bare(value)


def decode_any(value: bytes | None) -> list[Part]:
    """Decode a value with the complete grammar. Raises MalformedEnvelopeError if it is not a valid envelope."""
    parts = _listed(value)
    decoded: list[Part] = []
    try:
        for part in parts:
            decoded.append(_part(part))  # noqa: PERF401 - which one it was is needed
    except MalformedEnvelopeError as error:
        raise MalformedEnvelopeError(f"part {len(decoded) + 1}/{len(parts)}: {error}") from None
    return decoded


def _listed(value: bytes | None) -> list[Any]:
    """Return the elements of "parts": between 1 and :data:`PARTS_MAX`."""
    document = _document(value)
    if type(document) is not dict or "parts" not in document:
        _refuse_object(document, 'its value is not a JSON object with "parts"')
    if len(document) > 1:
        _refuse(f'unknown name {shown(min(document.keys() - {"parts"}))} beside "parts"')
    parts = document["parts"]
    if not isinstance(parts, list) or not parts:
        _refuse('"parts" is empty' if parts == [] else '"parts" is not a list')
    if len(parts) > PARTS_MAX:
        _refuse(f'"parts" has {len(parts):,} of them: at most {PARTS_MAX:,}')
    return parts


def _document(value: bytes | None) -> Any:
    if value is None:
        _refuse("it has no value")
    try:
        return _DECODER.decode(value.decode())
    except UnicodeDecodeError as error:
        _refuse(f"its value is not UTF-8 (byte {error.start})")
    except RecursionError:
        _refuse("its value is nested too deeply")
    except ValueError as error:
        _refuse(f"its value is not JSON: {error}")


def _part(part: Any) -> Part:
    if type(part) is not dict:
        _refuse_object(part, "it is not a JSON object")
    if not part.keys() <= _PART:
        _refuse(f"unknown name {shown(min(part.keys() - _PART))}: known are {', '.join(sorted(_PART))}")
    get = part.get
    address = get("address")
    if address is not None and not (isinstance(address, str) and address):
        _refuse('"address" is not the name of one')
    listed = get("headers")
    return Part(
        address,
        _bytes(part, "key", "key_base64"),
        _bytes(part, "value", "value_base64"),
        () if listed is None else _headers(listed),
    )


def _headers(listed: Any) -> Headers:
    if type(listed) is not list:
        _refuse('"headers" is not a list')
    found = []
    for item in listed:
        if type(item) is not dict:
            _refuse_object(item, "a header is not a JSON object")
        if not item.keys() <= _HEADER:
            _refuse(
                f"unknown name {shown(min(item.keys() - _HEADER))} in a header: known are {', '.join(sorted(_HEADER))}"
            )
        name = item.get("name")
        if type(name) is not str:
            _refuse('a header has no "name"' if name is None else 'the "name" of a header is not a string')
        if name.startswith(wire_names.RESERVED_PREFIX):
            _refuse(
                f"the header {shown(name)} begins with {wire_names.RESERVED_PREFIX}, which is Ringfence's own"
            )
        _utf8(name, "the name of a header")
        found.append((name, _bytes(item, "value", "value_base64")))
    return tuple(found)


def _bytes(holder: dict[str, Any], name: str, name_base64: str) -> bytes | None:
    """Return the bytes of a field in either spelling; None if both are absent."""
    text = holder.get(name)
    encoded = holder.get(name_base64)
    if encoded is None:
        if text is None:
            return None
        if type(text) is not str:
            _refuse(
                f'"{name}" is not a string: write other values as the text that consumers expect, or as {name_base64}'
            )
        return _utf8(text, f'"{name}"')
    if text is not None:
        _refuse(f'it has both "{name}" and "{name_base64}"')
    if type(encoded) is not str:
        _refuse(f'"{name_base64}" is not a string')
    if len(encoded) % BASE64_UNIT:  # Python accepts extra padding, other languages do not
        _refuse(
            f'"{name_base64}" is not base64: with its padding it has {len(encoded)} characters, not a '
            f"multiple of {BASE64_UNIT}"
        )
    try:
        return b64decode(encoded, validate=True)
    except ValueError as error:
        _refuse(f'"{name_base64}" is not base64: {error}')


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        _refuse(
            f"{what} holds half of a surrogate pair, which is not a character: use the base64 form for "
            "other bytes"
        )


class _RepeatedName(NamedTuple):
    """Stands for an object with a repeated name. JSON does not define which of the values counts.

    The object is refused when it is used, so that the error names the part.
    """

    name: str


def _refuse_object(found: Any, otherwise: str) -> NoReturn:
    if isinstance(found, _RepeatedName):
        _refuse(f"the name {shown(found.name)} occurs twice in one object")
    _refuse(otherwise)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _RepeatedName:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    names = [name for name, _ in pairs]
    return _RepeatedName(next(name for name in names if names.count(name) > 1))


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_constant=_constant,
    # The grammar has no numbers. Python raises an error of its own for numbers with thousands of digits.
    parse_int=lambda _: 0,
)


def _refuse(reason: str) -> NoReturn:
    raise MalformedEnvelopeError(reason)


def shown(found: str | bytes) -> str:
    """Quote a found text for an error. Long texts are cut, because a reason must fit into a header."""
    text = repr(found.decode(errors="backslashreplace") if isinstance(found, bytes) else found)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"

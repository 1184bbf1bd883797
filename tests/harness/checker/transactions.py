"""Read envelopes, and judge transactions: TORN. The code is its own, written after the page that describes the format."""

import base64
import binascii
import json
from collections.abc import Hashable, Mapping
from typing import Any, Final, NamedTuple

from tests.harness.history import History, Record, Target

FORM: Final = b"json/1"
HEADER: Final = "_RF_TX"
PLACE: Final = "_RF_TX_PART"
PARTS_MAX: Final = 10_000
_RESERVED: Final = "_RF_"
_TEXTS: Final = ("key", "value")


class Foreign(NamedTuple):
    """An ID of another address; it is not this address's even if the bytes are equal."""

    address: str
    id: bytes


class Part(NamedTuple):
    """A message of a transaction, and the record that must be accepted for it."""

    message: Record
    """The message as it would stand in its address's input if it were sent alone, at the envelope's place and time."""
    target: str
    group: bytes | None
    id: Hashable
    """None = it has no ID."""


class MalformedError(Exception):
    """The record belongs into quarantine."""


def is_envelope(record: Record) -> bool:
    """Whether a record calls itself an envelope; a null value of the header counts too."""
    return any(name == HEADER for name, _ in record.headers)


def read(history: History, record: Record) -> list[Part]:
    """Return the parts of an envelope. Raises MalformedError if it has none that could be accepted."""
    if record.header(HEADER) != FORM:
        raise MalformedError("its form")
    try:
        document = json.loads(
            (record.value or b"").decode(), object_pairs_hook=_names, parse_constant=_refuse
        )
    except (ValueError, RecursionError) as error:
        raise MalformedError(str(error)) from None
    listed = _only(document, {"parts"}).get("parts")
    if not isinstance(listed, list) or not 1 <= len(listed) <= PARTS_MAX:
        raise MalformedError("its parts")
    targets = history.targets
    return [_part(history.input_topic, targets, record, item) for item in listed]


def _part(own: str, targets: Mapping[str, Target], envelope: Record, part: Any) -> Part:
    _only(part, {"address", "headers", "key", "key_base64", "value", "value_base64"})
    address = part.get("address")
    address = own if address is None else address
    if not isinstance(address, str) or address not in targets:
        raise MalformedError(f"address {address!r}")
    listed = part.get("headers")
    if not isinstance(listed, list | None):
        raise MalformedError("headers")
    headers = tuple(_header(item) for item in listed or [])
    key, value = (_bytes(part, text) for text in _TEXTS)
    message = envelope._replace(key=key, value=value, headers=headers)
    target = targets[address]
    found = target.id_of(message)
    known: Hashable = found if found is None or address == own else Foreign(address, found)
    return Part(message, target.topic, target.group_of(message), known)


def _header(header: Any) -> tuple[str, bytes | None]:
    _only(header, {"name", "value", "value_base64"})
    name = header.get("name")
    if not isinstance(name, str) or name.startswith(_RESERVED):
        raise MalformedError("name of a header")
    _encoded(name)
    return name, _bytes(header, "value")


def _bytes(holder: dict[str, Any], name: str) -> bytes | None:
    text, binary = holder.get(name), holder.get(f"{name}_base64")
    if not isinstance(text, str | None) or not isinstance(binary, str | None) or None not in {text, binary}:
        raise MalformedError(name)
    if binary is None:
        return None if text is None else _encoded(text)
    try:
        return base64.b64decode(binary, validate=True)
    except (binascii.Error, ValueError):
        raise MalformedError(name) from None


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise MalformedError("half a character") from None


def _only(found: Any, names: set[str]) -> dict[str, Any]:
    if not isinstance(found, dict) or not found.keys() <= names:
        raise MalformedError("unknown names")
    return found


def _names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name twice")
    return dict(pairs)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def number_of(output: Record) -> tuple[int, int] | None:
    """Return the number of the part and the number of all parts that an accepted record states; None = nothing readable."""
    number, _, count = (output.header(PLACE) or b"").partition(b"/")
    if not (number.isdigit() and count.isdigit() and len(count) < 6) or not 1 <= int(number) <= int(count):
        return None
    return int(number), int(count)

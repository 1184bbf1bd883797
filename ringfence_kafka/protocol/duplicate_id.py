"""Duplicate IDs of messages, by the forms that a configuration names: header, key, value, a place in JSON, or several of them. Pure."""

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from ringfence_kafka.protocol import wire_names

Forms = str | tuple[str, ...]
"""One form, or the forms of several parts that are the ID only together."""
Headers = Sequence[tuple[str, bytes | None]]

PARTS_MAX: Final = 8
STRUCTURED_HEADER: Final = "content-type"
STRUCTURED_TYPE: Final = b"application/cloudevents+json"
"""A record whose content type begins so is a CloudEvent in structured mode: its attributes are members of its value."""
CLOUDEVENTS_PREFIX: Final = "ce_"
_HEADER: Final = "header:"
_POINTER: Final = "value:"
_ALLOWED: Final = "must be 'header', 'key', 'value', 'header:NAME', 'value:/json/pointer', or a list of these without 'header'"
_BAD_ESCAPE: Final = re.compile(r"~(?![01])")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_LEVEL: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[msgspec.Raw])
_TEXT: Final = msgspec.json.Decoder(str)
_UNREAD: Final = object()


class Part(NamedTuple):
    """One part of a duplicate ID."""

    form: str
    names: tuple[str, ...] = ()
    """Headers; the first that has a value counts."""
    tokens: tuple[str, ...] = ()
    """Tokens of a JSON pointer (RFC 6901). For a header of CloudEvents: the attribute in a value of structured mode."""


def checked_forms(given: object) -> Forms:
    """Return the forms as they are kept: a list of one is its only form.

    Raises:
        ValueError: they cannot be read.
    """
    forms = given if isinstance(given, list | tuple) else (given,)
    if not 1 <= len(forms) <= PARTS_MAX:
        raise ValueError(f"a list has 1 to {PARTS_MAX} forms: name those that are unique together")
    for form in forms:
        _require_form(form)
    if isinstance(given, list | tuple) and "header" in forms:
        raise ValueError("'header' cannot be in a list: name each header, as in 'header:ce_id'")
    if repeated := next((form for form in forms if forms.count(form) > 1), None):
        raise ValueError(f"{repeated!r} occurs twice: remove one of them")
    return tuple(forms) if len(forms) > 1 else str(forms[0])


def _require_form(form: object) -> None:
    if not isinstance(form, str):
        raise ValueError(_ALLOWED)  # noqa: TRY004 - pydantic reports a ValueError
    if form.startswith(_HEADER):
        name = form.removeprefix(_HEADER)
        if not name:
            raise ValueError(
                f"{form!r} names no header: write the name behind the colon, as in 'header:ce_id'"
            )
        if name.startswith(wire_names.RESERVED_PREFIX):
            raise ValueError(
                f"{name!r} begins with {wire_names.RESERVED_PREFIX}, which Ringfence itself writes"
            )
    elif form.startswith(_POINTER):
        pointer = form.removeprefix(_POINTER)
        if not pointer.startswith("/"):
            raise ValueError(f"{form!r}: a JSON pointer begins with /, as in 'value:/order/id'")
        if _BAD_ESCAPE.search(pointer):
            raise ValueError(f"{form!r}: in a JSON pointer ~0 stands for ~ and ~1 for /; escape the ~")
    elif form not in {"header", "key", "value"}:
        raise ValueError(_ALLOWED)


def header_name(forms: Forms) -> str:
    """Return the header that alone is the ID; empty = the ID is found in another way."""
    return forms.removeprefix(_HEADER) if isinstance(forms, str) and forms.startswith(_HEADER) else ""


def parts_of(forms: Forms, header_names: Sequence[str]) -> tuple[Part, ...]:
    """Return the parts of an ID; ``header_names`` are those of the form ``header``."""
    return tuple(_part(form, header_names) for form in ((forms,) if isinstance(forms, str) else forms))


def _part(form: str, header_names: Sequence[str]) -> Part:
    if form == "header":
        return Part(form, tuple(header_names))
    if name := header_name(form):
        attribute = name.removeprefix(CLOUDEVENTS_PREFIX)
        return Part(form, (name,), (attribute,) if attribute != name else ())
    if form.startswith(_POINTER):
        _, *tokens = form.removeprefix(_POINTER).split("/")
        return Part(form, (), tuple(token.replace("~1", "/").replace("~0", "~") for token in tokens))
    return Part(form)


def composed(parts: Iterable[bytes | None]) -> bytes:
    """Return one ID of several parts. Each has its length before it, so that ``a``, ``bc`` is another ID than ``ab``, ``c``."""
    return b"".join([len(part).to_bytes(4, "big") + part for part in parts if part])


class DuplicateIds:
    """Reads the IDs of one address."""

    def __init__(self, forms: Forms, header_names: Sequence[str]) -> None:
        self.parts = parts_of(forms, header_names)

    def read(self, headers: Headers, key: bytes | None, value: bytes | None) -> bytes | None:
        """Return the ID of a message; None = a part is missing or empty. A value stands there as its BLAKE2b-256 digest."""
        found = self._found(headers, key, value)
        if len(found) == 1:
            return found[0] or None
        return composed(found) if all(found) else None

    def fault(self, headers: Headers, key: bytes | None, value: bytes | None) -> str:
        """Return which part is missing, as the reason of a quarantine; empty = none is."""
        for part, found in zip(self.parts, self._found(headers, key, value), strict=True):
            if not found:
                return f'no duplicate ID: {_missing(part)} (duplicate_id_missing = "quarantine")'
        return ""

    def _found(self, headers: Headers, key: bytes | None, value: bytes | None) -> list[bytes | None]:
        """Return each part; null and empty ones are missing. The last of repeated headers counts, as in Kafka."""
        named = dict(headers)
        document: Any = _UNREAD
        parts = []
        for form, names, tokens in self.parts:
            found = None
            for name in names:
                if found := named.get(name):
                    break
            if form == "key":
                found = key
            elif form == "value":
                found = blake2b(value, digest_size=32).digest() if value else None
            elif not found and tokens and (not names or _is_structured(named.get(STRUCTURED_HEADER))):
                if document is _UNREAD:
                    document = _document(value)
                found = _at(document, tokens)
            parts.append(found)
        return parts


def _missing(part: Part) -> str:
    if part.form in {"key", "value"}:
        return f"its {part.form} is null or empty"
    if not part.names:
        return f"its value has no string, number or boolean at {part.form.removeprefix(_POINTER)}"
    if len(part.names) == 1:
        return f"the header {part.names[0]} is missing or empty"
    return f"the headers {', '.join(part.names)} are missing or empty"


def _is_structured(content_type: bytes | None) -> bool:
    return content_type is not None and content_type[: len(STRUCTURED_TYPE)].lower() == STRUCTURED_TYPE


def _document(value: bytes | None) -> Any:
    """Return the outermost level of a JSON text in UTF-8; None = the value is another thing."""
    if value is None:
        return None
    try:
        value.decode()  # msgspec does not look into strings that it skips
    except UnicodeDecodeError:
        return None
    return _level(value)


def _level(raw: bytes | msgspec.Raw) -> dict[str, msgspec.Raw] | list[msgspec.Raw] | None:
    try:
        found: dict[str, msgspec.Raw] | list[msgspec.Raw] = _LEVEL.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found


def _at(level: Any, tokens: Sequence[str]) -> bytes | None:
    """Return the string, number or boolean at the end of a JSON pointer, as bytes."""
    *above, last = tokens
    for token in above:
        found = _child(level, token)
        level = None if found is None else _level(found)
    found = _child(level, last)
    return None if found is None else _scalar(found)


def _child(level: Any, token: str) -> msgspec.Raw | None:
    if isinstance(level, dict):
        return level.get(token)
    if isinstance(level, list) and _INDEX.fullmatch(token) and int(token) < len(level):
        found: msgspec.Raw = level[int(token)]
        return found
    return None


def _scalar(raw: msgspec.Raw) -> bytes | None:
    """Return a string's UTF-8 bytes, and a number or boolean as it is written."""
    text = bytes(raw)
    if text[:1] == b'"':
        try:
            return _TEXT.decode(text).encode()
        except msgspec.DecodeError:  # half of a surrogate pair
            return None
    return None if text[:1] in b"{[n" else text

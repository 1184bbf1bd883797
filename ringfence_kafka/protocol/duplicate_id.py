"""Reads duplicate IDs of messages from their configured place: header, key, value, a place in JSON, or several of these. Pure."""

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from ringfence_kafka.protocol import wire_names

Forms = str | tuple[str, ...]
"""One form, or the forms of several parts that are the ID together."""
Headers = Sequence[tuple[str, bytes | None]]

PARTS_MAX: Final = 8
NO_ID: Final = "no duplicate ID"
"""Begin of the reason for which a message without an ID is in quarantine."""
STRUCTURED_HEADER: Final = "content-type"
STRUCTURED_TYPE: Final = b"application/cloudevents+json"
"""Start of the content type of a CloudEvent in structured mode, whose attributes are members of its JSON value."""
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
    """Header names; the first one with a value counts."""
    tokens: tuple[str, ...] = ()
    """Tokens of a JSON pointer (RFC 6901). For a CloudEvents header: the attribute in a structured value."""


def checked_forms(given: object) -> Forms:
    """Return the forms in their normal form: a list with one form becomes that form.

    Raises:
        ValueError: the forms are not valid.
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
    """Return the header that alone is the ID; empty = the ID has another form."""
    return forms.removeprefix(_HEADER) if isinstance(forms, str) and forms.startswith(_HEADER) else ""


def parts_of(forms: Forms, header_names: Sequence[str]) -> tuple[Part, ...]:
    """Return the parts of an ID. ``header_names``: headers of the form ``header``."""
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
    """Return one ID from several parts. Each part is preceded by its length, so that ``a``, ``bc`` differs from ``ab``, ``c``."""
    return b"".join([len(part).to_bytes(4, "big") + part for part in parts if part])


class DuplicateIds:
    """Reader of the IDs of one address."""

    def __init__(self, forms: Forms, header_names: Sequence[str]) -> None:
        self.parts = parts_of(forms, header_names)

    def id_of(self, headers: Headers, key: bytes | None, value: bytes | None) -> bytes | None:
        """Return the ID of a message; None = a part is missing or empty. The form ``value`` uses the value's BLAKE2b-256 digest."""
        found = self._found(headers, key, value)
        if len(found) == 1:
            return found[0] or None
        return composed(found) if all(found) else None

    def fault(self, headers: Headers, key: bytes | None, value: bytes | None) -> str:
        """Return which part is missing, as a reason for quarantine; empty = none."""
        for part, found in zip(self.parts, self._found(headers, key, value), strict=True):
            if not found:
                unreadable = part.form.startswith(_POINTER) and value and _document(value) is None
                why = "its value is not JSON in UTF-8" if unreadable else _missing(part)
                return f'{NO_ID}: {why} (duplicate_id_missing = "quarantine")'
        return ""

    def _found(self, headers: Headers, key: bytes | None, value: bytes | None) -> list[bytes | None]:
        """Return each part; null and empty parts are missing. Among repeated headers the last one counts, as in Kafka."""
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
    """Return the outermost level of a JSON text in UTF-8; None = the value is not one."""
    if value is None:
        return None
    try:
        value.decode()  # msgspec does not check strings that it skips
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
    """Return the string, number or boolean at a JSON pointer, as bytes."""
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
    """Return the UTF-8 bytes of a string, or the text of a number or boolean."""
    text = bytes(raw)
    if text[:1] == b'"':
        try:
            return _TEXT.decode(text).encode()
        except msgspec.DecodeError:  # half of a surrogate pair
            return None
    return None if text[:1] in b"{[n" else text

"""A line of ``ringfence send``: ``{"id": …, "group": …, "value": …, "headers": {…}}``, or a transaction with ``"parts"``."""

import difflib
import json
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError, field_validator

from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.protocol import wire_names


class InputError(RingfenceError):
    """The input cannot be sent."""


class _Headed(BaseModel):
    """Keys of messages and transactions. A misspelt ``id`` would silently switch detection off."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    id: str | None = None
    """Duplicate ID; null, missing or empty = none."""
    group: str | None = None
    """Record key, which determines where a transaction is judged; null or missing = no group."""
    headers: tuple[tuple[str, str | None], ...] = ()

    @field_validator("headers", mode="before")
    @classmethod
    def _pairs(cls, value: object) -> object:
        """Return the pairs of an object, or of a list, in which names may repeat."""
        if value is None:
            return ()
        entries = list(value.items()) if isinstance(value, dict) else value
        if not isinstance(entries, list):
            raise ValueError("write an object of strings, or a list of [name, value] pairs")  # noqa: TRY004
        for entry in entries:
            match entry:
                case (str(), str() | None):
                    pass
                case _:
                    raise ValueError(
                        f"{_shown(entry)} is not a header: a name and a value are strings; null = no value"
                    )
            if entry[0].startswith(wire_names.RESERVED_PREFIX):
                raise ValueError(
                    f"{entry[0]!r} begins with {wire_names.RESERVED_PREFIX}, which Ringfence itself writes: rename it"
                )
        return tuple((name, content) for name, content in entries)


class Line(_Headed):
    """Line with a message."""

    value: JsonValue
    """Required value: a string is sent as it is, null as a null value, anything else as compact JSON.

    Null values delete on compacted topics, which a misspelt key must not do.
    """

    @property
    def payload(self) -> bytes | None:
        """Bytes of the value on the wire."""
        if self.value is None:
            return None
        if isinstance(self.value, str):
            return self.value.encode()
        return json.dumps(self.value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


class PartLine(Line):
    """Message of a transaction."""

    address: str | None = None
    """Target address; null or missing = the address that the transaction is sent to."""


class TransactionLine(_Headed):
    """Messages that are accepted together or not at all."""

    parts: list[Any]
    """Each part is validated separately as :class:`PartLine`, so that an error can name it."""


_KEYS: Final[dict[type[_Headed], tuple[str, ...]]] = {
    Line: ("id", "group", "value", "headers"),
    PartLine: ("address", "id", "group", "value", "headers"),
    TransactionLine: ("id", "group", "parts", "headers"),
}


def parse(raw: bytes, id_headers: tuple[str, ...] = ("_AMQ_DUPL_ID",)) -> Line | TransactionLine:
    """Parse one line. It may not have ``id`` and one of the ``id_headers``.

    For parts, the caller checks this with :func:`check_id`, because they may belong to other addresses.

    Raises:
        ValueError: The line is not valid. The message has the problem, the fix, and a part as ``i/N``, but
            not the line number.
    """
    try:
        line = Line.model_validate_json(raw)
    except ValidationError as error:
        if not any(item["loc"] == ("parts",) for item in error.errors()):
            raise ValueError(_explain(error, Line)) from error
    else:
        _require_single_keys(raw)
        _check_payload(line)
        check_id(line, id_headers)
        return line
    try:
        envelope = TransactionLine.model_validate_json(raw)
    except ValidationError as error:
        raise ValueError(_explain(error, TransactionLine)) from error
    _require_single_keys(raw)
    check_id(envelope, id_headers)
    parts = []
    for number, part in enumerate(envelope.parts, 1):
        try:
            parts.append(PartLine.model_validate(part))
            _check_payload(parts[-1])
        except ValueError as error:
            fault = _explain(error, PartLine) if isinstance(error, ValidationError) else error
            raise ValueError(f"part {number}/{len(envelope.parts)}: {fault}") from error
    return envelope.model_copy(update={"parts": parts})


def check_id(line: _Headed, id_headers: tuple[str, ...]) -> None:
    """Raise ValueError if a line has both ``id`` and a header with an ID."""
    for name, _ in line.headers:
        if line.id is not None and name in id_headers:
            raise ValueError(f"headers: {name!r} is a duplicate ID beside id = {line.id!r}: give one of them")


def _require_single_keys(raw: bytes) -> None:
    """Raise ValueError if a key occurs twice in an object, at any depth: a parser would keep only the last value."""
    # numbers stay text, because only keys matter and Python refuses to convert very long numbers
    json.loads(raw.decode(), object_pairs_hook=_single_keys, parse_int=str, parse_float=str)


def _single_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, content in pairs:
        if key in found:
            raise ValueError(
                f"the key {_shown(key)} occurs twice in one object, and only one value would be sent: "
                "remove one of them; headers that repeat are written as a list of [name, value] pairs"
            )
        found[key] = content
    return found


def _check_payload(line: Line) -> None:
    try:
        _ = line.payload
    except ValueError as error:
        raise ValueError("value: NaN and Infinity are not JSON: write a number, a string or null") from error


def _explain(error: ValidationError, model: type[_Headed]) -> str:
    return "; ".join(dict.fromkeys(_explained(dict(item), model) for item in error.errors()))


def _explained(error: dict[str, Any], model: type[_Headed]) -> str:
    key = ".".join(str(part) for part in error["loc"][:1])
    message: str = error["msg"].removeprefix("Value error, ")
    match error["type"]:
        case "json_invalid":
            fault = message.removeprefix("Invalid JSON: ").replace("line 1 column", "column")
            said = f"not JSON ({fault}): write one JSON object a line, in UTF-8"
        case "model_type" | "model_attributes_type":
            form = ", ".join(f'"{key}": ' + ("{…}" if key == "headers" else "…") for key in _KEYS[model])
            said = f"{_shown(error['input'])} is not an object: write {{{form}}}"
        case "extra_forbidden":
            said = _unknown(key, model)
        case "missing":
            said = f'{key}: missing: add it, or write "{key}": null to send a null value on purpose'
        case "string_type":
            said = f"{key} = {_shown(error['input'])} is not a string: put it in quotes, or leave it out"
        case "list_type":
            said = f'{key} = {_shown(error["input"])} is not a list: write [{{"group": …, "value": …}}, …]'
        case _:
            said = f"{key}: {message}"
    return said


def _unknown(key: str, model: type[_Headed]) -> str:
    if model is TransactionLine and key == "value":
        return "value beside parts: give one of them; each part has a value of its own"
    also = ("parts",) if model is Line else ()
    near = difflib.get_close_matches(key, _KEYS[model] + also, n=1)
    if near:
        return f"unknown key {key!r}: did you mean {near[0]!r}?"
    more = ", or parts instead of value" if also else ""
    return f"unknown key {key!r}: known keys are {', '.join(_KEYS[model])}{more}"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."

"""A line of ``ringfence send``: ``{"id": …, "group": …, "value": …, "headers": {…}}``."""

import difflib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError, field_validator

from ringfence_kafka import wire
from ringfence_kafka.errors import RingfenceError


class InputError(RingfenceError):
    """What was given to send cannot be sent."""


class Line(BaseModel):
    """One line of the input. Strict and closed: a misspelt ``id`` would silently switch detection off."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    id: str | None = None
    """The duplicate ID; null or missing = none. The empty string is an ID."""
    group: str | None = None
    """The record key; null or missing = no group."""
    value: JsonValue
    """A string is sent as it is, null as a null value, anything else as compact JSON. Not to be left out: on a compacted topic
    a null value deletes, and a misspelt key must not."""
    headers: tuple[tuple[str, str | None], ...] = ()

    @field_validator("headers", mode="before")
    @classmethod
    def _pairs(cls, value: object) -> object:
        """An object, or a list of pairs, in which a name may stand several times."""
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
                        f"{_shown(entry)} is no header: a name and a value are strings; null = no value"
                    )
            if entry[0].startswith(wire.RESERVED_PREFIX):
                raise ValueError(
                    f"{entry[0]!r} begins with {wire.RESERVED_PREFIX}, which Ringfence itself writes: rename it"
                )
        return tuple((name, content) for name, content in entries)

    @property
    def payload(self) -> bytes | None:
        """The value as it goes on the wire."""
        if self.value is None:
            return None
        if isinstance(self.value, str):
            return self.value.encode()
        return json.dumps(self.value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def parse(raw: bytes, id_headers: tuple[str, ...] = ("_AMQ_DUPL_ID",)) -> Line:
    """Read one line.

    Args:
        raw: UTF-8 bytes.
        id_headers: Headers that carry a duplicate ID; one of them beside ``id`` would leave open which counts.

    Raises:
        ValueError: names the fault and the way out; the caller knows the line's number.
    """
    try:
        line = Line.model_validate_json(raw)
        _ = line.payload
    except ValidationError as error:
        raise ValueError("; ".join(dict.fromkeys(_explain(dict(each)) for each in error.errors()))) from error
    except ValueError as error:
        raise ValueError("value: NaN and Infinity are no JSON: write a number, a string or null") from error
    if line.id is not None:
        for name, _ in line.headers:
            if name in id_headers:
                raise ValueError(
                    f"headers: {name!r} is a duplicate ID beside id = {line.id!r}: give one of them"
                )
    return line


def _explain(error: dict[str, Any]) -> str:
    """One fault of pydantic's as one of ours."""
    key = ".".join(str(part) for part in error["loc"][:1])
    message: str = error["msg"].removeprefix("Value error, ")
    match error["type"]:
        case "json_invalid":
            fault = message.removeprefix("Invalid JSON: ").replace("line 1 column", "column")
            return f"not JSON ({fault}): write one JSON object a line, in UTF-8"
        case "model_type" | "model_attributes_type":
            return f'{_shown(error["input"])} is no object: write {{"id": …, "group": …, "value": …, "headers": …}}'
        case "extra_forbidden":
            near = difflib.get_close_matches(key, Line.model_fields, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(Line.model_fields)}"
            return f"unknown key {key!r}: {hint}"
        case "missing":
            return f'{key}: missing: add it, or write "{key}": null to send a null value on purpose'
        case "string_type":
            return f"{key} = {_shown(error['input'])} is no string: put it in quotes, or leave it out"
        case _:
            return f"{key}: {message}"


def _shown(value: object) -> str:
    """A JSON value for a message, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004

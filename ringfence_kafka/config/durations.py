"""Durations in the configuration: a number in the key's unit, or text such as ``"1h30m"``."""

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

_MILLISECONDS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NAMES: Final = {"ms": "milliseconds", "s": "seconds", "d": "days"}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhd])")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")


def _duration(unit: str, *, whole: bool = False) -> BeforeValidator:
    """Return a validator that converts text to a number in this unit; other values pass unchanged."""

    def number(value: object) -> object:
        if not isinstance(value, str):
            return value
        if not _WHOLE.fullmatch(value):
            raise ValueError(
                f"not a duration: write a number of {_NAMES[unit]}, or digits and units in quotes: "
                "'500ms', '30s', '5m', '1h', '7d', '1h30m'"
            )
        parts = _PART.findall(value)
        milliseconds = sum(float(digits) * _MILLISECONDS[part] for digits, part in parts)
        if len({part for _, part in parts}) < len(parts):
            total = duration_text(milliseconds / 1_000)
            raise ValueError(f"a unit occurs twice: write each once, as in {total!r}, if that is meant")
        found = milliseconds / _MILLISECONDS[unit]
        if found.is_integer():
            return int(found)
        if whole:
            raise ValueError(f"is {found:g} {_NAMES[unit]}: this key takes whole {_NAMES[unit]}")
        return found

    return BeforeValidator(number)


def duration_text(seconds: float) -> str:
    """Return a duration in the configuration's form, such as ``1h30m``; 0 is ``0s``."""
    rest = round(seconds * 1_000)
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, _MILLISECONDS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _in_schema(unit: str, number: str) -> Any:
    """Return the JSON Schema that all durations of a unit share. Bounds apply to numbers, the pattern to text."""
    return Field(
        json_schema_extra={
            "type": [number, "string"],
            "pattern": rf"^(?:{_PART.pattern})+$",
            "x-unit": _NAMES[unit],
        }
    )


Seconds = Annotated[float, _duration("s"), _in_schema("s", "number")]
WholeSeconds = Annotated[int, _duration("s", whole=True), _in_schema("s", "integer")]
Milliseconds = Annotated[int, _duration("ms", whole=True), _in_schema("ms", "integer")]
Days = Annotated[int, _duration("d", whole=True), _in_schema("d", "integer")]

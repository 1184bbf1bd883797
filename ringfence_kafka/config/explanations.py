"""Texts of validation errors: key, value, valid values, and the remedy, without secrets."""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic_core import ErrorDetails

from ringfence_kafka.config import schema
from ringfence_kafka.config.section import (
    HOST_PATTERN,
    INSTANCE_PATTERN,
    MEMBER_PATTERN,
    NAME_PATTERN,
    TOPIC_NAME_PATTERN,
)

HIDDEN: Final = "(hidden)"
_SECRET: Final = re.compile(
    r"pass|secret|token|jaas|private|credential|assertion|authorization|cookie|api.?key", re.IGNORECASE
)
"""Names of keys that may have a secret, whose value no text repeats. ``sasl_password_env`` only has a name."""
_PUBLIC: Final = frozenset({"sasl_oauth_token_url"})

_CHARACTERS: Final = {
    TOPIC_NAME_PATTERN: "use letters, digits, dots, underscores and hyphens, and not only dots",
    INSTANCE_PATTERN: "use letters, digits, dots, underscores and hyphens, and not only dots",
    NAME_PATTERN: "use letters, digits, dots, underscores and hyphens",
    HOST_PATTERN: "use letters, digits, dots, underscores and hyphens, without a port",
    MEMBER_PATTERN: "use letters, digits, underscores and hyphens",
}
"""Advice for a name, by the pattern that it violates."""

_TYPES: Final = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text in quotes",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
}
_OUT_OF_RANGE: Final = frozenset({"greater_than", "greater_than_equal", "less_than", "less_than_equal"})
_NUMBERS: Final = frozenset({"int_type", "float_type", "finite_number"})

_NAMED: Final = frozenset({"addresses", "bridges", "cluster_connections", "members"})
"""Tables that can occur several times, each with a name."""


def explain(error: ErrorDetails, data: Mapping[str, Any]) -> str:
    """Return one line about an error in ``data``."""
    location = error["loc"]
    message = error["msg"].removeprefix("Value error, ")
    if not location:
        return message
    kind, key = error["type"], place(location, data)
    value = without_secrets(str(location[-1]), error["input"])
    if kind == "missing":
        return f"{key}: missing: add it"
    if kind == "extra_forbidden":
        message = _unknown(location)
    elif kind == "literal_error":
        message = f"must be {error['ctx']['expected']}"
    elif kind == "string_pattern_mismatch":
        message = _CHARACTERS[error["ctx"]["pattern"]]
    elif kind == "string_too_long":
        message = f"has {len(str(value))} characters: 1 to {error['ctx']['max_length']} are possible"
    elif kind == "string_too_short":
        message = "must not be empty"
    elif kind in _OUT_OF_RANGE:
        message = f"must be {_range(location)}"
    elif kind in _TYPES:
        words = _range(location) if kind in _NUMBERS else ""
        message = f"must be {_TYPES[kind]}{f', {words}' if words else ''}"
    # For tables with contradictory keys, the message has the keys and their values.
    shown = "" if kind == "value_error" and isinstance(value, dict) else f" = {value!r}"
    return f"{key}{shown}: {message[:1].lower()}{message[1:]}"


def _range(location: Sequence[int | str]) -> str:
    """Return the range of a number with its unit; empty = it has no bounds."""
    key = schema.at(location)
    words = schema.range_of(key)
    return f"{words} {key.get('x-unit', '')}".rstrip() if words else ""


def place(location: Sequence[int | str], data: Mapping[str, Any]) -> str:
    """Return a key as it is found in the file: addresses and bridges by name instead of by number."""
    parts: list[str] = []
    there: Any = data
    for part in location:
        try:
            there = there[part]
        except (KeyError, IndexError, TypeError):
            there = None
        if isinstance(part, int) and parts[-1] in _NAMED:
            name = there.get("name", part + 1) if isinstance(there, dict) else part + 1
            parts[-1] = f"{parts[-1]}[{name}]"
        else:
            parts.append(str(part))
    return ".".join(parts)


def _unknown(location: Sequence[int | str]) -> str:
    name = str(location[-1])
    known = sorted(schema.at(location[:-1]).get("properties", ()))
    if name in known:
        return "only the entry of one name can have it: move it there"
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(known)}"
    return f"unknown key: {hint}"


def is_secret(name: str) -> bool:
    """Return whether output must hide the value of a key with this name."""
    return bool(_SECRET.search(name)) and not name.endswith("_env") and name not in _PUBLIC


def without_secrets(name: str, value: Any) -> Any:
    """Return the value of a key with secrets hidden."""
    if isinstance(value, dict):
        return {key: without_secrets(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(name, item) for item in value]
    return HIDDEN if is_secret(name) else value

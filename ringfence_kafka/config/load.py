"""Reads the TOML file and the environment into :class:`ringfence_kafka.config.settings.Settings`."""

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ringfence_kafka.config import properties
from ringfence_kafka.config.addresses import can_match, is_pattern
from ringfence_kafka.config.section import NAME_PATTERN, TOPIC_NAME_PATTERN
from ringfence_kafka.config.settings import AddressDefaults, Settings
from ringfence_kafka.errors import ConfigurationError

ENV_PREFIX: Final = "RINGFENCE_"
ENV_DELIMITER: Final = "__"
_SECRET: Final = re.compile(r"pass|secret|token|jaas", re.IGNORECASE)
"""A key of such a name is misplaced here, and no error repeats its value. ``sasl_password_env`` holds a name."""

SECRET_VARIABLES: Final = (
    "sasl_password_env",
    "sasl_oauth_client_secret_env",
    "ssl_key_password_env",
    "web_token_env",
)
"""Keys that name a variable which holds a secret."""
_CONNECTION_KEPT: Final = frozenset({"bootstrap_servers", "properties"})
"""Keys of ``[kafka]`` that a file of the command line leaves in force; all other keys concern access."""

_CHARACTERS: Final = {
    TOPIC_NAME_PATTERN: "use letters, digits, ., _ and -, and not dots alone",
    NAME_PATTERN: "use letters, digits, ., _ and -",
}
"""Advice on a name, by the pattern that it does not match."""

_LISTS: Final = frozenset({"addresses", "bridges", "cluster_connections"})
"""Tables of which there are several: no variable can say which of them it means."""
_NAMED: Final = _LISTS | {"members"}

_PLANNED: Final = frozenset({"consumer"})
"""Keys of the interface whose feature this version does not have: named apart from misspelt ones."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Connection options of a command line; they override file and environment."""

    bootstrap_servers: str | None = None
    command_config: str | None = None
    """File of Java properties. It alone decides on access: the access keys of ``[kafka]`` do not count."""
    properties: Mapping[str, str] = field(default_factory=dict)


def load(
    path: Path,
    environ: Mapping[str, str] = os.environ,
    connection: Connection = Connection(),
    *,
    optional: bool = False,
) -> Settings:
    """Read the settings.

    Args:
        path: The TOML file. It must exist: a worker that silently runs on defaults is worse than none.
        environ: ``RINGFENCE_<SECTION>__<KEY>`` overrides ``<key>`` of ``[section]``, by a TOML value or a bare string.
        connection: The options of the command line.
        optional: For who can do without any file.

    Raises:
        ConfigurationError: names the file, the key, the value and the way out.
    """
    data: dict[str, Any] = {}
    try:
        if path.exists() or not optional:
            data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"{path}: {error.strerror or error}: name a readable file with --config FILE or in RINGFENCE_CONFIG"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: not TOML: {error}: fix that line") from error
    overlaid = _overlay(data, environ, _password_variables(data, environ))
    overlaid += _connect(data, connection)
    origin = str(path) if path.exists() else "without a file"
    return validate(data, origin + (f" with {', '.join(overlaid)}" if overlaid else ""))


def validate(data: Mapping[str, Any], origin: str = "settings") -> Settings:
    """Validate settings that are already a mapping.

    Raises:
        ConfigurationError: every fault on a line of its own.
    """
    entries = data.get("addresses", ())
    numbered = list(enumerate(entries)) if isinstance(entries, list | tuple) else []
    unsound = [(number, error) for number, item in numbered for error in _pattern_errors(number, item)]
    faulty = {number for number, _ in unsound}
    literal = [number for number, item in numbered if not is_pattern(item)]
    errors = [error for _, error in unsound]
    try:
        # Without the faulty patterns, whose faults would be told again at each name that they match.
        sound = {"addresses": [item for number, item in numbered if number not in faulty]} if faulty else {}
        settings = Settings.model_validate({**data, **sound})
    except ValidationError as error:
        errors += [_at_its_entry(item, literal) for item in error.errors(include_url=False)]
    if errors:
        faults = [f"{origin}: {_explain(error, data)}" for error in errors]
        raise ConfigurationError("\n".join(dict.fromkeys(faults)))
    return settings


def _pattern_errors(number: int, entry: Any) -> list[ErrorDetails]:
    """Return the problems of a pattern, also if it matches nothing yet: they would surprise the person who adds a matching name later."""
    if not is_pattern(entry):
        return []
    errors: list[ErrorDetails] = []
    if not can_match(entry["name"]):
        message = "no topic can have such a name: use letters, digits, ., _, -, *, ? and closed [sets]"
        errors.append({"type": "value_error", "loc": ("name",), "msg": message, "input": entry["name"]})
    try:
        AddressDefaults.model_validate({key: value for key, value in entry.items() if key != "name"})
    except ValidationError as error:
        errors += error.errors(include_url=False)
    return [{**error, "loc": ("addresses", number, *error["loc"])} for error in errors]


def _at_its_entry(error: ErrorDetails, literal: Sequence[int]) -> ErrorDetails:
    """Count the address as a person does, patterns included; settings count without them."""
    match error["loc"]:
        case ("addresses", int(number), *rest):
            return {**error, "loc": ("addresses", literal[number], *rest)}
    return error


def _password_variables(data: Mapping[str, Any], environ: Mapping[str, str]) -> set[str]:
    tables = [data.get("kafka")]
    for bridge in _tables(data.get("bridges")):
        tables += [bridge.get("source"), bridge.get("target")]
    for connection in _tables(data.get("cluster_connections")):
        tables += _tables(connection.get("members"))
    tables.append(data.get("app"))
    named = {str(table.get(key)) for table in tables if isinstance(table, dict) for key in SECRET_VARIABLES}
    sections = ("APP", "KAFKA")
    names = (
        f"{ENV_PREFIX}{section}{ENV_DELIMITER}{key.upper()}"
        for section in sections
        for key in SECRET_VARIABLES
    )
    return named | {environ.get(name, "") for name in names}


def _tables(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _overlay(
    data: dict[str, Any], environ: Mapping[str, str], password_variables: Collection[str]
) -> list[str]:
    """Put the environment's values over the file's; return the names of the variables used."""
    used = []
    for variable, raw in sorted(environ.items()):
        section, delimiter, key = variable.removeprefix(ENV_PREFIX).lower().partition(ENV_DELIMITER)
        # Without the delimiter it is somebody else's: Kubernetes sets RINGFENCE_PORT and more for a Service named ringfence.
        if not (variable.startswith(ENV_PREFIX) and delimiter) or variable in password_variables:
            continue
        if section not in Settings.model_fields or section in _LISTS or not key:
            raise ConfigurationError(
                f"environment: {variable} names no setting: use RINGFENCE_<SECTION>__<KEY> with a section "
                f"of {', '.join(sorted(Settings.model_fields.keys() - _LISTS))}, or unset it"
            )
        table = data.setdefault(section, {})
        if isinstance(table, dict):
            table[key] = _toml_value(raw)
            used.append(variable)
    return used


def _connect(data: dict[str, Any], connection: Connection) -> list[str]:
    """Put the command line's connection over the rest; return the options used."""
    table = data.setdefault("kafka", {})
    if not isinstance(table, dict):
        return []
    used = []
    try:
        if file := connection.command_config:
            used.append(f"--command-config {file}")
            kept = {"properties"} if "bootstrap_servers" in properties.read(file).keys else _CONNECTION_KEPT
            table = {key: value for key, value in table.items() if key in kept} | {"command_config": file}
        if connection.properties:
            used.append("-X")
            given = properties.translate(connection.properties, "-X")
            table = _without(table, given.keys) | given.keys
            if isinstance(known := table.get("properties", {}), dict):
                table["properties"] = {**known, **given.passed}
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    if connection.bootstrap_servers is not None:
        used.append("--bootstrap-server")
        table = _without(table, {"bootstrap_servers"}) | {"bootstrap_servers": connection.bootstrap_servers}
    data["kafka"] = table
    return used


def _without(table: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    known = table.get("properties")
    if not isinstance(known, dict):
        return dict(table)
    return {
        **table,
        "properties": {item: value for item, value in known.items() if properties.KEYS.get(item) not in keys},
    }


def _toml_value(raw: str) -> Any:
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return raw


def _place(location: tuple[int | str, ...], data: Mapping[str, Any]) -> str:
    """Return the key as a person finds it in the file: an address or a bridge by its name, not by its number."""
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


def _explain(error: ErrorDetails, data: Mapping[str, Any]) -> str:
    location = error["loc"]
    key = _place(location, data)
    value = _without_secrets(str(location[-1]) if location else "", error["input"])
    message = error["msg"].removeprefix("Value error, ").replace("valid tuple", "list")
    if not location:
        return message
    if error["type"] == "extra_forbidden":
        return f"{key} = {value!r}: {_unknown(location)}"
    if error["type"] == "missing":
        return f"{key}: missing: add it"
    if error["type"] == "literal_error":
        return f"{key} = {value!r}: must be {error['ctx']['expected']}"
    if error["type"] == "string_pattern_mismatch":
        message = _CHARACTERS.get(error["ctx"]["pattern"], message)
    # What does not fit together in a table is named, with the values, by the message itself.
    shown = "" if error["type"] == "value_error" and isinstance(value, dict) else f" = {value!r}"
    return f"{key}{shown}: {message[:1].lower()}{message[1:]}"


def _unknown(location: tuple[int | str, ...]) -> str:
    name = str(location[-1])
    if name in _PLANNED:
        return "this version does not have that feature: remove the key"
    known = sorted(_siblings(location))
    if name in known:
        return "only the entry of one name can have it: move it there"
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(known)}"
    return f"unknown key: {hint}"


def _without_secrets(name: str, value: Any) -> Any:
    """Return the value as an error may show it."""
    if isinstance(value, dict):
        return {key: _without_secrets(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(name, item) for item in value]
    return (
        "(hidden)"
        if _SECRET.search(name) and not name.endswith("_env") and name != "sasl_oauth_token_url"
        else value
    )


def _siblings(location: tuple[int | str, ...]) -> set[str]:
    model: type[BaseModel] = Settings
    for part in location[:-1]:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation
        if get_origin(annotation) in {tuple, UnionType}:
            annotation = get_args(annotation)[0]
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return set(model.model_fields)

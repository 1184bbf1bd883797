"""Reads the TOML file and the environment into :class:`ringfence_kafka.config.settings.Settings`."""

import os
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ringfence_kafka.config import properties
from ringfence_kafka.config.addresses import can_match, is_pattern
from ringfence_kafka.config.explanations import explain
from ringfence_kafka.config.settings import AddressDefaults, Settings
from ringfence_kafka.errors import ConfigurationError

ENV_PREFIX: Final = "RINGFENCE_"
ENV_DELIMITER: Final = "__"
Location = tuple[int | str, ...]
"""Place of a key, such as ``("app", "id")`` or ``("addresses", 0, "name")``."""

SECRET_VARIABLES: Final = (
    "sasl_password_env",
    "sasl_oauth_client_secret_env",
    "ssl_key_password_env",
    "web_token_env",
)
"""Keys that name an environment variable with a secret."""
_CONNECTION_KEPT: Final = frozenset({"bootstrap_servers", "properties"})
"""Keys of ``[kafka]`` that stay valid beside a file of the command line; all other keys concern access."""

_LISTS: Final = frozenset({"addresses", "bridges", "cluster_connections"})
"""Tables that can occur several times: a variable cannot address one of them."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Connection options of a command line; they override file and environment."""

    bootstrap_servers: str | None = None
    command_config: str | None = None
    """File of Java properties. It replaces all access keys of ``[kafka]``."""
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Parts of a configuration before validation."""

    path: Path
    text: str
    """Text of the file; empty = no file."""
    data: dict[str, Any]
    overrides: Mapping[Location, str]
    """Environment variables and command line options, by the keys that they set."""

    @property
    def origin(self) -> str:
        """File and all overrides, as the start of an error."""
        overrides = ", ".join(dict.fromkeys(self.overrides.values()))
        return (str(self.path) if self.text or self.path.exists() else "without a file") + (
            f" with {overrides}" if overrides else ""
        )


def load(
    path: Path,
    environ: Mapping[str, str] = os.environ,
    connection: Connection = Connection(),
    *,
    optional: bool = False,
) -> Settings:
    """Read and validate the settings, as :func:`read_document` and :func:`validate`.

    Raises:
        ConfigurationError: the text has the file, the key, the value and the remedy.
    """
    document = read_document(path, environ, connection, optional=optional)
    return validate(document.data, document.origin)


def read_document(
    path: Path,
    environ: Mapping[str, str] = os.environ,
    connection: Connection = Connection(),
    *,
    optional: bool = False,
) -> Document:
    """Read the file, and override it with the environment and the command line.

    Args:
        path: TOML file. It must exist, because a worker must not run on defaults unnoticed.
        environ: ``RINGFENCE_<SECTION>__<KEY>`` overrides ``<key>`` of ``[section]``, with a TOML value or a bare string.
        connection: Options of the command line.
        optional: Whether the file may be missing.

    Raises:
        ConfigurationError: the file cannot be read, or a variable or an option is not valid.
    """
    text = ""
    try:
        if path.exists() or not optional:
            text = path.read_text("utf-8-sig")
        data = tomllib.loads(text)
    except OSError as error:
        raise ConfigurationError(
            f"{path}: {error.strerror or error}: name a readable file with --config FILE or in RINGFENCE_CONFIG"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: not TOML: {error}: fix that line") from error
    overrides = _overlay(data, environ, _password_variables(data, environ))
    overrides |= _connect(data, connection)
    return Document(path=path, text=text, data=data, overrides=overrides)


def validate(data: Mapping[str, Any], origin: str = "settings") -> Settings:
    """Validate settings that are already a mapping.

    Raises:
        ConfigurationError: one line for each problem.
    """
    entries = data.get("addresses", ())
    numbered = list(enumerate(entries)) if isinstance(entries, list | tuple) else []
    unsound = [(number, error) for number, item in numbered for error in _pattern_errors(number, item)]
    faulty = {number for number, _ in unsound}
    literal = [number for number, item in numbered if not is_pattern(item)]
    errors = [error for _, error in unsound]
    try:
        # Faulty patterns are left out: their problems would be repeated for each matching name.
        sound = {"addresses": [item for number, item in numbered if number not in faulty]} if faulty else {}
        settings = Settings.model_validate({**data, **sound})
    except ValidationError as error:
        errors += [_at_its_entry(item, literal) for item in error.errors(include_url=False)]
    if errors:
        faults = [f"{origin}: {explain(error, data)}" for error in errors]
        raise ConfigurationError("\n".join(dict.fromkeys(faults)))
    return settings


def _pattern_errors(number: int, entry: Any) -> list[ErrorDetails]:
    """Return the problems of a pattern, even if it matches no name yet: otherwise they appear when a matching name is added."""
    if not is_pattern(entry):
        return []
    errors: list[ErrorDetails] = []
    if not can_match(entry["name"]):
        message = (
            "no topic can have such a name: use letters, digits, dots, underscores, hyphens, *, ? and "
            "closed [sets]"
        )
        errors.append({"type": "value_error", "loc": ("name",), "msg": message, "input": entry["name"]})
    try:
        AddressDefaults.model_validate({key: value for key, value in entry.items() if key != "name"})
    except ValidationError as error:
        errors += error.errors(include_url=False)
    return [{**error, "loc": ("addresses", number, *error["loc"])} for error in errors]


def _at_its_entry(error: ErrorDetails, literal: Sequence[int]) -> ErrorDetails:
    """Return the error with the address's number in the file, which counts patterns too."""
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
    for section in ("APP", "KAFKA"):
        keys = (f"{ENV_PREFIX}{section}{ENV_DELIMITER}{key.upper()}" for key in SECRET_VARIABLES)
        named |= {environ.get(key, "") for key in keys}
    return named


def _tables(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _overlay(
    data: dict[str, Any], environ: Mapping[str, str], password_variables: Collection[str]
) -> dict[Location, str]:
    """Override the file's values by the environment's. Return the names of the used variables, by key."""
    used: dict[Location, str] = {}
    for variable, raw in sorted(environ.items()):
        section, delimiter, key = variable.removeprefix(ENV_PREFIX).lower().partition(ENV_DELIMITER)
        # Without the delimiter the variable is foreign: Kubernetes sets RINGFENCE_PORT and others for a Service named ringfence.
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
            used[section, key] = variable
    return used


def _connect(data: dict[str, Any], connection: Connection) -> dict[Location, str]:
    """Override the connection by the command line's. Return the used options, by key."""
    table = data.setdefault("kafka", {})
    used: dict[Location, str] = {}
    if not isinstance(table, dict):
        return used
    try:
        if file := connection.command_config:
            used["kafka", "command_config"] = f"--command-config {file}"
            kept = _CONNECTION_KEPT - properties.read_properties(file).keys.keys()
            table = {key: value for key, value in table.items() if key in kept} | {"command_config": file}
        if connection.properties:
            given = properties.translate(connection.properties, "-X")
            used |= {("kafka", key): "-X" for key in given.keys}
            used |= {("kafka", "properties", name): "-X" for name in given.passed}
            table = _without(table, given.keys) | given.keys
            if isinstance(known := table.get("properties", {}), dict):
                table["properties"] = {**known, **given.passed}
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    if connection.bootstrap_servers is not None:
        used["kafka", "bootstrap_servers"] = "--bootstrap-server"
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

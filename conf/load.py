"""Reads the TOML file and the environment into :class:`conf.settings.Settings`."""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from conf.errors import ConfigurationError
from conf.settings import Settings

ENV_PREFIX: Final = "RINGFENCE_"
ENV_DELIMITER: Final = "__"
ENV_OTHER: Final = frozenset({"RINGFENCE_FAILPOINTS", "RINGFENCE_IVY_SETTINGS", "RINGFENCE_CACHE"})
"""Variables with the prefix that are no settings."""

_PLANNED: Final = frozenset(
    {
        "security_protocol", "sasl_mechanism", "sasl_username", "sasl_password_env", "ssl_cafile", "ssl_certfile",
        "ssl_keyfile", "input_topic", "accepted_topic", "duplicates_topic", "quarantine_topic", "reconcile",
        "bridges", "consumer",
    }
)  # fmt: skip
"""Keys of the interface whose feature this version does not have: named apart from misspelt ones."""


def load(path: Path, environ: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings.

    Args:
        path: The TOML file. It must exist: a worker that silently runs on defaults is worse than none.
        environ: ``RINGFENCE_<SECTION>__<KEY>`` overrides ``<key>`` of ``[section]``; the value is read as a
            TOML value, or as a bare string where it is none.

    Raises:
        ConfigurationError: names the file, the key, the value and the way out.
    """
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"{path}: {error.strerror or error}: name a readable file with --config FILE"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: not TOML: {error}: mend that line") from error
    overlaid = _overlay(data, environ)
    return validate(data, str(path) + (f" with {', '.join(overlaid)}" if overlaid else ""))


def validate(data: Mapping[str, Any], origin: str = "settings") -> Settings:
    """Validate settings that are already a mapping.

    Raises:
        ConfigurationError: every fault on a line of its own.
    """
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        faults = [f"{origin}: {_explain(each, data)}" for each in error.errors(include_url=False)]
        raise ConfigurationError("\n".join(dict.fromkeys(faults))) from error


def _overlay(data: dict[str, Any], environ: Mapping[str, str]) -> list[str]:
    """Put the environment's values over the file's; return the names of the variables used."""
    used = []
    for variable, raw in sorted(environ.items()):
        if not variable.startswith(ENV_PREFIX) or variable in ENV_OTHER:
            continue
        section, _, key = variable.removeprefix(ENV_PREFIX).lower().partition(ENV_DELIMITER)
        if section not in Settings.model_fields or section == "addresses" or not key:
            raise ConfigurationError(
                f"environment: {variable}={raw!r} names no setting: use RINGFENCE_<SECTION>__<KEY> with a section "
                f"of {_listed(set(Settings.model_fields) - {'addresses'})}, or unset it"
            )
        table = data.setdefault(section, {})
        if isinstance(table, dict):
            table[key] = _toml_value(raw)
            used.append(variable)
    return used


def _toml_value(raw: str) -> Any:
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return raw


def _place(location: tuple[int | str, ...], data: Mapping[str, Any]) -> str:
    """The key as a person finds it in the file: an address by its name, not by its number."""
    parts: list[str] = []
    for part in location:
        if isinstance(part, int) and parts[-1] == "addresses":
            entry = data["addresses"][part]
            name = entry.get("name", part + 1) if isinstance(entry, dict) else part + 1
            parts[-1] = f"addresses[{name}]"
        else:
            parts.append(str(part))
    return ".".join(parts)


def _explain(error: ErrorDetails, data: Mapping[str, Any]) -> str:
    """One line for one fault: key, value, what is wrong, the way out."""
    location = error["loc"]
    key = _place(location, data)
    value = error["input"]
    message = error["msg"].removeprefix("Value error, ").replace("valid tuple", "list")
    if not location:
        return message
    if error["type"] == "extra_forbidden":
        name = str(location[-1])
        if name in _PLANNED:
            return f"{key} = {value!r}: this version does not have that feature: remove the key"
        known = sorted(_siblings(location))
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(known)}"
        return f"{key} = {value!r}: unknown key: {hint}"
    if error["type"] == "missing":
        return f"{key}: missing: add it"
    if error["type"] == "literal_error":
        only = error["ctx"]["expected"]
        return f"{key} = {value!r}: this version supports {only} only: remove the key or set it to that"
    return f"{key} = {value!r}: {message[:1].lower()}{message[1:]}"


def _siblings(location: tuple[int | str, ...]) -> set[str]:
    """Names that would be known where ``location`` points."""
    model: type[BaseModel] = Settings
    for part in location[:-1]:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation
        if get_origin(annotation) is tuple:
            annotation = get_args(annotation)[0]
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return set(model.model_fields)


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))

"""Stable IDs of log messages, such as ``RF-133``. The catalogue ``log_messages.toml`` has the template of each message."""

import functools
import tomllib
from importlib.resources import files
from typing import Any, Final

ANY_LOGGER: Final = "*"
"""Logger of messages that several programs log under their own names."""


@functools.cache
def entries() -> dict[str, dict[str, Any]]:
    """Return all messages by ID: ``logger``, ``level``, ``text``; warnings and errors also have ``means`` and ``do``."""
    return tomllib.loads((files(__package__) / "log_messages.toml").read_text("utf-8"))


@functools.cache
def _ids() -> dict[tuple[str, str], str]:
    return {(entry["logger"], entry["text"]): name for name, entry in entries().items()}


def message_id(logger: str, template: object) -> str | None:
    """Return the ID of a log record's message; None = not in the catalogue, for example from a library or at debug level.

    Args:
        logger: Name of the record's logger.
        template: Message of the record before its values are filled in.
    """
    if not logger.startswith("ringfence") or not isinstance(template, str):
        return None
    return _ids().get((logger, template)) or _ids().get((ANY_LOGGER, template))

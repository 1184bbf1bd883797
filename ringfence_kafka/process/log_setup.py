"""Logging of a process on stderr: one line or one JSON object for each event."""

import functools
import json
import logging
import time
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Final, TypeVar

import click
from aiokafka.errors import KafkaError

from ringfence_kafka.escaping import printable

FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"

_NOISY: Final = ("faust", "aiokafka", "mode", "aiohttp", "kafka", "asyncio", "urllib3")
"""Libraries that build a debug record for each event unless their level forbids it, which costs about 14 % of the time."""
_REPORTED: Final = frozenset({"asyncio", "aiokafka.producer.sender"})
"""Loggers whose Kafka errors are hidden: aiokafka logs a failed transaction with its traceback, and the lane logs one line about it."""
_FUTURE: Final = "Future exception was never retrieved"
"""Message of asyncio after a refused connection, which the connection's user already reports. The streams of asyncio keep the reason in a
separate future, which the garbage collector may reach before the stream."""
_IN_ORDER: Final = (
    "Heartbeat failed for group %s because it is rebalancing",
    "Missing sensor state for rebalance",
)
"""Warnings of libraries in every rebalance, which has its own log line."""
REPEAT_AFTER_S: Final = 60.0
"""Minimum time between equal lines of a library, in seconds. While a broker is unavailable, its clients log this about 40 times a second."""
TRACE: Final = "trace"
"""Attribute of a log record: a formatted traceback."""
_LINES: Final = "\n\t"
"""Characters that a traceback keeps."""
ANY_LOGGER: Final = "*"
"""Logger of messages that several programs log under their own names."""
Command = TypeVar("Command", bound=Callable[..., Any])


@functools.cache
def catalog() -> dict[str, dict[str, Any]]:
    """Return all messages by ID: ``logger``, ``level``, ``text``; warnings and errors also have ``means`` and ``do``."""
    return tomllib.loads((files(__package__) / "log_messages.toml").read_text("utf-8"))


@functools.cache
def _ids() -> dict[tuple[str, str], str]:
    return {(entry["logger"], entry["text"]): name for name, entry in catalog().items()}


def message_id(logger: str, template: object) -> str | None:
    """Return the ID of a log record's message; None = not in the catalogue, for example from a library or at debug level.

    Args:
        logger: Name of the record's logger.
        template: Message of the record before its values are filled in.
    """
    if not logger.startswith("ringfence") or not isinstance(template, str):
        return None
    return _ids().get((logger, template)) or _ids().get((ANY_LOGGER, template))


class Repeats(logging.Filter):
    """Filter that passes a library's message once a minute; Ringfence's own lines always pass."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, object], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is shown."""
        if record.name.startswith("ringfence"):
            return True
        error = record.exc_info[1] if record.exc_info else None
        text = str(record.msg)
        if (
            (record.name in _REPORTED and isinstance(error, KafkaError))
            or (text.startswith(_FUTURE) and isinstance(error, OSError))
            or any(warning in text for warning in _IN_ORDER)  # Faust adds its own name before the text
        ):
            return False
        what = (record.name, record.msg)
        now = time.monotonic()
        if now - self._last.get(what, -REPEAT_AFTER_S) < REPEAT_AFTER_S:
            return False
        self._last[what] = now
        return True


class TextFormatter(logging.Formatter):
    """One line for each event, with foreign names and reasons escaped, and the ID at the end; a traceback keeps its lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the lines of a traceback."""
        line, trace = super().format(record), getattr(record, TRACE, None)
        return line if trace is None else f"{line}\n{printable(trace, keep=_LINES)}"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging calls it so
        """Return the line."""
        of_others = not record.name.startswith("ringfence")
        line = printable(super().formatMessage(record), keep="\n\t" if of_others else "")
        known = message_id(record.name, record.msg)
        return line if known is None else f"{line} [{known}]"

    def formatException(self, ei: Any) -> str:  # noqa: N802 - as above
        """Return the traceback, which ends with the exception's text."""
        return printable(super().formatException(ei), keep="\n\t")


class JsonFormatter(logging.Formatter):
    """One JSON object on one line for each event, with any message or traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return time in UTC, level, logger, message and process, and ID and traceback if there are any."""
        document = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        if (known := message_id(record.name, record.msg)) is not None:
            document["id"] = known
        if (trace := getattr(record, TRACE, None)) is not None:
            document["trace"] = trace
        if record.exc_info:
            document["trace"] = self.formatException(record.exc_info)
        if record.stack_info:
            document["stack"] = self.formatStack(record.stack_info)
        return json.dumps(document)


_chosen: Final = {"log_level": "info", "log_format": "text"}
"""Options of the command line."""


def choose(**options: str) -> None:
    """Set ``log_level`` or ``log_format`` for :func:`configure`."""
    _chosen.update(options)


def configure() -> None:
    """Set up logging once, at the start of a process."""
    logging.basicConfig(level=logging.WARNING, force=True)
    for handler in logging.getLogger().handlers:
        handler.addFilter(Repeats())
        handler.setFormatter(JsonFormatter() if _chosen["log_format"] == "json" else TextFormatter(FORMAT))
    logging.getLogger("ringfence").setLevel(_chosen["log_level"].upper())
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    # A broker occasionally answers the first write of a transaction with a retriable error; lanes report lasting ones.
    logging.getLogger("aiokafka.producer.sender").setLevel(logging.ERROR)


def log_options(command: Command) -> Command:
    """Add both options. Environment variables can set them for all programs of a machine."""
    for name, choices, default, text in (
        ("format", ("text", "json"), "text", "json writes an object a line, for log collectors."),
        (
            "level",
            ("debug", "info", "warning", "error"),
            "info",
            "Level of Ringfence's own lines; its libraries always log from warnings on.",
        ),
    ):
        command = click.option(
            f"--log-{name}",
            type=click.Choice(choices, case_sensitive=False),
            default=default,
            show_default=True,
            envvar=f"RINGFENCE_LOG_{name.upper()}",
            show_envvar=True,
            expose_value=False,
            callback=_choose,
            help=text,
        )(command)
    return command


def _choose(_context: click.Context, parameter: click.Parameter, choice: str) -> None:
    choose(**{str(parameter.name): choice})

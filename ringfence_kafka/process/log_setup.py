"""Logging of a process: one clear line an event, or one JSON object, on stderr."""

import json
import logging
import time
from datetime import UTC, datetime
from typing import Any, Final

from aiokafka.errors import KafkaError

from ringfence_kafka.escaping import printable
from ringfence_kafka.process.log_catalog import message_id

FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"

_NOISY: Final = ("faust", "aiokafka", "mode", "aiohttp", "kafka", "asyncio", "urllib3")
"""Libraries that build a debug record an event, at some 14 % of the time, unless their level forbids it."""
_REPORTED: Final = frozenset({"asyncio", "aiokafka.producer.sender"})
"""aiokafka logs a failed transaction with its trace, and in futures that nobody awaits; the lane logs it in a line."""
_FUTURE: Final = "Future exception was never retrieved"
"""Message of asyncio after a refused connection, which the connection's user already reports. The streams of asyncio keep the reason in a
future of their own, and the garbage collector may reach that before the stream."""
_IN_ORDER: Final = (
    "Heartbeat failed for group %s because it is rebalancing",
    "Missing sensor state for rebalance",
)
"""Warnings of libraries in every rebalance, which has a log line of its own."""
REPEAT_AFTER_S: Final = 60.0
"""While a broker is away its clients log it some forty times a second."""
TRACE: Final = "trace"
"""Attribute of a log record: a formatted trace."""
_LINES: Final = "\n\t"
"""Characters that a trace keeps."""


class Repeats(logging.Filter):
    """Lets a library's message through once a minute; Ringfence's own lines always pass."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, object], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is shown."""
        if record.name.startswith("ringfence"):
            return True
        error = record.exc_info[1] if record.exc_info else None
        text = str(record.msg)
        if record.name in _REPORTED and isinstance(error, KafkaError):
            return False
        if text.startswith(_FUTURE) and isinstance(error, OSError):
            return False
        if any(warning in text for warning in _IN_ORDER):  # Faust puts its own name before
            return False
        what = (record.name, record.msg)
        now = time.monotonic()
        if now - self._last.get(what, -REPEAT_AFTER_S) < REPEAT_AFTER_S:
            return False
        self._last[what] = now
        return True


class TextFormatter(logging.Formatter):
    """One line an event, with quoted names and reasons escaped, and its ID at the end; a trace keeps its lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the lines of a trace."""
        line, trace = super().format(record), getattr(record, TRACE, None)
        return line if trace is None else f"{line}\n{printable(trace, keep=_LINES)}"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging calls it so
        """Return the line."""
        of_others = not record.name.startswith("ringfence")
        line = printable(super().formatMessage(record), keep="\n\t" if of_others else "")
        known = message_id(record.name, record.msg)
        return line if known is None else f"{line} [{known}]"

    def formatException(self, ei: Any) -> str:  # noqa: N802 - as above
        """Return the trace, which ends with what the exception says."""
        return printable(super().formatException(ei), keep="\n\t")


class JsonFormatter(logging.Formatter):
    """An object a line, whatever a message or a trace contains."""

    def format(self, record: logging.LogRecord) -> str:
        """Return time in UTC, level, logger, message, process; and ID and trace, where there are any."""
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
    # A broker answers the first write of a transaction with a retriable error now and then; lanes report what lasts.
    logging.getLogger("aiokafka.producer.sender").setLevel(logging.ERROR)

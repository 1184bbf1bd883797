"""Logging of a process: one clear line an event, or one JSON object, on stderr."""

import json
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from aiokafka.errors import KafkaError

from ringfence_kafka.escaping import printable

FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"

_NOISY: Final = ("faust", "aiokafka", "mode", "aiohttp", "kafka", "asyncio", "urllib3")
"""Libraries that build a debug record an event, at some 14 % of the time, unless their level forbids it."""
_TOLD: Final = frozenset({"asyncio", "aiokafka.producer.sender"})
"""aiokafka notes a failed transaction with its trace, and in futures that nobody awaits; the lane tells it in a line."""
_FUTURE: Final = "Future exception was never retrieved"
"""Of a connection that a broker refused, told by whoever asked for it: asyncio's streams keep the reason in a future of their
own, which the collection of rubbish may reach before the stream that retrieves it."""
_IN_ORDER: Final = (
    "Heartbeat failed for group %s because it is rebalancing",
    "Missing sensor state for rebalance",
)
"""Warnings of libraries that come with every rebalance; that there is one is told in a line of its own."""
REPEAT_AFTER_S: Final = 60.0
"""While a broker is away its clients say so some forty times a second."""


TRACE: Final = "trace"
"""Attribute of a log record: a trace that was formatted before."""
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
        if record.name in _TOLD and record.exc_info and isinstance(record.exc_info[1], KafkaError):
            return False
        if (
            str(record.msg).startswith(_FUTURE)
            and record.exc_info
            and isinstance(record.exc_info[1], OSError)
        ):
            return False
        if any(item in str(record.msg) for item in _IN_ORDER):  # Faust puts its own name before
            return False
        what = (record.name, record.msg)
        now = time.monotonic()
        if now - self._last.get(what, -REPEAT_AFTER_S) < REPEAT_AFTER_S:
            return False
        self._last[what] = now
        return True


class TextFormatter(logging.Formatter):
    """One line an event, whatever names and reasons a message quotes; a trace has its lines, and steers no terminal either."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the lines of a trace."""
        line, trace = super().format(record), getattr(record, TRACE, None)
        return line if trace is None else f"{line}\n{printable(trace, keep=_LINES)}"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging calls it so
        """The line."""
        of_others = not record.name.startswith("ringfence")
        return printable(super().formatMessage(record), keep="\n\t" if of_others else "")

    def formatException(self, ei: Any) -> str:  # noqa: N802 - as above
        """The trace, which ends with what the exception says."""
        return printable(super().formatException(ei), keep="\n\t")


class JsonFormatter(logging.Formatter):
    """An object a line, whatever a message or a trace contains."""

    def format(self, record: logging.LogRecord) -> str:
        """Time in UTC, level, logger, message, process; and the trace, where there is one."""
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        if (trace := getattr(record, TRACE, None)) is not None:
            told["trace"] = trace
        if record.exc_info:
            told["trace"] = self.formatException(record.exc_info)
        if record.stack_info:
            told["stack"] = self.formatStack(record.stack_info)
        return json.dumps(told)


@dataclass
class _Chosen:
    level: str = "info"
    as_json: bool = False


_chosen: Final = _Chosen()
"""What the command line asked for: of the process."""


def choose(*, level: str | None = None, as_json: bool | None = None) -> None:
    """Set what :func:`configure` goes by; what is not given stays."""
    if level is not None:
        _chosen.level = level
    if as_json is not None:
        _chosen.as_json = as_json


def configure() -> None:
    """Set up logging once, at the start of a process."""
    logging.basicConfig(level=logging.WARNING, force=True)
    for handler in logging.getLogger().handlers:
        handler.addFilter(Repeats())
        handler.setFormatter(JsonFormatter() if _chosen.as_json else TextFormatter(FORMAT))
    logging.getLogger("ringfence").setLevel(_chosen.level.upper())
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    # A broker answers the first write of a transaction with a retriable error now and then; lanes report what lasts.
    logging.getLogger("aiokafka.producer.sender").setLevel(logging.ERROR)

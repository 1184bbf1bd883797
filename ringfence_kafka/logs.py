"""Logging of a process: one clear line an event, on stderr."""

import logging
import time
from typing import Final

from aiokafka.errors import KafkaError

FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"

_NOISY: Final = ("faust", "aiokafka", "mode", "aiohttp", "kafka", "asyncio")
"""Libraries that build a debug record an event, at some 14 % of the time, unless their level forbids it."""
_TOLD: Final = frozenset({"asyncio", "aiokafka.producer.sender"})
"""aiokafka notes a failed transaction with its trace, and in futures that nobody awaits; the lane tells it in a line."""
REPEAT_AFTER_S: Final = 60.0
"""While a broker is away its clients say so some forty times a second."""


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
        what = (record.name, record.msg)
        now = time.monotonic()
        if now - self._last.get(what, -REPEAT_AFTER_S) < REPEAT_AFTER_S:
            return False
        self._last[what] = now
        return True


def configure(level: int = logging.INFO) -> None:
    """Set up logging once, at the start of a process."""
    logging.basicConfig(format=FORMAT, level=logging.WARNING, force=True)
    for handler in logging.getLogger().handlers:
        handler.addFilter(Repeats())
    logging.getLogger("ringfence").setLevel(level)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    # A broker answers the first write of a transaction with a retriable error now and then; lanes report what lasts.
    logging.getLogger("aiokafka.producer.sender").setLevel(logging.ERROR)

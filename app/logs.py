"""Logging of a process: one clear line an event, on stderr."""

import logging
from typing import Final

FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"

_NOISY: Final = ("faust", "aiokafka", "mode", "aiohttp", "kafka", "asyncio")
"""Libraries that build a debug record an event, at some 14 % of the time, unless their level forbids it."""


def configure(level: int = logging.INFO) -> None:
    """Set up logging once, at the start of a process."""
    logging.basicConfig(format=FORMAT, level=logging.WARNING, force=True)
    logging.getLogger("ringfence").setLevel(level)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    # A broker answers the first write of a transaction with a retriable error now and then; lanes report what lasts.
    logging.getLogger("aiokafka.producer.sender").setLevel(logging.ERROR)

"""What of the product is replaced while worlds run: the I/O, the clocks, the dice. In this one place, and for as long as ``simulated()`` lasts.

The product has no seams for these: it makes its producers, readers and stores where it needs them, and that is as it should be. What is
replaced is found in the modules that use it; which process is meant is known by the loop that runs.
"""

import asyncio
import contextlib
import gc
import logging
import random
import sys
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import ringfence_kafka.producer
import tables.table
from ringfence_kafka import insides, log_reader, waiting
from tests.simulation import questions
from tests.simulation.loop import BuriedError, ProcessLoop
from tests.simulation.producer import SimulatedProducer
from tests.simulation.store import MemoryStore


class _Dice:
    """The product's random numbers, of the world that runs."""

    def __init__(self) -> None:
        self.now = random.Random(0)

    def uniform(self, low: float, high: float) -> float:
        return self.now.uniform(low, high)

    def token_hex(self, count: int) -> str:
        return f"{self.now.getrandbits(8 * count):0{2 * count}x}"


DICE = _Dice()
_monotonic = time.monotonic
_wall = time.time


def _process() -> Any:
    """That runs now; None = none, and it is the time of the machine that is asked for."""
    loop = asyncio._get_running_loop()
    if not isinstance(loop, ProcessLoop):
        return None
    if loop.buried:
        raise BuriedError
    return loop.process


def _virtual_monotonic() -> float:
    process = _process()
    return _monotonic() if process is None else float(process.monotonic())


def _virtual_wall() -> float:
    process = _process()
    return _wall() if process is None else float(process.wall())


@contextlib.contextmanager
def simulated() -> Iterator[None]:
    """Lanes meet the simulated cluster, on virtual time. Logging is off: it costs more than the rest."""
    replaced: list[tuple[Any, str, Any]] = [
        (time, "monotonic", _virtual_monotonic),
        (time, "perf_counter", _virtual_monotonic),
        (time, "time", _virtual_wall),
        (waiting, "random", DICE),
        (tables.table, "secrets", DICE),
        (tables.table, "Store", MemoryStore),
        (log_reader, "read", questions.read),
        (log_reader, "newest", questions.newest),
        (ringfence_kafka.producer, "AIOKafkaProducer", SimulatedProducer),
        (ringfence_kafka.producer, "client_options", lambda _kafka: {}),
        (insides, "never_create", lambda _owner: None),
    ]
    former = logging.root.manager.disable
    with contextlib.ExitStack() as stack:
        for owner, name, replacement in replaced:
            stack.enter_context(mock.patch.object(owner, name, replacement))
        stack.callback(logging.disable, former)
        logging.disable(logging.CRITICAL)
        hook = sys.unraisablehook
        stack.callback(setattr, sys, "unraisablehook", hook)
        sys.unraisablehook = lambda _what: None  # of coroutines that are unwound where they stood
        gc.freeze()
        stack.callback(gc.unfreeze)
        yield

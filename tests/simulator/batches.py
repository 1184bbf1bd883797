"""Try many seeds in several processes. The processes neither unwind nor collect the rest of a world, which saves a sixth of the time."""

import os
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.simulator.runner import Runner
from tests.simulator.worlds import WORLDS

BATCH: Final = 250


class Failure(NamedTuple):
    """A seed that fails."""

    world: str
    seed: int
    number: int
    seconds: float
    said: str


@dataclass
class Tally:
    """Number and CPU time of the schedules that were tried."""

    count: int = 0
    seconds: float = 0.0
    failure: Failure | None = None

    def add(self, other: "Tally") -> None:
        if self.failure is None and other.failure is not None:
            self.failure = other.failure._replace(
                number=other.failure.number + self.count, seconds=other.failure.seconds + self.seconds
            )
        self.count += other.count
        self.seconds += other.seconds


def tally_of(first: int, count: int, worlds: Sequence[str]) -> Tally:
    tally, runner = Tally(), Runner(leaves=True)
    for seed in range(first, first + count):
        for world in worlds:
            began = time.process_time()
            result = runner.run(WORLDS[world](seed))
            tally.seconds += time.process_time() - began
            tally.count += 1
            if result.faults:
                tally.failure = Failure(world, seed, tally.count, tally.seconds, result.faults[0])
                return tally
    return tally


class _Child:
    """A process that makes one tally."""

    def __init__(self, work: Callable[[], Tally]) -> None:
        self._pipe, pipe = os.pipe()
        self._process = os.fork()
        if self._process:
            os.close(pipe)
            return
        status = 1
        try:
            with os.fdopen(pipe, "wb") as told:
                pickle.dump(work(), told)
            status = 0
        finally:
            os._exit(status)

    def tally(self) -> Tally:
        with os.fdopen(self._pipe, "rb") as told:
            found = told.read()
        _, status = os.waitpid(self._process, 0)
        if status:
            raise RuntimeError(f"a process that tried seeds has ended with status {status}")
        tally = pickle.loads(found)  # noqa: S301 - of our own process
        assert isinstance(tally, Tally)
        return tally


def tallies(
    first: int, worlds: Sequence[str], jobs: int, count: int | None, more: Callable[[], bool]
) -> Iterator[Tally]:
    """Yield tallies of batches in the order of the seeds, until ``count`` seeds were tried or ``more`` returns false."""
    children: deque[_Child] = deque()
    try:
        while True:
            while len(children) < jobs and more() and (count is None or count > 0):
                size = BATCH if count is None else min(BATCH, count)
                children.append(_Child(lambda begin=first, size=size: tally_of(begin, size, worlds)))  # type: ignore[misc]
                first += size
                count = None if count is None else count - size
            if not children:
                return
            yield children.popleft().tally()
    finally:
        for child in children:
            child.tally()

"""Run one schedule from its beginning to the judgement of its end."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.simulator.consumers import check as consuming_check
from tests.simulator.consumers.happenings import ConsumerHappenings
from tests.simulator.consumers.schedules import ConsumerSchedule
from tests.simulator.consumers.world import ConsumerWorld
from tests.simulator.happenings import Happenings
from tests.simulator.lanes import check as lane_check
from tests.simulator.lanes.happenings import LaneHappenings
from tests.simulator.lanes.world import LaneWorld
from tests.simulator.play import Play
from tests.simulator.schedules import Schedule
from tests.simulator.world import World

GARBAGE_EVERY: Final = 200
"""Worlds between two garbage collections: their tasks are cycles, and nothing of them runs any more."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a schedule."""

    faults: Sequence[str]
    signature: int
    steps: int
    seconds: float
    trace: Sequence[str]


class Runner:
    """Runs schedules while ``simulated()`` is in force."""

    def __init__(self, *, leaves: bool = False) -> None:
        """Create a runner; ``leaves``: keep ended worlds as they stand, because this process ends soon."""
        self._count = 0
        self._left: list[World] | None = [] if leaves else None

    def run(self, plan: Schedule, *, watched: bool = False) -> Result:
        self._count += 1
        if self._left is None and self._count % GARBAGE_EVERY == 0:
            gc.collect()
        world, happenings, check = _stage(plan)
        trace = world.watch() if watched else []
        try:
            Play(world, happenings).run()
            faults = check()
        except Exception as error:
            faults = [f"{type(error).__name__}: {error}"]
        finally:
            signature = world.signature
            steps, seconds = world.loops.steps, world.loops.now
            if self._left is None:
                world.close()
            else:
                self._left.append(world)
        return Result(faults, signature, steps, seconds, trace)


def _stage(plan: Schedule) -> tuple[World, Happenings, Callable[[], Sequence[str]]]:
    if isinstance(plan, ConsumerSchedule):
        consumers = ConsumerWorld(plan)
        return consumers, ConsumerHappenings(consumers), partial(consuming_check.faults, consumers)
    lanes = LaneWorld(plan)
    return lanes, LaneHappenings(lanes), partial(lane_check.faults, lanes)

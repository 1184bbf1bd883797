"""The simulated cluster answers as the scripts say; tests/integration/test_simulated_cluster.py holds the real one against the same."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.simulator.conformance.transactions import SCRIPTS, Side
from tests.simulator.doubles.admin import SimulatedQuestions
from tests.simulator.doubles.producer import SimulatedProducer
from tests.simulator.kafka.cluster import SimulatedCluster
from tests.simulator.loop import Loops
from tests.simulator.names import settings_of
from tests.simulator.patches import simulated
from tests.simulator.process import Worker


class _Simulated:
    """The simulated cluster as the scripts use it."""

    topic, group = "scripted", "app"

    def __init__(self, process: Worker) -> None:
        settings = process.settings
        self._questions = SimulatedQuestions(
            settings.kafka, settings.app.id, process.cluster, process.network
        )
        self._cluster = process.cluster

    def producer(self, name: str) -> SimulatedProducer:
        return SimulatedProducer(name, 100_000)

    async def ends(self) -> tuple[int, int]:
        stable = await self._questions.stable_end(self.topic, 0)
        return stable, await self._questions.high_watermark(self.topic, 0)

    async def committed(self) -> int | None:
        return await self._questions.committed_offset(self.topic, 0)

    async def values(self) -> list[bytes]:
        return [item.value or b"" for item in self._cluster.log(self.topic, 0).committed()]


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("seed", range(10))
def test_script(name: str, seed: int) -> None:
    script, expected = SCRIPTS[name]
    dice = random.Random(seed)
    loops = Loops(dice)
    cluster = SimulatedCluster(loops, dice)
    cluster.create(_Simulated.topic, 1)
    process = Worker("p0", settings_of("p0", 8, divert=False), cluster, loops, dice)
    told: list[Any] = []

    async def play(script: Callable[[Side], Awaitable[list[Any]]]) -> None:
        told.append(await script(_Simulated(process)))

    with simulated():
        loops.new(process).create_task(play(script))
        loops.run(lambda: bool(told), 10**6, 60)
        loops.bury()

    assert told == [expected]

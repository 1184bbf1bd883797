"""The simulated coordinator answers late requests as the real one does in tests/integration/test_simulated_cluster.py."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka.errors import (
    ConcurrentTransactions,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    ProducerFenced,
)

from tests.simulator.conformance.late_requests import FENCED, NOT_IN_ONE, OUT_OF_ORDER, SCRIPTS, WELL, Side
from tests.simulator.kafka.cluster import SimulatedCluster
from tests.simulator.kafka.transactions import Who
from tests.simulator.loop import Loops
from tests.simulator.names import settings_of
from tests.simulator.patches import simulated
from tests.simulator.process import Worker

TOPIC, NAME = "scripted", "late"


class _Simulated:
    """The simulated cluster as the scripts use it."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._coordinator = cluster.transactions
        self._log = cluster.log(TOPIC, 0)

    async def _ask(self, apply: Callable[..., Any], *args: Any) -> Any:
        while True:
            try:
                answer = apply(*args)
            except ProducerFenced:
                return FENCED
            except InvalidTxnState:
                return NOT_IN_ONE
            except OutOfOrderSequenceNumber:
                return OUT_OF_ORDER
            except ConcurrentTransactions:
                await asyncio.sleep(0.02)
            else:
                return WELL if answer is None else answer

    async def initialise(self) -> int:
        return int(await self._ask(self._coordinator.initialise, NAME))

    async def add(self, epoch: int) -> Any:
        return await self._ask(self._coordinator.add_partitions, Who(NAME, epoch), [self._log])

    async def write(self, epoch: int, sequence: int, value: bytes, *, implicit: bool = False) -> Any:
        record = (0, None, value, ())
        return await self._ask(
            self._coordinator.produce, Who(NAME, epoch, implicit), sequence, self._log, [record]
        )

    async def add_group(self, epoch: int) -> Any:
        return await self._ask(self._coordinator.add_offsets, Who(NAME, epoch))

    async def commit_offset(self, epoch: int, offset: int, *, implicit: bool = False) -> Any:
        return await self._ask(self._coordinator.offsets, Who(NAME, epoch, implicit), {(TOPIC, 0): offset})

    async def end(self, epoch: int, *, commit: bool, implicit: bool = False) -> Any:
        found = await self._ask(self._coordinator.end, Who(NAME, epoch, implicit), commit)
        return found if isinstance(found, str) else found - epoch if implicit else WELL

    async def values(self) -> list[bytes]:
        while self._log.stable < self._log.end:  # noqa: ASYNC110 - of a cluster, which tells nobody
            await asyncio.sleep(0.02)
        return [item.value or b"" for item in self._log.committed()]

    async def committed(self) -> int | None:
        return self._cluster.committed(TOPIC, 0)


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("seed", range(3))
def test_script(name: str, seed: int) -> None:
    script, expected = SCRIPTS[name]
    dice = random.Random(seed)
    loops = Loops(dice)
    cluster = SimulatedCluster(loops, dice)
    cluster.create(TOPIC, 1)
    process = Worker("p0", settings_of("p0", 8, divert=False), cluster, loops, dice)
    told: list[Any] = []

    async def play(script: Callable[[Side], Awaitable[list[Any]]]) -> None:
        told.append(await script(_Simulated(cluster)))

    with simulated():
        loops.new(process).create_task(play(script))
        loops.run(lambda: bool(told), 10**6, 60)
        loops.bury()

    assert told == [expected]

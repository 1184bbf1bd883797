"""A partition's task that gets a new event in the middle of a step."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from ringfence_kafka.concurrency.timeouts import set_within
from ringfence_kafka.ownership.partition_task import PartitionTask
from tests.support.lanes import until

LIMIT_S = 30.0


def _step(name: str) -> Any:
    async def step(tenant: "_Tenant", *_: object) -> str:
        await tenant._step_of(name)
        return "what is open"

    return step


class _Tenant(PartitionTask[object, str]):
    """Writes down what it does; each step that is gated waits until it is let go."""

    def __init__(self) -> None:
        super().__init__("of a test")
        self.done: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.cleaned = asyncio.Event()
        self.cleaned.set()

    async def _step_of(self, name: str) -> None:
        self.done.append(name)
        if name in self.gates:
            try:
                await self.gates[name].wait()
            except asyncio.CancelledError:
                self.done.append(f"{name} is ended")
                await set_within(self.cleaned, LIMIT_S)  # a test that fails must end
                self.done.append(f"{name} has ended")
                raise

    _open, _resume, _drain, _close, _drop = map(_step, ("open", "regain", "drain", "close", "drop"))

    def _failed(self, error: BaseException) -> None:
        self.done.append(repr(error))
        self._tenure.failed(time.monotonic())

    def tell(self, told: Callable[[], None]) -> None:
        told()
        self._disturb()

    def assigned(self) -> None:
        self.tell(lambda: self._tenure.assigned(object()))

    def revoked(self) -> None:
        self.tell(self._tenure.revoked)

    def ended(self) -> None:
        self.tell(self._tenure.ended)

    async def until(self, *done: str) -> None:
        """Require that it has done this, in order, since the last question."""
        await until(lambda: len(self.done) >= len(done), lambda: str(self.done), LIMIT_S)
        for _ in range(10):
            await asyncio.sleep(0)  # nothing more
        assert self.done == list(done)
        self.done.clear()

    async def end(self) -> None:
        assert self._task is not None
        await asyncio.wait_for(self._task, LIMIT_S)


async def _opened() -> _Tenant:
    tenant = _Tenant()
    tenant.assigned()
    await tenant.until("open")
    return tenant


async def _draining() -> _Tenant:
    tenant = await _opened()
    tenant.gates["drain"] = asyncio.Event()
    tenant.ended()
    await tenant.until("drain")
    return tenant


async def test_newer_right_has_an_opening_begin_anew() -> None:
    """An opening under an old assignment releases its resources first, whatever comes meanwhile, and begins again."""
    tenant = _Tenant()
    tenant.gates["open"] = asyncio.Event()
    tenant.cleaned.clear()
    tenant.assigned()
    await tenant.until("open")
    tenant.revoked()
    await tenant.until("open is ended")
    for told in (tenant.assigned, tenant.ended, tenant.assigned):
        told()
    await tenant.until()
    tenant.cleaned.set()
    await tenant.until("open has ended", "open")
    tenant.ended()
    await tenant.end()


@pytest.mark.parametrize("broken", [False, True])
async def test_drained_over_another_rebalance(broken: bool) -> None:
    """A drain continues over a rebalance that still takes the partition away, without a second wait for handlers."""
    tenant = await _opened()
    tenant.gates["drain"] = asyncio.Event()
    if broken:
        tenant.tell(lambda: tenant._tenure.broke(time.monotonic()))
    else:
        tenant.ended()
    await tenant.until("drain")
    tenant.revoked()
    if broken:
        tenant.assigned()
    tenant.ended()
    await tenant.until()
    tenant.gates["drain"].set()
    await tenant.until("close")
    await tenant.end()


async def test_comes_back_while_it_is_drained() -> None:
    """A partition that returns during its drain resumes, and can be drained again."""
    tenant = await _draining()
    tenant.revoked()
    tenant.assigned()
    await tenant.until("drain is ended", "drain has ended", "regain")
    tenant.gates["drain"].set()
    tenant.ended()
    await tenant.until("drain", "close")
    await tenant.end()


async def test_comes_back_in_the_tick_in_which_it_is_drained() -> None:
    """A partition that returns while its drain ends is either closed or resumed, and never both."""
    for ticks in range(6):
        tenant = await _draining()
        tenant.gates["drain"].set()
        for _ in range(ticks):
            await asyncio.sleep(0)
        tenant.assigned()
        for _ in range(10):
            await asyncio.sleep(0)

        assert tenant.done in (["close", "open"], ["drain is ended", "drain has ended", "regain"])
        tenant.ended()
        await tenant.end()


async def test_lost_while_it_is_closed() -> None:
    """A partition lost during its close ends there, and is not given up twice."""
    tenant = await _opened()
    tenant.gates["close"] = asyncio.Event()
    tenant.ended()
    await tenant.until("drain", "close")
    tenant.tell(lambda: tenant._tenure.failed(time.monotonic()))
    tenant.gates["close"].set()
    await tenant.end()

    assert tenant.done == []


async def test_end_of_its_task_gives_up_what_is_open() -> None:
    """A cancelled task leaves nothing open, and may begin again."""
    tenant = await _opened()
    assert tenant._task is not None
    tenant._task.cancel()
    await asyncio.wait([tenant._task])
    tenant.assigned()
    await tenant.until("drop", "open")
    tenant.ended()
    await tenant.end()

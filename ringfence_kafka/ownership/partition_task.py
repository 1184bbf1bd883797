"""Does about a partition what its tenure says, step by step, in a task of its own."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from ringfence_kafka.concurrency.timeouts import cancelled, is_cancelled, set_within
from ringfence_kafka.ownership.partition_state import Action, AssignmentT, PartitionState

Opened = TypeVar("Opened")


class PartitionTask(ABC, Generic[AssignmentT, Opened]):
    """Task of one partition. A method that changes the tenure calls :meth:`_disturb` afterwards."""

    def __init__(self, name: str) -> None:
        """``name``: name of the asyncio task."""
        self._tenure: PartitionState[AssignmentT] = PartitionState()
        self._opened: Opened | None = None
        """The open partition; None = it is not open."""
        self._wake = asyncio.Event()
        self._standing = asyncio.Event()
        """Nothing is under way, nor will be until the tenure changes."""
        self._standing.set()
        self._doing: tuple[Action, AssignmentT | None, asyncio.Task[None]] | None = None
        """The running step and its task, which end when another step is due, and the right that it was begun under."""
        self._task: asyncio.Task[None] | None = None
        self._task_name = name

    # -- the steps ---------------------------------------------------------------------------------------------

    @abstractmethod
    async def _open(self, right: AssignmentT) -> Opened:
        """Go through the order of opening."""

    @abstractmethod
    async def _regain(self, right: AssignmentT, opened: Opened) -> None:
        """Have it confirmed that what is open may go on."""

    async def _work(self, right: AssignmentT, opened: Opened) -> None:
        """Until something else is to be done."""
        await self._told()

    async def _drain(self, opened: Opened) -> None:
        """Let what runs end."""

    async def _close(self, opened: Opened) -> None:
        """Write what is left, and end what is open."""
        await self._drop(opened)

    @abstractmethod
    async def _drop(self, opened: Opened) -> None:
        """End what is open, and write nothing."""

    @abstractmethod
    def _failed(self, error: BaseException) -> None:
        """Note in the tenure that a step raised this error."""

    # -- what makes them -----------------------------------------------------------------------------------------

    def _disturb(self) -> None:
        """React to a change of the tenure: a waiting step looks again, and a step that is not due any more ends."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=self._task_name)
        self._standing.clear()
        self._wake.set()
        if self._doing is not None:
            doing, right, task = self._doing
            due = self._step() is doing and (doing is Action.DRAIN or right is self._tenure.right)
            if not due and not task.cancelling():  # it may be cleaning up
                task.cancel()

    async def _told(self, limit_s: float | None = None) -> None:
        self._wake.clear()
        await set_within(self._wake, limit_s)

    def _step(self) -> Action:
        return self._tenure.step(time.monotonic())

    async def _run(self) -> None:
        """Step by step; nothing but cancellation leaves here."""
        try:
            while (step := self._step()) is not Action.END:
                try:
                    await self._do(step)
                except BaseException as error:
                    # A task that dies here loses the partition in silence. It may mistake the cancellation of an awaited future for its
                    # own, or meet a panic of RocksDB's bindings, which is not an Exception.
                    if is_cancelled() or isinstance(error, KeyboardInterrupt | SystemExit):
                        raise
                    self._failed(error)
        finally:
            if self._opened is not None:
                await self._given_up(self._drop(self._opened))
            self._standing.set()

    async def _do(self, step: Action) -> None:
        right, opened = self._tenure.right, self._opened
        if step is Action.STAND:
            self._standing.set()
            await self._told()
        elif step is Action.REST:
            await self._told(max(0.0, self._tenure.rests_until - time.monotonic()))
        elif step is Action.OPEN and right is not None:
            await self._while_due(step, self._begin(right))
        elif opened is None:
            raise AssertionError(f"{self._task_name}: {step}, and nothing is open")
        elif step is Action.REGAIN and right is not None:
            await self._while_due(step, self._go_on(right, opened))
        elif step is Action.WORK and right is not None:
            await self._work(right, opened)
        elif step is Action.DRAIN:
            await self._while_due(step, self._drain_out(opened))
        else:
            await self._given_up(self._close(opened) if step is Action.CLOSE else self._drop(opened))

    async def _while_due(self, step: Action, work: Coroutine[Any, Any, None]) -> None:
        """Do it as long as it is what is to be done. An opening is half-done then, but nothing of it that the next fence does not end."""
        task = asyncio.create_task(work)
        self._doing = (step, self._tenure.right, task)
        try:
            await asyncio.wait([task])
        finally:
            self._doing = None
            if not task.done():
                await cancelled(task)
        if not (task.cancelled() and task.cancelling()):
            task.result()

    async def _begin(self, right: AssignmentT) -> None:
        self._opened = await self._open(right)
        self._tenure.confirmed(right)

    async def _go_on(self, right: AssignmentT, opened: Opened) -> None:
        await self._regain(right, opened)
        self._tenure.confirmed(right)

    async def _drain_out(self, opened: Opened) -> None:
        await self._drain(opened)
        self._tenure.drained()

    async def _given_up(self, end: Coroutine[Any, Any, None]) -> None:
        try:
            await end
        finally:
            self._opened = None
            self._tenure.given_up()

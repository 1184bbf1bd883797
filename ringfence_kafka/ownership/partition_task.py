"""Task of one partition: performs the steps of its :class:`PartitionState`."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from ringfence_kafka.concurrency.timeouts import cancelled, is_cancelled, set_within
from ringfence_kafka.ownership.partition_state import Action, AssignmentT, PartitionState

Opened = TypeVar("Opened")


class PartitionTask(ABC, Generic[AssignmentT, Opened]):
    """Task of one partition. A method that changes the state calls :meth:`_disturb` afterwards."""

    def __init__(self, name: str) -> None:
        """Create the task's state. ``name``: name of the asyncio task."""
        self._tenure: PartitionState[AssignmentT] = PartitionState()
        self._opened: Opened | None = None
        self._wake = asyncio.Event()
        self._standing = asyncio.Event()
        """Set while nothing runs and nothing starts before the next change of the state."""
        self._standing.set()
        self._doing: tuple[Action, AssignmentT | None, asyncio.Task[None]] | None = None
        """Running step, its assignment and its task. It is cancelled when another step is due."""
        self._task: asyncio.Task[None] | None = None
        self._task_name = name

    # -- the steps, for subclasses ---------------------------------------------------------------------------

    @abstractmethod
    async def _open(self, right: AssignmentT) -> Opened:
        """Perform the steps of the opening in order."""

    @abstractmethod
    async def _resume(self, right: AssignmentT, opened: Opened) -> None:
        """Confirm that the open partition may resume."""

    async def _work(self, right: AssignmentT, opened: Opened) -> None:
        """Process messages until another step is due."""
        await self._await_wake()

    async def _drain(self, opened: Opened) -> None:
        """Wait for running work to end."""

    async def _close(self, opened: Opened) -> None:
        """Write the final position, and close the partition."""
        await self._drop(opened)

    @abstractmethod
    async def _drop(self, opened: Opened) -> None:
        """Close the partition without a write."""

    @abstractmethod
    def _failed(self, error: BaseException) -> None:
        """Record the error of a step in the state."""

    # -- execution of the steps --------------------------------------------------------------------------------

    def _disturb(self) -> None:
        """React to a change of the state: a waiting step checks it, and a step that is no longer due is cancelled."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=self._task_name)
        self._standing.clear()
        self._wake.set()
        if self._doing is not None:
            doing, right, task = self._doing
            due = self._step() is doing and (doing is Action.DRAIN or right is self._tenure.right)
            if not due and not task.cancelling():  # it may be cleaning up
                task.cancel()

    async def _await_wake(self, limit_s: float | None = None) -> None:
        self._wake.clear()
        await set_within(self._wake, limit_s)

    def _step(self) -> Action:
        return self._tenure.step(time.monotonic())

    async def _run(self) -> None:
        """Perform steps until the end. Only a cancellation is raised."""
        try:
            while (step := self._step()) is not Action.END:
                try:
                    await self._do(step)
                except BaseException as error:
                    # A task that dies here would lose the partition unnoticed. The error may be the cancellation of an awaited future, or
                    # a panic of RocksDB's bindings, which is not an Exception.
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
            await self._await_wake()
        elif step is Action.REST:
            await self._await_wake(max(0.0, self._tenure.rests_until - time.monotonic()))
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
        """Run a step while it is due. The next fence undoes all effects of an opening that is cancelled halfway."""
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
        await self._resume(right, opened)
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

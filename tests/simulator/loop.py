"""Event loops of simulated processes on one virtual clock. Within a process callbacks keep asyncio's order; the seed decides all else."""

import asyncio
import contextlib
import contextvars
import math
import random
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from typing import Any, Final

CALLBACK_S: Final = 20e-6
STEPS_MAX: Final = 200_000
"""Most callbacks of one world; with more, something spins."""
_UNWINDINGS: Final = 20


class StepsExceededError(AssertionError):
    """Virtual time does not advance: something spins."""


class BuriedError(BaseException):
    """Raised in a process whose world has ended, so that endless retries end too."""


class Handle:
    """Counterpart of asyncio.Handle and asyncio.TimerHandle, for callbacks that may be cancelled."""

    __slots__ = ("_args", "_callback")

    def __init__(self, callback: Callable[..., object] | None, args: tuple[Any, ...]) -> None:
        self._callback = callback
        self._args = args

    def cancel(self) -> None:
        self._callback = None
        self._args = ()

    def run(self) -> None:
        callback = self._callback
        if callback is not None:
            callback(*self._args)


Call = tuple[Callable[..., object], tuple[Any, ...]]


class ProcessLoop:
    """The event loop of one life of a process: only the methods that tasks, futures and time-outs call."""

    get_debug = bool
    """Returns False. It is called for each future, and a function that is not written in Python answers sooner."""

    def __init__(self, loops: "Loops", process: Any) -> None:
        self.process = process
        """Process of this loop; patched functions of the product find it here."""
        self.ready: deque[Call] = deque()
        self.alive = True
        self.paused = False
        self.buried = False
        """Whether its world has ended: functions that ask for the time then raise :class:`BuriedError`."""
        self._loops = loops
        self._runnable = loops.runnable
        self._tasks: list[asyncio.Task[Any]] = []

    def __repr__(self) -> str:
        return f"a life of {self.process.name}"

    # -- what asyncio calls ------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._loops.now

    @property
    def steps(self) -> int:
        return self._loops.steps

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle | None:
        """Schedule a callback. Tasks and futures pass a context and need no handle; nothing in a world has context variables."""
        handle = None
        if context is None:
            handle = Handle(callback, args)
            callback, args = handle.run, ()
        if self.alive:
            ready = self.ready
            if not ready and not self.paused:
                self._runnable.append(self)
            ready.append((callback, args))
        return handle

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Handle:
        return self.call_at(self._loops.now + delay, callback, *args)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Handle:
        handle = Handle(callback, args)
        if self.alive:
            loops = self._loops
            loops.count += 1
            heappush(loops.timers, (when, loops.count, self, handle, ()))
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)  # type: ignore[arg-type]

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> "asyncio.Task[Any]":
        if not self.alive:
            coro.close()
            raise RuntimeError("the process is dead")
        task = asyncio.Task(coro, loop=self, name=name or "task", context=context)  # type: ignore[arg-type]
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.buried:
            self._loops.unasked.append(context)

    # -- what the world does -----------------------------------------------------------------------------------

    def come(self, handle: Handle) -> None:
        if not self.ready and not self.paused:
            self._runnable.append(self)
        self.ready.append((handle.run, ()))

    def crash(self) -> None:
        self.alive = False
        self.ready.clear()
        with contextlib.suppress(ValueError):
            self._loops.runnable.remove(self)

    def pause(self) -> None:
        """Pause as SIGSTOP does: nothing runs until :meth:`resume`, while time goes on."""
        self.paused = True
        with contextlib.suppress(ValueError):
            self._loops.runnable.remove(self)

    def resume(self) -> None:
        if self.paused and self.alive:
            self.paused = False
            if self.ready:
                self._loops.runnable.append(self)

    def unwind(self) -> None:
        """End all coroutines; nothing notices what they do on the way."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            if task.done():
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            for _ in range(_UNWINDINGS):
                try:
                    coroutine.close()
                    break
                except BaseException:  # noqa: S112 - whatever it does, it is dead
                    continue


class Running:
    """The loop that runs. asyncio knows it too, but makes a system call for each query."""

    def __init__(self) -> None:
        self.loop: ProcessLoop | None = None

    def set(self, loop: ProcessLoop | None) -> None:
        self.loop = loop
        events._set_running_loop(loop)  # type: ignore[arg-type]


RUNNING: Final = Running()


class Loops:
    """Loops of all processes, the clock, and the cluster's own timers."""

    def __init__(self, dice: random.Random) -> None:
        self.now = 0.0
        self.steps = 0
        self.dice = dice
        self.runnable: list[ProcessLoop] = []
        self.unasked: list[dict[str, Any]] = []
        self.due = 0
        """Number of callbacks after which :meth:`run` returns; set it to :attr:`steps` to return at once."""
        self.timers: list[tuple[float, int, ProcessLoop | None, Any, tuple[Any, ...]]] = []
        """Timers. A process's timer has its loop and a handle; the cluster's has no loop, but a function and its arguments."""
        self.count = 0
        self.look_at = 0.0
        """Time before which :meth:`run` need not call ``until``, which may set it."""
        self._loops: list[ProcessLoop] = []

    def new(self, process: Any) -> ProcessLoop:
        loop = ProcessLoop(self, process)
        self._loops.append(loop)
        return loop

    def after(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        self.count += 1
        heappush(self.timers, (self.now + delay, self.count, None, callback, args))

    def run(self, until: Callable[[], bool], due: int, limit_s: float) -> None:
        """Run until ``until`` holds (asked whenever nothing is ready), ``due`` callbacks were run, or the clock shows ``limit_s``."""
        self.due, self.look_at = min(due, STEPS_MAX + 1), 0.0
        runnable, timers, dice = self.runnable, self.timers, self.dice.random
        current: ProcessLoop | None = None
        try:
            while self.steps < self.due:
                if timers and timers[0][0] <= self.now:
                    _, _, of, what, args = heappop(timers)
                    if of is None:
                        what(*args)
                    elif what._callback is not None and of.alive:
                        of.come(what)
                    continue
                if not runnable:
                    if (self.now >= self.look_at and until()) or not self._jump(limit_s):
                        return
                    continue
                place = 0 if len(runnable) == 1 else int(dice() * len(runnable))
                loop = runnable[place]
                if loop is not current:
                    RUNNING.set(loop)
                    current = loop
                ready = loop.ready
                what, args = ready[0]  # stays there meanwhile, so that new callbacks come behind it
                what(*args)
                ready.popleft()
                if not ready:
                    del runnable[place]
                self.steps += 1
                self.now += CALLBACK_S
        finally:
            RUNNING.set(None)
        if self.steps > STEPS_MAX:
            raise StepsExceededError(f"{STEPS_MAX} callbacks in {self.now:.1f} virtual seconds")

    def _jump(self, limit_s: float) -> bool:
        """Jump to the next timer that has an effect; return whether there is one before the limit."""
        timers = self.timers
        while timers:
            soonest, _, of, what, _ = timers[0]
            if of is None or (what._callback is not None and of.alive):
                break
            heappop(timers)
        else:
            soonest = math.inf
        if soonest > limit_s:
            self.now = max(self.now, limit_s)
            return False
        if timers:
            self.now = soonest
        return bool(timers)

    def bury(self) -> None:
        """End the world: unwind what is left of all processes, so that nothing of it runs in another world."""
        for loop in self._loops:
            loop.alive, loop.buried = False, True
        for loop in self._loops:
            RUNNING.set(loop)
            loop.unwind()
        RUNNING.set(None)
        self.timers.clear()
        self.runnable.clear()
        for loop in self._loops:
            loop.ready.clear()
        self._loops.clear()

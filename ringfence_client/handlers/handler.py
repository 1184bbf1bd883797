"""Handlers: checks of a function, runs in the event loop or in threads, and runs that ignore their cancellation.

A handler that returns acknowledges its message. A function that only *seems* to run, such as a generator function, must not pass for a
handler.
"""

import asyncio
import concurrent.futures
import contextlib
import inspect
import os
import sys
import time
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Final

from ringfence_client.handlers.message import Message
from ringfence_kafka.concurrency.timeouts import is_cancelled
from ringfence_kafka.errors import ConfigurationError

Handler = Callable[[Any], Any]
"""Called with a message or, with batches, with a list of messages."""
SOON_S: Final = 0.5
RUNS_MIN: Final = 100
"""Number of runs below which their durations say nothing about the next runs."""
BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the buckets, in seconds. Handlers range from a cache lookup to a job of minutes."""

Log = tuple[str, int, str]
"""Topic, partition and Kafka's ID of the topic, as in :class:`Fence`. A deleted topic of the same name has other messages."""


class HandlerError(ConfigurationError):
    """The handler can never handle a message, or its return value shows that it did not."""


class HandlerEndedError(Exception):
    """The consumer or an operator ended a handler's run."""


def check_handler(
    handler: Any, name: str, argument: str = "one message", example: str = "async def handle(message)"
) -> None:
    """Check that a function can be called with one argument, and that a call runs it. ``argument`` and ``example`` describe it in errors.

    Raises:
        HandlerError: A check failed; the text has a correct form.
    """
    if inspect.isclass(handler):
        raise HandlerError(
            f"{name} is a class: a call would make an instance and handle nothing; give a function, or a method of an instance"
        )
    if not callable(handler):
        raise HandlerError(f"{name} is not a function")
    for item in (handler, getattr(handler, "__call__", None)):  # noqa: B004 - an object whose __call__ is one
        if inspect.isgeneratorfunction(item) or inspect.isasyncgenfunction(item):
            raise HandlerError(
                f"{name} is a generator function (it has a yield): a call runs nothing of it, and every message would be "
                "acknowledged unhandled; write it without yield"
            )
    try:
        signature = inspect.signature(handler)
    except (ValueError, TypeError):
        return  # a builtin has no known signature
    try:
        signature.bind(object())
    except TypeError as error:
        raise HandlerError(
            f"{name}{signature} cannot be called with {argument} ({error}): write for example {example}"
        ) from error


class RunTimes:
    """Number of runs by duration."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """Number of runs by bucket. The last bucket is above all bounds."""
        self.sum_s = 0.0
        self.count = 0

    def record(self, seconds: float) -> None:
        """Count a run. Called for each message: a library's histogram takes three times as long."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds
        self.count += 1


class HandlerRuns:
    """Handler calls of one consumer."""

    def __init__(self, handler: Handler, concurrency: int, *, batches: bool = False) -> None:
        """Wrap a coroutine function, or a plain one, which runs in threads. With ``batches`` it takes a list of messages."""
        self._handler = handler
        self._batches = batches
        self._concurrency = concurrency
        self._pool = None if is_async(handler) else self._new_pool()
        self.in_threads = self._pool is not None
        self._left: dict[tuple[Log, int], asyncio.Future[Any]] = {}
        self._begun: dict[object, tuple[Message, float]] = {}
        self._outliving: dict[tuple[Log, int], tuple[Message, float]] = {}
        """Runs that outlive their turns, with their start times."""
        self.times = RunTimes()

    async def call(self, messages: list[Message]) -> None:
        """Call the handler with a message, or with a batch, and raise what it raised. If this task is cancelled, a thread continues.

        Raises:
            HandlerError: The handler returned a generator, which has run nothing.
        """
        process, began, run = os.getpid(), time.monotonic(), object()
        self._begun[run] = messages[0], began
        argument: Any = messages if self._batches else messages[0]
        try:
            if self._pool is None:
                result = await self._handler(argument)
            else:
                result = await self._in_thread(messages[0], argument, self._pool)
            if result is not None:
                await _completed(result)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            # The handler awaited something that was cancelled. That must not cancel the slot.
            raise RuntimeError("what the handler waited for was cancelled") from None
        finally:
            _end_child(process)
            del self._begun[run]
            self.times.record(time.monotonic() - began)

    def longest(self) -> dict[int, tuple[Message, float]]:
        """Return the message with the longest present run and its seconds, by partition."""
        now, found = time.monotonic(), dict[int, tuple[Message, float]]()
        for message, began in self._begun.values():  # in the order of their starts
            found.setdefault(message.partition, (message, now - began))
        return found

    def running(self) -> list[tuple[Message, float]]:
        """Return the first message and the seconds of each present run, the longest first. Abandoned runs are included."""
        now, runs = time.monotonic(), [*self._outliving.values(), *self._begun.values()]
        found = {(message.held.log, message.offset): (message, now - began) for message, began in runs}
        return sorted(found.values(), key=lambda run: -run[1])

    def left(self, log: Log, offset: int) -> "asyncio.Future[Any] | None":
        """Return the run of this message that outlives its turn. A new turn of the message waits for it."""
        return self._left.get((log, offset)) if self._left else None

    def any_left(self, log: Log) -> bool:
        """Return whether such a run of any message of a partition continues."""
        return any(key[0] == log for key in self._left)

    @property
    def longest_s(self) -> float:
        """Duration of the oldest present run, in seconds; 0 = no run. Abandoned threads do not count."""
        return next((time.monotonic() - began for _, began in self._begun.values()), 0.0)

    def soon(self) -> int:
        """Return the number of runs that all handlers together finish in :data:`SOON_S`, by previous durations."""
        runs = self.times.count
        if runs < RUNS_MIN or self.longest_s > SOON_S:
            return 0
        return int(SOON_S * self._concurrency * runs / max(self.times.sum_s, 1e-6))

    @property
    def left_behind(self) -> int:
        """Number of runs that outlive their turns."""
        return len(self._left)

    def outlives(self, log: Log, offset: int, run: "asyncio.Future[Any]") -> None:
        """Record a run that outlives its turn, until it ends."""
        key = (log, offset)
        self._left[key] = run
        for message, began in self._begun.values():
            if (message.held.log, message.offset) == key:
                self._outliving[key] = message, began

        def ended(_: "asyncio.Future[Any]") -> None:
            if self._left.get(key) is run:
                del self._left[key]
                self._outliving.pop(key, None)
            if not run.cancelled():
                run.exception()  # marks the exception as retrieved

        run.add_done_callback(ended)

    def stop(self) -> None:
        """Start no more runs in threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _new_pool(self) -> concurrent.futures.ThreadPoolExecutor:
        return concurrent.futures.ThreadPoolExecutor(self._concurrency, "ringfence-handler")

    async def _in_thread(
        self, message: Message, argument: Any, pool: concurrent.futures.ThreadPoolExecutor
    ) -> Any:
        run: concurrent.futures.Future[Any] = pool.submit(_called, self._handler, argument)
        thread = asyncio.wrap_future(run)
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            if thread.done() and not thread.cancelled():
                return thread.result()  # the run ended at this moment
            # A thread cannot be ended, unless it has not started.
            if not run.cancel():
                self.outlives(message.held.log, message.offset, asyncio.create_task(_to_its_end(thread)))
                if pool is self._pool:
                    # The thread may occupy its place for ever, and other runs need the places. Runs in the old pool end there.
                    pool.shutdown(wait=False)
                    self._pool = self._new_pool()
            raise


def _called(handler: Handler, argument: Any) -> Any:
    """Call the handler in a thread. Two classes of exceptions must not reach the coroutine that waits.

    asyncio refuses StopIteration, so the coroutine would wait for ever. GeneratorExit closes all coroutines of the task.
    """
    process = os.getpid()
    try:
        return handler(argument)
    except (StopIteration, GeneratorExit) as error:
        raise RuntimeError(f"the handler raised {type(error).__name__}") from error
    finally:
        _end_child(process)


def _end_child(process: int) -> None:
    """End this process if a handler forked it. It would share the connections of ``process``."""
    if os.getpid() != process:
        sys.stderr.write(
            "ringfence: a process that the handler forked returned from it, and ends here; end it with os._exit\n"
        )
        sys.stderr.flush()
        os._exit(1)


async def _to_its_end(thread: "asyncio.Future[Any]") -> None:
    """Wait for an abandoned thread, and for the awaitable that it returns."""
    await _completed(await thread)


async def _completed(result: Any) -> None:
    """Await nested results of a handler until nothing is left to run."""
    while inspect.isawaitable(result) or isinstance(result, concurrent.futures.Future):
        result = await (result if inspect.isawaitable(result) else _of_executor(result))
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise HandlerError(
            f"the handler returned a generator ({result!r}): nothing of it has run; return when the message is handled"
        )


async def _of_executor(run: "concurrent.futures.Future[Any]") -> Any:
    """Wait for a future's result. asyncio's own conversion turns StopIteration into a RuntimeError."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def ended(_: "concurrent.futures.Future[Any]") -> None:
        with contextlib.suppress(RuntimeError):  # the loop ended before the run
            loop.call_soon_threadsafe(over.set)

    run.add_done_callback(ended)
    try:
        await over.wait()
    except asyncio.CancelledError:
        run.cancel()
        raise
    return run.result()


def is_async(handler: Handler) -> bool:
    """Return whether a handler is a coroutine function, or an object with one."""
    call = getattr(handler, "__call__", handler)  # noqa: B004 - an object with an asynchronous __call__
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)

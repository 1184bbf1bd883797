"""Handlers: what may be one; their runs, in the event loop or in threads; and runs that nobody could end.

A handler that returns acknowledges its message. A function that only *looks* as if it ran, such as a generator function, must not pass for
a handler.
"""

import asyncio
import concurrent.futures
import contextlib
import inspect
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from ringfence_client.handlers.message import Message
from ringfence_client.handlers.run_times import RunTimes
from ringfence_kafka.concurrency.timeouts import is_cancelled
from ringfence_kafka.errors import ConfigurationError

Handler = Callable[[Any], Any]
"""Called with a message; with batches, with a list of messages."""
SOON_S: Final = 0.5
RUNS_MIN: Final = 100
"""Fewer say nothing of the next ones."""

Log = tuple[str, int, str]
"""As a :class:`Fence` has it: a message of a topic of that name that was deleted is another one."""


class HandlerError(ConfigurationError):
    """The handler can never handle a message, or its return value shows that it did not."""


class HandlerEndedError(Exception):
    """A handler's run was ended by somebody else."""


def check_handler(
    handler: Any, name: str, argument: str = "one message", example: str = "async def handle(message)"
) -> None:
    """Make sure that a function can be called with one argument, and that a call runs it.

    Args:
        handler: The function.
        name: Its name in the error.
        argument: Its argument, for the error.
        example: How it may be written.

    Raises:
        HandlerError: it cannot, or it would not; the text says how it should look.
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
        return  # of a builtin nobody knows
    try:
        signature.bind(object())
    except TypeError as error:
        raise HandlerError(
            f"{name}{signature} cannot be called with {argument} ({error}): write for example {example}"
        ) from error


class HandlerRuns:
    """Handler calls of one consumer."""

    def __init__(self, handler: Handler, concurrency: int, *, batches: bool = False) -> None:
        """Wrap a coroutine function, or a plain one, which runs in threads. With ``batches`` it takes a list of messages."""
        self._handler = handler
        self._batches = batches
        self._concurrency = concurrency
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        if not _is_async(handler):
            self._pool = self._new_pool()
        self.in_threads = self._pool is not None
        self._left: dict[tuple[Log, int], asyncio.Future[Any]] = {}
        self._begun: dict[object, tuple[Message, float]] = {}
        """Runs that go on, with when they began."""
        self._outliving: dict[tuple[Log, int], tuple[Message, float]] = {}
        """The same of runs that outlive their turns."""
        self.times = RunTimes()
        """Durations of all runs, however they ended."""

    async def call(self, messages: list[Message]) -> None:
        """Call the handler with a message, or with a batch.

        Raises:
            CancelledError: somebody cancelled this task; a thread goes on meanwhile.
            HandlerError: it returned a generator, of which nothing has run.
            Exception: what the handler raised.
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
            # Not we: the handler waited for something that was cancelled. That must not end who runs it.
            raise RuntimeError("what the handler waited for was cancelled") from None
        finally:
            _end_child(process)
            del self._begun[run]
            self.times.add(time.monotonic() - began)

    def longest(self) -> dict[int, tuple[Message, float]]:
        """Return the message with the longest present run and its seconds, by partition."""
        now, found = time.monotonic(), dict[int, tuple[Message, float]]()
        for message, began in self._begun.values():  # in the order of their beginnings
            found.setdefault(message.partition, (message, now - began))
        return found

    def running(self) -> list[tuple[Message, float]]:
        """Return the first message of each run that goes on, and its seconds, the longest first. Runs that were left behind count too."""
        now, runs = time.monotonic(), [*self._outliving.values(), *self._begun.values()]
        found = {(message.held.log, message.offset): (message, now - began) for message, began in runs}
        return sorted(found.values(), key=lambda run: -run[1])

    def left(self, log: Log, offset: int) -> "asyncio.Future[Any] | None":
        """Return the run of this message that outlives its turn; a new turn of the message waits for it."""
        return self._left.get((log, offset)) if self._left else None

    def any_left(self, log: Log) -> bool:
        """Whether such a run of any message of a partition goes on."""
        return any(key[0] == log for key in self._left)

    @property
    def longest_s(self) -> float:
        """How long the run that began first goes on already, in seconds; 0 = none does. A thread that was left behind does not count."""
        return next((time.monotonic() - began for _, began in self._begun.values()), 0.0)

    def soon(self) -> int:
        """Return how many runs all handlers together end in :data:`SOON_S`, as the runs of before did."""
        runs = self.times.count
        if runs < RUNS_MIN or self.longest_s > SOON_S:
            return 0
        return int(SOON_S * self._concurrency * runs / max(self.times.sum_s, 1e-6))

    @property
    def left_behind(self) -> int:
        """How many runs outlive their turns."""
        return len(self._left)

    def outlives(self, log: Log, offset: int, run: "asyncio.Future[Any]") -> None:
        """Note that this run does; it is forgotten when it ends."""
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
                run.exception()  # nobody else may ask

        run.add_done_callback(ended)

    def stop(self) -> None:
        """Begin nothing more in threads."""
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
                return thread.result()  # it ended just then
            # A thread cannot be ended, unless it has not begun.
            if not run.cancel():
                self.outlives(message.held.log, message.offset, asyncio.create_task(_to_its_end(thread)))
                if pool is self._pool:
                    # It may keep its place for ever, which the others need: what runs in the old threads ends there.
                    pool.shutdown(wait=False)
                    self._pool = self._new_pool()
            raise


def _called(handler: Handler, argument: Any) -> Any:
    """Call it in a thread. Two classes mean something to the coroutine that waits, and must not get there.

    asyncio takes no StopIteration: who waits would wait for ever. A GeneratorExit closes all coroutines up to the task's.
    """
    process = os.getpid()
    try:
        return handler(argument)
    except (StopIteration, GeneratorExit) as error:
        raise RuntimeError(f"the handler raised {type(error).__name__}") from error
    finally:
        _end_child(process)


def _end_child(process: int) -> None:
    """End this process if a handler forked it. It would use the connections of ``process`` as if they were its own."""
    if os.getpid() != process:
        sys.stderr.write(
            "ringfence: a process that the handler forked returned from it, and ends here; end it with os._exit\n"
        )
        sys.stderr.flush()
        os._exit(1)


async def _to_its_end(thread: "asyncio.Future[Any]") -> None:
    """Wait for a thread's run that nobody waits for any more, and for what it returns."""
    await _completed(await thread)


async def _completed(result: Any) -> None:
    """Wait until nothing of what a handler returned is left to run."""
    while result is not None and (more := _awaitable(result)) is not None:
        result = await more
    if result is not None and (inspect.isgenerator(result) or inspect.isasyncgen(result)):
        raise HandlerError(
            f"the handler returned a generator ({result!r}): nothing of it has run; return when the message is handled"
        )


def _awaitable(result: Any) -> Any | None:
    """Return a result that has not run to its end yet, such as a coroutine of a plain function."""
    if isinstance(result, concurrent.futures.Future):
        return _of_executor(result)
    return result if inspect.isawaitable(result) else None


async def _of_executor(run: "concurrent.futures.Future[Any]") -> Any:
    """Wait for its result. asyncio's own way takes no StopIteration: out of a coroutine it comes as a RuntimeError."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def ended(_: "concurrent.futures.Future[Any]") -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended before it
            loop.call_soon_threadsafe(over.set)

    run.add_done_callback(ended)
    try:
        await over.wait()
    except asyncio.CancelledError:
        run.cancel()
        raise
    return run.result()


def _is_async(handler: Handler) -> bool:
    call = getattr(handler, "__call__", handler)  # noqa: B004 - an object with an asynchronous __call__
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)

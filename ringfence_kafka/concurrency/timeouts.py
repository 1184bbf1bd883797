"""Asyncio helpers: timeouts, cancelling a task and awaiting it, exponential back-off."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def set_within(event: asyncio.Event, limit_s: float | None) -> bool:
    """Return whether the event was set within ``limit_s`` seconds; None = wait without a limit.

    In Python 3.11 ``asyncio.wait_for`` loses a cancellation that arrives together with the event; this function does not.
    """
    try:
        async with asyncio.timeout(limit_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


def is_cancelled() -> bool:
    """Return whether the current task was cancelled: a ``CancelledError`` may also come from an awaited future."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def cancelled(task: "asyncio.Task[Any]") -> None:
    """Cancel a task and wait for its end. Its result and its error are discarded."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Complete a coroutine that never raises. A cancellation of the caller is raised afterwards."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def back_off(attempt: int, first_s: float, most_s: float) -> float:
    """Return the delay before the next attempt, in seconds: it doubles up to a limit, with 20 % of random spread.

    ``attempt``: number of failed attempts, from 1.
    """
    return min(most_s, first_s * float(2 ** min(attempt - 1, 20))) * random.uniform(0.8, 1.2)  # noqa: S311


def retrieve_outcome(future: "asyncio.Future[Any]") -> None:
    """Retrieve a future's error for a caller that may give up first: otherwise Python prints it as never retrieved."""
    if not future.cancelled():
        future.exception()


class StoppingError(Exception):
    """A stop was requested."""


async def unless(stopping: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Wait for the result of ``work``, or until ``stopping``.

    Raises:
        StoppingError: the stop came first; the work was cancelled.
    """
    task, stopped = asyncio.create_task(work), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise StoppingError
        return task.result()
    finally:
        stopped.cancel()
        await cancelled(task)

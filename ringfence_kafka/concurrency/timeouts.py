"""Asyncio helpers: timeouts, cancelling a task and awaiting it, exponential back-off."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any


async def set_within(event: asyncio.Event, limit_s: float | None) -> bool:
    """Whether it was set within so many seconds; None = however long it takes.

    In Python 3.11 ``asyncio.wait_for`` loses a cancel that comes together with the event; this does not.
    """
    try:
        async with asyncio.timeout(limit_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


def is_cancelled() -> bool:
    """Whether somebody has cancelled the task that runs now: a ``CancelledError`` may also be of what it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def cancelled(task: "asyncio.Task[Any]") -> None:
    """End a task whose outcome nobody wants, or has asked for before. Never raises what it raised."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Do something that never raises, also when who asks for it is cancelled meanwhile: the cancel comes after it."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def back_off(attempt: int, first_s: float, most_s: float) -> float:
    """Seconds before the next attempt: doubled after each failure, up to a limit, and a fifth more or less, so that many spread.

    ``attempt`` is the number of attempts that have failed, from 1 on.
    """
    return min(most_s, first_s * float(2 ** min(attempt - 1, 20))) * random.uniform(0.8, 1.2)  # noqa: S311


def note_outcome(future: "asyncio.Future[Any]") -> None:
    """Look at a future's error, for who may give up before it: else Python prints it as never retrieved."""
    if not future.cancelled():
        future.exception()

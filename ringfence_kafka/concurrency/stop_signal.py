"""Runs work that a request to stop interrupts."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ringfence_kafka.concurrency.timeouts import cancelled

T = TypeVar("T")


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

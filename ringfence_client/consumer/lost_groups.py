"""Calls ``lost(groups)`` of a handler's module when their partition is released or lost."""

import asyncio
import contextlib
import inspect
import logging
import threading
from collections.abc import Callable, Collection
from typing import Any, Final

from ringfence_kafka.errors import named

log: Final = logging.getLogger("ringfence.consumer")

LOST_LIMIT_S: Final = 5.0
"""Time limit of the function, in seconds. After that the partition is released anyway."""

Lost = Callable[[Collection[bytes]], Any]
"""A coroutine function, or a plain one, which runs in a thread."""


class LostGroups:
    """Calls ``lost(groups)`` when a partition was released or lost."""

    def __init__(self, lost: Lost | None) -> None:
        """Prepare the calls. ``lost``: the function; None = the application has no such function."""
        self._lost = lost

    async def report(self, place: str, groups: Collection[bytes]) -> None:
        """Report that these groups of a partition are lost. Never raises."""
        if self._lost is None or not groups:
            return
        try:
            async with asyncio.timeout(LOST_LIMIT_S):
                if inspect.iscoroutinefunction(self._lost):
                    await self._lost(groups)
                else:
                    await _in_thread(self._lost, groups)
        except TimeoutError:
            log.error(
                "%s: lost(groups) does not end within %g s: the partition is released without it, and "
                "caches may be old when it returns",
                place, LOST_LIMIT_S,
            )  # fmt: skip
        except Exception as error:
            log.error(
                "%s: lost(groups) failed, so caches of %d groups may be old when the partition returns: %s",
                place, len(groups), named(error), exc_info=error,
            )  # fmt: skip


async def _in_thread(lost: Lost, groups: Collection[bytes]) -> None:
    """Call a plain function in a thread that does not delay the end of the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def set_result(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            lost(groups)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(set_result, error)

    threading.Thread(target=run, name="ringfence-lost", daemon=True).start()
    await done

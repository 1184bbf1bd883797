"""Calls ``lost(groups)`` of a handler's module when their partition is gone."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Collection
from typing import Any, Final

from ringfence_kafka.errors import named

log: Final = logging.getLogger("ringfence.consumer")

LOST_LIMIT_S: Final = 5.0
"""A partition is given away no later than that, however long the function takes."""

Lost = Callable[[Collection[bytes]], Any]
"""A coroutine function, or a plain one, which runs in a thread."""


class LostGroups:
    """Calls ``lost(groups)`` when a partition was given away or lost."""

    def __init__(self, lost: Lost | None) -> None:
        """``lost``: None = nobody is told."""
        self._lost = lost

    async def tell(self, place: str, groups: Collection[bytes]) -> None:
        """Tell that these groups of a partition are gone. Never raises."""
        if self._lost is None or not groups:
            return
        try:
            async with asyncio.timeout(LOST_LIMIT_S):
                if inspect.iscoroutinefunction(self._lost):
                    await self._lost(groups)
                else:
                    await asyncio.to_thread(self._lost, groups)
        except TimeoutError:
            log.error(
                "%s: lost(groups) does not end within %g s: the partition is given away without it, and caches may be old when it returns",
                place, LOST_LIMIT_S,
            )  # fmt: skip
        except Exception as error:
            log.error(
                "%s: lost(groups) failed, so caches of %d groups may be old when the partition returns: %s",
                place, len(groups), named(error), exc_info=error,
            )  # fmt: skip

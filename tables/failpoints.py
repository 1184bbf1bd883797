"""Named points where a fault can be made to happen. Off unless asked for.

A promise about crashes is worth what its tests are, and a kill at a random moment rarely hits the few lines
that matter. ``RINGFENCE_FAILPOINTS="after-commit:orders-0=kill@3"`` ends the process by SIGKILL when lane
orders-0 reaches the point for the third time; ``*`` stands for any lane, ``@n`` may be left out, several are
separated by commas. Inside one process :func:`install` puts any coroutine function at a point.
"""

import os
import re
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from conf.errors import ConfigurationError

Action = Callable[[str, str], Awaitable[None]]
"""Called with the point and the lane."""

POINTS: Final = frozenset(
    {"opening", "before-fence", "after-fence", "restoring", "after-restore", "before-send", "after-send",
     "before-commit", "after-commit", "before-store", "after-store"}
)  # fmt: skip

_actions: dict[tuple[str, str], Action] = {}
_SPECIFICATION: Final = re.compile(r"(?P<point>[a-z-]+):(?P<lane>[^=]+)=kill(@(?P<nth>[1-9]\d*))?$")


def install(point: str, lane: str, action: Action) -> Callable[[], None]:
    """Put an action at a point of a lane (``*`` = of any); returns what takes it away again."""
    if point not in POINTS:
        raise ConfigurationError(f"{point!r} is no fail point: known are {', '.join(sorted(POINTS))}")
    _actions[point, lane] = action

    def remove() -> None:
        _actions.pop((point, lane), None)

    return remove


async def reach(point: str, lane: str) -> None:
    """Called by the code at each point. With no action installed it costs a truth test."""
    if not _actions:
        return
    action = _actions.get((point, lane)) or _actions.get((point, "*"))
    if action is not None:
        await action(point, lane)


def install_from_environment() -> None:
    """Read ``RINGFENCE_FAILPOINTS``.

    Raises:
        ConfigurationError: it cannot be read.
    """
    for each in filter(None, os.environ.get("RINGFENCE_FAILPOINTS", "").split(",")):
        match = _SPECIFICATION.match(each.strip())
        if match is None:
            raise ConfigurationError(
                f"environment: RINGFENCE_FAILPOINTS: {each!r} is not POINT:LANE=kill or POINT:LANE=kill@N"
            )
        install(match["point"], match["lane"], _kill_at(int(match["nth"] or 1)))


def _kill_at(nth: int) -> Action:
    reached: Counter[str] = Counter()

    async def act(point: str, lane: str) -> None:  # noqa: ARG001 - an action takes both
        reached[lane] += 1
        if reached[lane] == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    return act

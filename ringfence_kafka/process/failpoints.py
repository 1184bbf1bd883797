"""Named points for fault injection; none is active by default.

``RINGFENCE_FAILPOINTS="after-commit:orders-0=kill@3"`` kills the process with SIGKILL when lane orders-0 reaches the point for the third
time; ``=stop`` suspends it there with SIGSTOP. ``*`` stands for any lane, ``@n`` is optional, commas separate several points. Within a
process :func:`install` sets any coroutine function at a point.
"""

import os
import re
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from ringfence_kafka.errors import ConfigurationError

Action = Callable[[str, str], Awaitable[None]]
"""Called with the point and the lane."""

POINTS: Final = frozenset(
    {"opening", "before-fence", "after-fence", "restoring", "mid-restore", "after-restore", "after-fetch",
     "before-send", "mid-send", "after-send", "forwarding", "re-slotting", "before-commit", "after-commit",
     "before-store", "after-store"}
)  # fmt: skip
"""Points in the order in which a lane reaches them. ``mid-restore`` follows each part of the changelog, ``mid-send`` each record batch.
``forwarding`` and ``re-slotting`` are in a transaction that is sent and not committed, if it forwards records or is the first with
another ring size. The holder of a consumer's partition also has points: ``opening`` at each check of the lease, those of the fence, and
those of a transaction up to ``before-commit``."""

_actions: dict[tuple[str, str], Action] = {}
_SIGNALS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_SPECIFICATION: Final = re.compile(
    r"(?P<point>[a-z-]+):(?P<lane>[^=]+)=(?P<signal>kill|stop)(@(?P<nth>[1-9]\d*))?$"
)


def install(point: str, lane: str, action: Action) -> Callable[[], None]:
    """Set an action at a point of a lane (``*`` = any lane); return a function that removes it."""
    if point not in POINTS:
        raise ConfigurationError(f"{point!r} is no fail point: known are {', '.join(sorted(POINTS))}")
    _actions[point, lane] = action

    def remove() -> None:
        _actions.pop((point, lane), None)

    return remove


def any_installed() -> bool:
    """Return whether any action is installed."""
    return bool(_actions)


async def reach(point: str, lane: str) -> None:
    """Run the actions of a point. Without actions this costs one check."""
    if not _actions:
        return
    action = _actions.get((point, lane)) or _actions.get((point, "*"))
    if action is not None:
        await action(point, lane)


def install_from_environment() -> None:
    """Install the actions of ``RINGFENCE_FAILPOINTS``.

    Raises:
        ConfigurationError: the value is not valid.
    """
    for part in filter(None, os.environ.get("RINGFENCE_FAILPOINTS", "").split(",")):
        match = _SPECIFICATION.match(part.strip())
        if match is None:
            raise ConfigurationError(
                f"environment: RINGFENCE_FAILPOINTS: {part!r} is not POINT:LANE=kill or POINT:LANE=stop, with or without @N"
            )
        install(match["point"], match["lane"], _signal_at(_SIGNALS[match["signal"]], int(match["nth"] or 1)))


def _signal_at(number: signal.Signals, nth: int) -> Action:
    reached: Counter[str] = Counter()

    async def act(point: str, lane: str) -> None:
        reached[lane] += 1
        if reached[lane] == nth:
            os.kill(os.getpid(), number)

    return act

"""Attempts at messages that may have ended their process: those that were with a handler when it died."""

import asyncio

from ringfence_client.turns import Turn


class Suspects:
    """Of one consumer. A last attempt is made beside none of another suspect, so that nobody becomes a dead letter for another's sake.

    Also beside none of which fewer deaths are known: the first may have come before the attempt was written.
    """

    def __init__(self) -> None:
        self._going_on: dict[asyncio.Future[None], bool] = {}
        """Each done when the attempt is over; whether it is a last one."""

    def begin(self, turn: Turn, *, last: bool) -> "asyncio.Future[None] | None":
        """Begin an attempt, or say what must be over before."""
        for other, is_last in self._going_on.items():
            if last or is_last:
                return other
        turn.trial = asyncio.get_running_loop().create_future()
        self._going_on[turn.trial] = last
        turn.trial.add_done_callback(self._going_on.pop)
        return None

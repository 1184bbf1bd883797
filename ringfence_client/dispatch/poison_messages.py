"""Attempts at suspects: messages that were with a handler when its process died."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ringfence_client.dispatch.turn import Turn

BEGUN_MAX: Final = 1_000
"""Limit of suspects that run at once, however fast handlers are."""
ISOLATION_S: Final = 5.0
"""Isolation of a last attempt, in seconds. A longer one hangs or is slow, so others start beside it."""


class _Waiting(NamedTuple):
    turn: Turn
    admitted: "asyncio.Future[None]"
    first: bool
    """Whether no attempt at its message is known."""


class PoisonMessages:
    """Suspects of one consumer. A last attempt starts beside no other suspect, so no message is dead-lettered for another's crash.

    This includes suspects with fewer known deaths: their first death may have preceded the write of the attempt. Isolation ends after
    :data:`ISOLATION_S`, because a hang is not a crash. A last attempt that starts beside one that outlived its isolation counts when it
    ends: if the process dies, the other one is to blame.

    An attempt counts when it starts, so the number of started suspects is at most that of the handlers. A death would otherwise count for
    messages that never ran. There may be many suspects without a known attempt, and each needs a write before it runs. While handlers are
    fast, as many of these start as handlers finish in a moment. After each last attempt, as many others as there are handlers start before
    the next one.
    """

    def __init__(self, concurrency: int, soon: Callable[[], int] = lambda: 0) -> None:
        """``soon`` returns the number of runs that handlers finish in a moment."""
        self._concurrency = concurrency
        self._soon = soon
        # Last attempts that do not end leave one handler to other messages.
        self._slots = max(1, concurrency - 1)
        self._begun: set[asyncio.Future[None]] = set()
        """Attempts that are not over. Each future completes when its attempt is over."""
        self._alone: dict[asyncio.Future[None], bool] = {}
        """Attempts in isolation, and whether each is a last one."""
        self._unended: dict[asyncio.Future[None], str] = {}
        """Last attempts that outlived their isolation, and their messages."""
        self._lasts: deque[_Waiting] = deque()
        self._others: deque[_Waiting] = deque()
        self._admitted: dict[Turn, bool] = {}
        """Admitted turns that have not started, and whether each is for a last attempt."""
        self._before_last = 0
        """Number of other suspects that start before a waiting last attempt."""

    @property
    def begun_max(self) -> int:
        """Limit of suspects without a known attempt that run at once."""
        return max(self._concurrency, min(BEGUN_MAX, self._soon()))

    def begin_trial(self, turn: Turn, *, last: bool, first: bool = False) -> "asyncio.Future[None] | None":
        """Start an attempt, or return the future to wait for before the next call. ``first``: no attempt at the message is known."""
        admitted = self._admitted.pop(turn, None)
        if not self._may_begin(last=last, first=first, admitted=admitted == last):
            waiting = _Waiting(turn, asyncio.get_running_loop().create_future(), first)
            line = self._lasts if last else self._others
            (line.append if admitted is None else line.appendleft)(waiting)
            self.admit_turns()
            return waiting.admitted
        if last:
            self._before_last = self._concurrency
        elif self._lasts:
            self._before_last = max(0, self._before_last - 1)
        trial = asyncio.get_running_loop().create_future()
        turn.put_on_trial(trial, counted=not (last and self._unended))
        self._begun.add(trial)
        if turn.counted:
            self._alone[trial] = last
        else:
            self._go_on(turn, trial)
        trial.add_done_callback(self._over)
        self.admit_turns()
        return None

    def withdraw(self, turn: Turn) -> None:
        """Let other turns start in place of this one, which has to wait for something else."""
        if self._admitted.pop(turn, None) is not None:
            self.admit_turns()

    def admit_turns(self) -> None:
        """Admit the turns that may start now. Call it when a partition is suspended: its turns no longer delay others."""
        self._admitted = {turn: last for turn, last in self._admitted.items() if turn.startable}
        while (waiting := self._next()) is not None:
            if not waiting.admitted.done():
                waiting.admitted.set_result(None)

    def faults(self) -> Iterator[str]:
        """Yield the reasons why messages wait for a last attempt now."""
        lasts, others = (sum(item.turn.startable for item in line) for line in (self._lasts, self._others))
        if lasts and self._unended and len(self._unended) >= self._slots:
            yield (
                f"{lasts} messages that ran when their consumer died wait for last attempts that do not "
                f"end: {', '.join(self._unended.values())}; all other groups continue: 'ringfence groups "
                "release' ends such a run"
            )
        elif lasts or any(self._alone.values()):
            yield (
                f"{lasts + others} messages wait, because they may have run when their consumer died: one "
                f"in its last attempt runs alone for at most {ISOLATION_S:g} s, then {self._concurrency} "
                "others start before the next one"
            )

    def started(self, turn: Turn) -> None:
        """Start the isolation time when the handler starts. The wait for a slot does not count."""
        trial = turn.trial
        if trial is not None and trial in self._alone:
            self._isolate(turn, trial)

    def _may_begin(self, *, last: bool, first: bool = False, admitted: bool = False) -> bool:
        if last:
            others_stand = self._before_last and any(other.turn.startable for other in self._others)
            due = admitted or not (self._admitted or others_stand)
            return due and not self._alone and len(self._unended) < self._slots
        if any(self._alone.values()) or any(self._admitted.values()):
            return False
        last_stands = len(self._unended) < self._slots and any(item.turn.startable for item in self._lasts)
        due = admitted or not last_stands or bool(self._before_last)
        begun_max = self.begun_max if first and not last_stands else self._concurrency
        return due and len(self._begun) + len(self._admitted) < begun_max

    def _next(self) -> _Waiting | None:
        """Remove and return the next turn that may start; None = no turn may."""
        for last, line in ((True, self._lasts), (False, self._others)):
            while line and not line[0].turn.startable:
                # The turn is suspended or empty. It asks again if it continues.
                return line.popleft()
            if line and self._may_begin(last=last, first=line[0].first):
                waiting = line.popleft()
                self._admitted[waiting.turn] = last
                return waiting
        return None

    def _over(self, trial: "asyncio.Future[None]") -> None:
        self._begun.discard(trial)
        self._alone.pop(trial, None)
        self._unended.pop(trial, None)  # before others are admitted: it does not count any more
        self.admit_turns()

    def _isolate(self, turn: Turn, trial: "asyncio.Future[None]") -> None:
        def outlived() -> None:
            if self._alone.pop(trial, False):
                self._go_on(turn, trial)
            self.admit_turns()

        timer = asyncio.get_running_loop().call_later(ISOLATION_S, outlived)
        trial.add_done_callback(lambda _: timer.cancel())

    def _go_on(self, turn: Turn, trial: "asyncio.Future[None]") -> None:
        self._unended[trial] = f"{turn.held}/{turn.offsets[0]}"

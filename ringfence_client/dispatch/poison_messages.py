"""Attempts at messages that may have ended their process: those that were with a handler when it died."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ringfence_client.dispatch.turn import Turn

BEGUN_MAX: Final = 1_000
"""Suspects that are begun at once, however quick handlers are."""
ISOLATION_S: Final = 5.0
"""A last attempt that has not ended the process by then hangs, or takes long. Others begin beside it."""


class _Waiting(NamedTuple):
    """A turn that may not begin yet."""

    turn: Turn
    admitted: "asyncio.Future[None]"
    first: bool
    """No attempt at its message is known."""

    @property
    def stands(self) -> bool:
        """Whether it would begin if it were admitted."""
        return bool(self.turn.offsets) and not self.turn.held.draining and not self.turn.held.window.closed


class PoisonMessages:
    """The suspects of one consumer. A last attempt begins beside no other suspect, so that nothing becomes a dead letter for another's sake.

    Also beside none of which fewer deaths are known: the first may have come before the attempt was written. Isolation ends after
    :data:`ISOLATION_S`, because a hang is not a crash. A last attempt that begins beside one that outlived its isolation counts when it ends: if
    the process dies, the other one is to blame.

    An attempt counts when it begins, so no more suspects are begun than there are handlers: a death would count for messages that never ran.
    There may be many of which no attempt is known, and each must be written before it runs. While handlers are quick, as many of these are
    begun as handlers are done with in a moment.
    After each last attempt as many others begin as there are handlers, before the next last one.
    """

    def __init__(self, concurrency: int, soon: Callable[[], int] = lambda: 0) -> None:
        """``concurrency``: handlers; last attempts that do not end leave one of them to others. ``soon``: runs that handlers end in a moment."""
        self._concurrency = concurrency
        self._soon = soon
        self._slots = max(1, concurrency - 1)
        self._begun: set[asyncio.Future[None]] = set()
        """Attempts that are not over, each done when it is."""
        self._alone: dict[asyncio.Future[None], bool] = {}
        """Those in isolation; whether each is a last one."""
        self._unended: dict[asyncio.Future[None], str] = {}
        """Last attempts that go on without isolation, and their messages."""
        self._lasts: deque[_Waiting] = deque()
        self._others: deque[_Waiting] = deque()
        self._admitted: dict[Turn, bool] = {}
        """Turns that may begin and have not yet, and whether it is a last attempt."""
        self._before_last = 0
        """Number of other suspects that begin before a waiting last attempt."""

    @property
    def begun_max(self) -> int:
        """Suspects that may be begun at once, where no attempt of them is known."""
        return max(self._concurrency, min(BEGUN_MAX, self._soon()))

    def begin_trial(self, turn: Turn, *, last: bool, first: bool = False) -> "asyncio.Future[None] | None":
        """Begin an attempt, or return the future to wait for before asking again. ``first``: no attempt at the message is known."""
        admitted = self._admitted.pop(turn, None)
        if not self._may_begin(last=last, first=first, admitted=admitted == last):
            waiting = _Waiting(turn, asyncio.get_running_loop().create_future(), first)
            line = self._lasts if last else self._others
            (line.append if admitted is None else line.appendleft)(waiting)
            self.look()
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
        self.look()
        return None

    def withdraw(self, turn: Turn) -> None:
        """Let others begin in its place: it does something else first."""
        if self._admitted.pop(turn, None) is not None:
            self.look()

    def look(self) -> None:
        """Admit those that may begin now. Call it when a partition is suspended, as its turns then keep nobody waiting."""
        self._admitted = {
            turn: last
            for turn, last in self._admitted.items()
            if turn.offsets and not turn.held.draining and not turn.held.window.closed
        }
        while (waiting := self._next()) is not None:
            if not waiting.admitted.done():
                waiting.admitted.set_result(None)

    def faults(self) -> Iterator[str]:
        """Yield why messages wait now for a last attempt; nothing while none does."""
        lasts, others = (sum(item.stands for item in line) for line in (self._lasts, self._others))
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
        """Note that the handler runs now: its isolation ends when it takes too long, and not while it waits for a slot."""
        trial = turn.trial
        if trial is not None and trial in self._alone:
            self._isolate(turn, trial)

    def _may_begin(self, *, last: bool, first: bool = False, admitted: bool = False) -> bool:
        """Return whether another attempt may begin beside those that have begun, and those that are about to."""
        if last:
            others_stand = self._before_last and any(other.stands for other in self._others)
            due = admitted or not (self._admitted or others_stand)
            return due and not self._alone and len(self._unended) < self._slots
        if any(self._alone.values()) or any(self._admitted.values()):
            return False
        last_stands = len(self._unended) < self._slots and any(item.stands for item in self._lasts)
        due = admitted or not last_stands or bool(self._before_last)
        begun_max = self.begun_max if first and not last_stands else self._concurrency
        return due and len(self._begun) + len(self._admitted) < begun_max

    def _next(self) -> _Waiting | None:
        """Take the next turn that may begin out of its line; None = none may."""
        for last, line in ((True, self._lasts), (False, self._others)):
            while line and not line[0].stands:
                # It is suspended, or has nothing left: it asks again if it goes on.
                return line.popleft()
            if line and self._may_begin(last=last, first=line[0].first):
                waiting = line.popleft()
                self._admitted[waiting.turn] = last
                return waiting
        return None

    def _over(self, trial: "asyncio.Future[None]") -> None:
        self._begun.discard(trial)
        self._alone.pop(trial, None)
        self._unended.pop(trial, None)  # before others are admitted: it counts no more
        self.look()

    def _isolate(self, turn: Turn, trial: "asyncio.Future[None]") -> None:
        def outlived() -> None:
            if self._alone.pop(trial, False):
                self._go_on(turn, trial)
            self.look()

        timer = asyncio.get_running_loop().call_later(ISOLATION_S, outlived)
        trial.add_done_callback(lambda _: timer.cancel())

    def _go_on(self, turn: Turn, trial: "asyncio.Future[None]") -> None:
        self._unended[trial] = f"{turn.held}/{turn.offsets[0]}"

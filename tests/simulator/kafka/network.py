"""Requests of a process to the cluster: each takes its time both ways, and may be lost on either. A dead process's request is executed."""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from aiokafka.errors import KafkaConnectionError, UnknownError

from tests.simulator.kafka.groups import Joined
from tests.simulator.loop import RUNNING, Loops, ProcessLoop

T = TypeVar("T")
Then = Callable[[Any, Exception | None], None]

WAYS_S: Final = (0.0005, 0.002, 0.02)
"""Longest time of one way in seconds, unless it is held up. Each process draws one, so that one does much while another waits."""
SLOW_ONE_IN: Final = 40
"""One of this many ways is slow ..."""
SLOW_BELOW: Final = 1 / SLOW_ONE_IN
SLOW_S: Final = 0.1
"""... and takes up to so many seconds."""
LOST_S: Final = 10.0
"""Seconds after which a request without an answer fails at the latest, as the product's do."""
JOIN_LIMIT_S: Final = 30.0


class _Belated(NamedTuple):
    told_s: float
    comes_s: float
    """Seconds until it arrives ..."""
    until: str
    """... or sooner, right behind a request of this kind ..."""
    passed: int
    """... after ``passed`` others of that kind: the first may be the same request sent again."""


class Network:
    """Network of one process, over all its lives."""

    def __init__(self, loops: Loops, dice: random.Random, name: str, cluster: Any) -> None:
        self._cluster = cluster
        self._loops = loops
        self._dice = dice
        self._after = loops.after
        self.name = name
        self._way_s = dice.choice(WAYS_S)
        self.cut = False
        self.held: list[tuple[Any, ...]] | None = None
        self.lose_answers = 0
        self.lose_heartbeats = 0
        self.refuse = 0
        self.late: dict[str, list[float]] = {}
        self.belated: dict[str, list[_Belated]] = {}
        """By kind of request, the fate of the next ones; their sender sees them fail."""
        self.waiting: dict[Callable[[], None], None] = {}
        """Requests that are still to arrive; calling one has it arrive."""
        self.slow_requests = 0
        """Number of requests that will take ..."""
        self.slow_s = 0.0
        """... up to so many seconds."""
        self.trace: list[str] | None = None

    def belate(self, request: str, told_s: float, comes_s: float, until: str, passed: int) -> None:
        """Delay the next request of this kind: its sender soon sees it fail, and it arrives later."""
        self.belated.setdefault(request, []).append(_Belated(told_s, comes_s, until, passed))

    def bring(self) -> None:
        self.belated.clear()
        for come in list(self.waiting):
            come()

    def call(self, apply: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        """Send a request; return a future of the answer. Raises KafkaConnectionError if the request or its answer is lost."""
        loop: Any = RUNNING.loop
        future: asyncio.Future[T] = asyncio.Future(loop=loop)
        self.ask(loop, partial(_answer, future), apply, args)
        return future

    def ask(self, loop: Any, then: Then, apply: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Send a request; call ``then`` with the answer or an error, if the process of the loop still lives."""
        if self.held is None:
            if self.belated and self.belated.get(apply.__name__):
                self._postpone(then, loop, apply, partial(self._arrive, _nobody, loop, apply, args))
                return
            way = self._way()
            if self.late and (late := self.late.get(apply.__name__)):
                way += late.pop()
            self._after(way, self._arrive, then, loop, apply, args)
        else:
            self.held.append((then, loop, apply, args))

    def release(self) -> None:
        held, self.held = self.held or [], None
        for item in held:
            self._loops.after(self._way(), self._arrive, *item)

    async def join(self, apply: Callable[..., None], *args: Any) -> Joined:
        """Send a request that is answered when other members have sent theirs; its last argument receives the answer."""
        loop: Any = asyncio.get_running_loop()
        future: asyncio.Future[Joined] = asyncio.Future(loop=loop)

        then = partial(_answer, future)

        def reply(answer: Joined) -> None:
            self._answer(then, loop, answer, None)

        if self.belated.get("join"):
            self._postpone(
                then, loop, apply, partial(self._arrive_to_join, _nobody, loop, apply, args, reply)
            )
            return await future
        self._loops.after(self._way(), self._arrive_to_join, then, loop, apply, args, reply)
        self._loops.after(JOIN_LIMIT_S, self._fail, then, loop)
        return await future

    def _postpone(
        self, then: Then, loop: ProcessLoop, apply: Callable[..., Any], arrive: Callable[[], None]
    ) -> None:
        told_s, comes_s, until, left = self.belated[apply.__name__].pop(0)
        self._loops.after(told_s, self._fail, then, loop)
        if self.trace is not None:
            self._note(apply, (), "is late, and said to be lost")
        watchers = self._cluster.watchers

        def come() -> None:
            if come in self.waiting:
                del self.waiting[come]
                arrive()

        def arrived(_: Network, request: str) -> None:
            nonlocal left
            left -= request == until
            if left < 0:
                watchers.remove(arrived)
                self._loops.after(0, come)

        self.waiting[come] = None
        self._loops.after(comes_s, come)
        if until:
            # Requests before the retry do not count.
            self._loops.after(told_s, watchers.append, arrived)

    def _way(self) -> float:
        dice = self._dice.random()
        if self.slow_requests:
            self.slow_requests -= 1
            return self.slow_s * dice
        return self._way_s * dice if dice >= SLOW_BELOW else SLOW_S * dice * SLOW_ONE_IN

    def _arrive(self, then: Then, loop: ProcessLoop, apply: Callable[..., T], args: tuple[Any, ...]) -> None:
        if self.cut:
            self._lost(then, loop, apply, "never arrives")
            return
        if self._cluster.watchers:
            for watcher in list(self._cluster.watchers):
                watcher(self, apply.__name__)
        if self.lose_heartbeats and apply.__name__ == "heartbeat":
            self.lose_heartbeats -= 1
            self._lost(then, loop, apply, "never arrives")
            return
        answer: Any = None
        error: Exception | None = None
        try:
            if self.refuse:
                self.refuse -= 1
                raise UnknownError("refused")  # noqa: TRY301
            answer = apply(*args)
        except Exception as refusal:
            error = refusal
        if self.trace is not None:
            self._note(apply, args, answer if error is None else repr(error))
        if self.lose_answers:
            self.lose_answers -= 1
            self._lost(then, loop, apply, "is not answered")
            return
        self._after(self._way(), self._settle, then, loop, answer, error)

    def _arrive_to_join(
        self,
        then: Then,
        loop: ProcessLoop,
        apply: Callable[..., None],
        args: tuple[Any, ...],
        reply: Callable[[Joined], None],
    ) -> None:
        for watcher in list(self._cluster.watchers):
            watcher(self, "join")
        if self.cut:
            self._lost(then, loop, apply, "never arrives")
        else:
            if self.trace is not None:
                self._note(apply, args, "waits")
            apply(*args, reply)

    def _answer(self, then: Then, loop: ProcessLoop, answer: Any, error: Exception | None) -> None:
        self._loops.after(self._way(), self._settle, then, loop, answer, error)

    def _settle(self, then: Then, loop: ProcessLoop, answer: Any, error: Exception | None) -> None:
        if not loop.alive:
            return
        if self.cut:
            self._lost(then, loop, self._settle, "is not answered")
        else:
            then(answer, error)

    def _lost(self, then: Then, loop: ProcessLoop, apply: Callable[..., Any], how: str) -> None:
        if self.trace is not None:
            self._note(apply, (), how)
        self._loops.after(LOST_S * self._dice.random() ** 3, self._fail, then, loop)

    def _fail(self, then: Then, loop: ProcessLoop) -> None:
        if loop.alive:
            then(None, KafkaConnectionError("no answer"))

    def _note(self, apply: Callable[..., Any], args: tuple[Any, ...], said: object) -> None:
        if self.trace is not None:
            what = getattr(apply, "__name__", str(apply))
            shown = ", ".join(map(_shown, args))
            self.trace.append(f"{self._loops.now:10.4f} {self.name} {what}({shown}) → {_shown(said)}")


def _answer(future: "asyncio.Future[Any]", answer: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    else:
        future.set_exception(error)


def _nobody(_answer: Any, _error: Exception | None) -> None:
    """Ignore an answer that nobody waits for."""


def _shown(what: object) -> str:
    text = what if isinstance(what, str) else repr(what)
    return text if len(text) <= 160 else f"{text[:157]}…"

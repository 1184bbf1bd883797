"""Requests of a process to the cluster: each takes its time both ways, and may be lost on either.

A request that was lost fails after a while, and whether it happened is not told. One whose process has died meanwhile still happens.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final, TypeVar

from aiokafka.errors import KafkaConnectionError, UnknownError

from tests.simulation.groups import Joined
from tests.simulation.loop import Loops, ProcessLoop

T = TypeVar("T")

WAYS_S: Final = (0.0005, 0.002, 0.02)
"""The longest that a way takes, where nothing holds it up: one of these for each process, so that one does much while another waits."""
SLOW_ONE_IN: Final = 40
"""One way in so many is slow ..."""
SLOW_S: Final = 0.1
"""... and takes up to so long."""
LOST_S: Final = 10.0
"""After which a request without an answer fails at the latest, as the product's do."""
JOIN_LIMIT_S: Final = 30.0


class Network:
    """Of one process, over all its lives."""

    def __init__(self, loops: Loops, dice: random.Random, name: str, cluster: Any) -> None:
        self._cluster = cluster
        self._loops = loops
        self._dice = dice
        self.name = name
        self._way_s = dice.choice(WAYS_S)
        self.cut = False
        """Nothing gets through, either way."""
        self.held: list[tuple[Any, ...]] | None = None
        """Requests that stay on their way until :meth:`release`; None = none do."""
        self.lose_answers = 0
        """So many answers will be lost."""
        self.lose_heartbeats = 0
        """So many heartbeats will not arrive."""
        self.refuse = 0
        """So many requests will be refused."""
        self.slow_requests = 0
        """So many requests will take ..."""
        self.slow_s = 0.0
        """... up to so long."""
        self.trace: list[str] | None = None
        """What happened, for who reads it."""

    async def call(self, apply: Callable[..., T], *args: Any) -> T:
        """The answer.

        Raises:
            KafkaConnectionError: it is lost, or the request was.
            KafkaError: as the cluster says.
        """
        loop: Any = asyncio.get_running_loop()
        future: asyncio.Future[T] = asyncio.Future(loop=loop)
        if self.held is None:
            self._loops.after(self._way(), self._arrive, future, loop, apply, args)
        else:
            self.held.append((future, loop, apply, args))
        return await future

    def release(self) -> None:
        """What was held arrives now."""
        held, self.held = self.held or [], None
        for each in held:
            self._loops.after(self._way(), self._arrive, *each)

    async def join(self, apply: Callable[..., None], *args: Any) -> Joined:
        """A request that is answered when others have made theirs: its last argument is what answers it."""
        loop: Any = asyncio.get_running_loop()
        future: asyncio.Future[Joined] = asyncio.Future(loop=loop)

        def reply(answer: Joined) -> None:
            self._answer(future, loop, answer, None)

        self._loops.after(self._way(), self._arrive_to_join, future, loop, apply, args, reply)
        self._loops.after(JOIN_LIMIT_S, self._fail, future, loop)
        return await future

    def _way(self) -> float:
        dice = self._dice.random()
        if self.slow_requests:
            self.slow_requests -= 1
            return self.slow_s * dice
        return SLOW_S * dice * SLOW_ONE_IN if dice * SLOW_ONE_IN < 1 else self._way_s * dice

    def _arrive(
        self, future: "asyncio.Future[Any]", loop: ProcessLoop, apply: Callable[..., T], args: tuple[Any, ...]
    ) -> None:
        if self.cut:
            self._lost(future, loop, apply, "never arrives")
            return
        for watcher in list(self._cluster.watchers):
            watcher(self, apply.__name__)
        if self.lose_heartbeats and apply.__name__ == "heartbeat":
            self.lose_heartbeats -= 1
            self._lost(future, loop, apply, "never arrives")
            return
        answer: Any = None
        error: Exception | None = None
        try:
            if self.refuse:
                self.refuse -= 1
                raise UnknownError("refused")  # noqa: TRY301
            answer = apply(*args)
        except Exception as refusal:  # noqa: BLE001 - it is the answer
            error = refusal
        if self.trace is not None:
            self._note(apply, args, answer if error is None else repr(error))
        if self.lose_answers:
            self.lose_answers -= 1
            self._lost(future, loop, apply, "is not answered")
            return
        self._answer(future, loop, answer, error)

    def _arrive_to_join(
        self,
        future: "asyncio.Future[Joined]",
        loop: ProcessLoop,
        apply: Callable[..., None],
        args: tuple[Any, ...],
        reply: Callable[[Joined], None],
    ) -> None:
        for watcher in list(self._cluster.watchers):
            watcher(self, "join")
        if self.cut:
            self._lost(future, loop, apply, "never arrives")
        else:
            if self.trace is not None:
                self._note(apply, args, "waits")
            apply(*args, reply)

    def _answer(
        self, future: "asyncio.Future[Any]", loop: ProcessLoop, answer: Any, error: Exception | None
    ) -> None:
        self._loops.after(self._way(), self._settle, future, loop, answer, error)

    def _settle(
        self, future: "asyncio.Future[Any]", loop: ProcessLoop, answer: Any, error: Exception | None
    ) -> None:
        if not loop.alive or future.done():
            return
        if self.cut:
            self._lost(future, loop, self._settle, "is not answered")
        elif error is None:
            future.set_result(answer)
        else:
            future.set_exception(error)

    def _lost(
        self, future: "asyncio.Future[Any]", loop: ProcessLoop, apply: Callable[..., Any], how: str
    ) -> None:
        if self.trace is not None:
            self._note(apply, (), how)
        self._loops.after(LOST_S * self._dice.random() ** 3, self._fail, future, loop)

    def _fail(self, future: "asyncio.Future[Any]", loop: ProcessLoop) -> None:
        if loop.alive and not future.done():
            future.set_exception(KafkaConnectionError("no answer"))

    def _note(self, apply: Callable[..., Any], args: tuple[Any, ...], said: object) -> None:
        if self.trace is not None:
            what = getattr(apply, "__name__", str(apply))
            shown = ", ".join(map(_shown, args))
            self.trace.append(f"{self._loops.now:10.4f} {self.name} {what}({shown}) → {_shown(said)}")


def _shown(what: object) -> str:
    text = what if isinstance(what, str) else repr(what)
    return text if len(text) <= 160 else f"{text[:157]}…"

"""Gives messages to a limited number of handlers. Groups run in parallel, each strictly in order.

:mod:`ringfence_client.dispatch.turn_choice` chooses the next turn of a slot. :mod:`ringfence_client.dispatch.attempt` runs its attempt.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Collection
from typing import Final, cast

from ringfence_client.dispatch.attempt import Attempts
from ringfence_client.dispatch.circuit_breaker import CircuitBreaker
from ringfence_client.dispatch.resting_turns import RestingTurns, RetryClock
from ringfence_client.dispatch.turn import Turn
from ringfence_client.dispatch.turn_choice import TurnChoice
from ringfence_client.handlers.handler import Handler, HandlerError, HandlerRuns
from ringfence_client.handlers.message import MessageFactory
from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.partition.partition import HeldPartition
from ringfence_client.progress.lease import LostError
from ringfence_kafka.concurrency.timeouts import set_within

log: Final = logging.getLogger("ringfence.consumer")

PROBE_CHECK_S: Final = 0.05
"""Shortest wait for the next attempt while the breaker limits attempts, in seconds."""
CANCEL_LIMIT_S: Final = 2.0
"""Time limit of cancelled handlers, in seconds. The dispatcher abandons later ones, and does not run their messages beside them."""


class Dispatcher:
    """Runs the handlers of one consumer, over all partitions that it holds.

    A slot is a task that runs one prepared turn after the other, and ends when no turn is left. A turn that has to wait does so without a
    slot, in :class:`RestingTurns`.
    """

    def __init__(
        self,
        handler: Handler,
        factory: MessageFactory,
        options: ConsumerOptions,
        clock: RetryClock | None = None,
    ) -> None:
        self._options = options
        self.concurrency = options.concurrency
        self.counts: Counter[str] = Counter()
        self.breaker = CircuitBreaker(options.concurrency, enabled=options.breaker)
        self.refused: HandlerError | None = None
        """Reason why the handler is unusable. Running handlers continue, and no new ones start."""
        self.refusing = asyncio.Event()
        self.runs = HandlerRuns(handler, options.concurrency, batches=options.batch > 0)
        self.resting = RestingTurns(self.wake, clock)
        self.attempts = Attempts(
            self.runs,
            factory,
            options,
            self.breaker,
            self.resting,
            self.counts,
            self._cut_short,
            self._refuse,
        )
        self._choice = TurnChoice(
            options, self.breaker, self.resting, self.attempts.suspects, self._wake_later
        )
        self._slots = 0
        self._free_names: list[str] = []
        self._names: dict[asyncio.Task[None], str] = {}
        self._choosing = False
        """Whether the next turn of a slot is being chosen."""
        self._running: dict[asyncio.Task[None], Turn] = {}
        self._retrying: set[Turn] = set()
        """Running turns whose first message had failed before they got a slot."""
        self._left_behind: dict[asyncio.Task[None], asyncio.Future[None]] = {}
        """Handlers that ignored their cancellation. Each future is cancelled when its handler ends."""
        self._stopping = False

    # -- what its owner calls ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start handlers."""
        self._slots = self.concurrency
        self._free_names = [f"{self._options.name}/{number}" for number in reversed(range(self._slots))]
        self.wake()

    async def stop(self) -> None:
        """Cancel all handlers, and stop."""
        self._stopping = True
        self.attempts.stop()
        everything = [*self._running, *self._left_behind]
        for task in everything:
            task.cancel()
        if everything:
            await asyncio.wait(everything, timeout=CANCEL_LIMIT_S)
        self.runs.stop()

    def add_partition(self, held: HeldPartition) -> None:
        """Hand out messages of this partition too."""
        self._choice.partitions.append(held)
        self.wake()

    def wake(self) -> None:
        """Give work to free slots, because messages may be available."""
        if self._choosing:
            self._wake_later()
        else:
            self._fill()

    def suspend(self, held: HeldPartition) -> None:
        """Hand out no more messages of this partition. Running handlers and retry delays continue."""
        held.suspend()
        with contextlib.suppress(ValueError):
            self._choice.partitions.remove(held)
        self.resting.suspend(held)
        self.attempts.suspects.admit_turns()

    def resume(self, held: HeldPartition) -> None:
        """Hand out the messages of a suspended partition again."""
        held.resume()
        self.resting.resume()
        self.add_partition(held)

    def _end(self, held: HeldPartition) -> None:
        """Suspend a partition, and put back messages that wait for a retry. The next holder does not know their delays."""
        held.end()
        self.suspend(held)
        self.resting.end(held)

    async def drain(self, held: HeldPartition, limit: float) -> None:
        """Hand out no more messages of this partition, and wait up to ``limit`` seconds for its handlers."""
        self._end(held)
        if not await self._ended(held, limit):
            log.warning("%s: handlers still run after %.0f s: cancelled", held, limit)

    async def drop(self, held: HeldPartition) -> bool:
        """Cancel a partition's handlers, whose results no longer count. Returns whether all of them have ended."""
        self._end(held)
        held.lose()
        for task, _ in self._running_of(held):
            task.cancel()
        if not await self._ended(held, CANCEL_LIMIT_S):
            for task, turn in self._running_of(held):
                self._leave_behind(task, turn)
        return not self.runs.any_left(held.fence.log)

    def drop_blocked(self, held: HeldPartition, offset: int) -> bool:
        """Drop a blocked message, so that its group continues. Returns False if that is impossible now."""
        known = held.window.ledger.find(offset)
        return known is not None and self.resting.skip(held, known[0], offset)

    def skip(self, held: HeldPartition, group: bytes) -> int:
        """Drop the first message of a group, if no handler runs it; return the number dropped, 0 or 1."""
        if self.resting.skip(held, group):
            return 1
        return held.window.skip(group)

    def purge(self, held: HeldPartition, group: bytes, below: int) -> int:
        """Drop a group's messages below an offset, except those that a handler runs; return the number of dropped fetched ones."""
        dropped = held.purge(group, below)  # before the first message: after it, the next one would run
        while (first := next(iter(held.window.offsets_of(group)), below)) < below:
            if not self.resting.skip(held, group, first):
                break
            dropped += 1
        return dropped

    def give_up(
        self,
        held: HeldPartition,
        group: bytes,
        *,
        skip: bool,
        below: int | None = None,
        lost: Collection[int] = (),
    ) -> list[int]:
        """Send a group's messages below an offset to the dead letters; with ``skip``, only the first one. Empty if a handler runs the first one.

        ``lost``: offsets of parked messages whose dead letters are gone. These get another one.
        """
        meant = {number for number in held.window.offsets_of(group) if below is None or number < below}
        if not meant:
            return []
        turn = self.resting.withdraw(held, group) or Turn(held, "operator")
        known = set(turn.offsets)
        offsets = held.window.ledger.claim(turn, group, max(1 if skip else len(meant), len(known)))
        turn.offsets.extend(offset for offset in offsets if offset not in known)
        if not turn.offsets:
            return []
        chosen = list(turn.offsets)[:1] if skip else [offset for offset in turn.offsets if offset in meant]
        turn.give_up(chosen)
        held.window.redrives.blocked.difference_update(set(chosen).intersection(lost))
        self.resting.due(turn)
        return chosen

    def release(self, held: HeldPartition, group: bytes) -> int:
        """End the handler of a group's first message as a failed attempt; return the number of ended handlers, 0 or 1."""
        for task, turn in self._running_of(held):
            if turn.offsets and held.window.group_of(turn.offsets[0]) == group:
                self._cut_short(task, turn, "an operator released it")
                return 1
        return 0

    @property
    def unsettled(self) -> bool:
        """Whether a handler runs, or will run when its partition's current work is done."""
        return bool(self._running or self.resting.unsettled)

    @property
    def idle(self) -> int:
        """Number of handlers without work."""
        return self._slots - len(self._running)

    @property
    def running(self) -> int:
        """Number of handlers with work."""
        return len(self._running)

    def _running_of(self, held: HeldPartition) -> list[tuple["asyncio.Task[None]", Turn]]:
        return [(task, turn) for task, turn in self._running.items() if turn.held is held]

    async def _ended(self, held: HeldPartition, limit: float) -> bool:
        deadline = asyncio.get_running_loop().time() + limit
        while self._running_of(held):
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            held.ended.clear()
            await set_within(held.ended, left)
        return True

    # -- slots -----------------------------------------------------------------------------------------------

    def _wake_later(self) -> None:
        asyncio.get_running_loop().call_soon(self.wake)

    def _fill(self, most: int = 1) -> None:
        """Start some free slots, then twice as many when these have started.

        A handler that never waits processes all messages before the next slot starts. More slots would only cost tasks.
        """
        for _ in range(most):
            if not self._free_names or (turn := self._next_turn(self._free_names[-1])) is None:
                return
            name = self._free_names.pop()
            task = asyncio.create_task(self._slot(name, turn), name=f"handler {name}")
            self._names[task] = name
            self._occupy(task, turn)
            task.add_done_callback(self._slot_over)
        if self._free_names:
            asyncio.get_running_loop().call_soon(self._fill, 2 * most)

    async def _slot(self, name: str, turn: Turn) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        while True:
            try:
                await self._run(turn)
            finally:
                left_behind = self._left_behind.pop(task, None)
                if left_behind is None:
                    self._leave(task)
                    if turn.offsets and turn.held.draining and turn not in self.resting:
                        turn.put_back()
                    turn.held.ended.set()
                else:
                    left_behind.cancel()
            if left_behind is not None or self._stopping:
                return
            while task.cancelling():
                task.uncancel()  # needed even if the handler swallowed its cancellation
            following = self._next_turn(name)
            if following is None:
                self._free_names.append(self._names.pop(task))
                return
            turn = following
            self._occupy(task, turn)

    def _occupy(self, task: "asyncio.Task[None]", turn: Turn) -> None:
        self._running[task] = turn
        if turn.has_failed:
            self._retrying.add(turn)

    def _leave(self, task: "asyncio.Task[None]") -> None:
        turn = self._running.pop(task)
        if self._retrying:
            self._retrying.discard(turn)

    def _slot_over(self, task: "asyncio.Task[None]") -> None:
        if (turn := self._running.get(task)) is not None:
            # The task was cancelled before it started.
            self._leave(task)
            turn.take_back()
            turn.put_back()
            turn.held.ended.set()
        if task in self._names:
            self._free_names.append(self._names.pop(task))
            self.wake()

    async def _run(self, turn: Turn) -> None:
        try:
            await self.attempts.work(turn)
        except asyncio.CancelledError:
            if self._stopping or not turn.held.window.closed:
                raise
        except LostError:
            pass
        except Exception as error:
            self._break(turn, error)

    def _break(self, turn: Turn, error: Exception) -> None:
        """Reopen the partition after an internal error."""
        log.error("%s: internal error, please report", turn.held, exc_info=error)
        turn.held.fail()

    def _next_turn(self, name: str) -> Turn | None:
        """Return a prepared turn for a free slot; None = no turn may run now."""
        if self.refused is not None or self._stopping:
            return None
        if self.breaker.limited:
            now = asyncio.get_running_loop().time()
            if not self.breaker.room(len(self._running), now):
                asyncio.get_running_loop().call_later(max(PROBE_CHECK_S, self.breaker.wait(now)), self.wake)
                return None
        turn = None
        self._choosing = True
        try:
            while (turn := self._choice.choose(name, len(self._retrying))) is not None:
                if self.attempts.prepare(turn):
                    return turn
        except Exception as error:
            if turn is None:
                raise
            self._break(turn, error)
            turn.put_back()
            self._wake_later()
        finally:
            self._choosing = False
        return None

    # -- runs that are ended -----------------------------------------------------------------------------------

    def _cut_short(self, task: "asyncio.Task[None]", turn: Turn, reason: str) -> None:
        if turn.cut_short or self._running.get(task) is not turn:
            return
        turn.cut(reason)
        task.cancel()
        asyncio.get_running_loop().call_later(CANCEL_LIMIT_S, self._leave_behind_late, task, turn)

    def _leave_behind_late(self, task: "asyncio.Task[None]", turn: Turn) -> None:
        if turn.cut_short and self._running.get(task) is turn and not self._stopping:
            self._leave_behind(task, turn)

    def _leave_behind(self, task: "asyncio.Task[None]", turn: Turn) -> None:
        """Take slot and turn from a handler that ignores its cancellation. Its message waits for it."""
        held = turn.held
        self._leave(task)
        self._free_names.append(self._names.pop(task))
        held.ended.set()
        future = self._left_behind[task] = asyncio.get_running_loop().create_future()
        self.wake()
        if not turn.offsets:
            return
        offset = turn.offsets[0]
        log.error(
            "%s/%d: the handler ignores its cancellation: its group waits for it, and another consumer may "
            "wait for the lease",
            held, offset,
        )  # fmt: skip
        self.runs.outlives(held.fence.log, offset, future)
        self.attempts.abandon(turn)

    def _refuse(self, error: HandlerError) -> None:
        if self.refused is None:
            self.refused = error
            self.refusing.set()

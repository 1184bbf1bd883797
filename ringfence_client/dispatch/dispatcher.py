"""Hands messages to handlers: so many at once, a group strictly in order, groups beside one another.

Which turn goes next is decided here; what becomes of it in :mod:`ringfence_client.dispatch.attempt`.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from typing import Final, cast

from ringfence_client.dispatch.attempt import Attempts
from ringfence_client.dispatch.circuit_breaker import CircuitBreaker
from ringfence_client.dispatch.turn import RestingTurns, Turn
from ringfence_client.handlers.handler import Handler, HandlerError, HandlerRuns
from ringfence_client.handlers.message import MessageFactory
from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.partition.partition import HeldPartition
from ringfence_client.progress.lease import LostError
from ringfence_kafka.concurrency.timeouts import set_within

log: Final = logging.getLogger("ringfence.consumer")

PROBE_CHECK_S: Final = 0.05
"""While nearly everything fails, and as many are tried as may be."""
SIFTED_MAX: Final = 250
"""Messages that failed before and are set aside in one search for one that never failed."""
CANCEL_LIMIT_S: Final = 2.0
"""For cancelled handlers to end; who does not is left behind, and what it runs is not run again beside it."""


class Dispatcher:
    """Runs the handlers of one consumer, over all partitions that it holds."""

    def __init__(self, handler: Handler, factory: MessageFactory, options: ConsumerOptions) -> None:
        """``handler``: a coroutine function, or a plain one, which runs in threads."""
        self._options = options
        self.concurrency = options.concurrency
        self.counts: Counter[str] = Counter()
        self.breaker = CircuitBreaker(options.concurrency, enabled=options.breaker)
        self.refused: HandlerError | None = None
        """Why the handler is none; what runs goes on, and nothing new is begun."""
        self.runs = HandlerRuns(handler, options.concurrency)
        self._resting = RestingTurns(self.wake)
        self._attempts = Attempts(
            self.runs, factory, options.policy, self.breaker, self._resting, self.counts, self._cut_short, self._refuse,
            options.handler_timeout, options.concurrency, park=options.on_dead_letter == "park",
        )  # fmt: skip
        self._partitions: deque[HeldPartition] = deque()
        self._skipped = False
        """A partition was passed over because it must be able to write before more of it is begun."""
        self._policy = options.policy
        self._retries_max = max(1, options.concurrency // 2)
        """Slots that retries may have at once. The others are for messages that never failed, so that none waits for sick ones."""
        self._retrying = 0
        """Slots that they have now."""
        self._retry_next = True
        """With a single handler: whether a retry comes next."""
        self._idle: deque[asyncio.Future[None]] = deque()
        self._running: dict[asyncio.Task[None], Turn] = {}
        self._left_behind: dict[asyncio.Task[None], asyncio.Future[None]] = {}
        """Handlers that went on when they were cancelled; each future is cancelled when its handler ends at last."""
        self._ending: set[asyncio.Task[None]] = set()
        self._slots: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.refusing = asyncio.Event()
        """Set when :attr:`refused` is."""

    # -- what its owner calls ------------------------------------------------------------------------------

    def start(self) -> None:
        """Run handlers from now on."""
        for number in range(self.concurrency):
            self._start_slot(f"{self._options.name}/{number}")

    def _start_slot(self, name: str) -> None:
        slot = asyncio.create_task(self._slot(name), name=f"handler {name}")
        self._slots.add(slot)
        slot.add_done_callback(self._slots.discard)

    async def stop(self) -> None:
        """End all; what still runs is cancelled."""
        self._stopping = True
        everything = [*self._slots, *self._ending]
        for task in everything:
            task.cancel()
        if everything:
            await asyncio.wait(everything, timeout=CANCEL_LIMIT_S)
        self.runs.stop()

    def add(self, held: HeldPartition) -> None:
        """Hand out messages of this partition too."""
        self._partitions.append(held)
        self.wake(self.concurrency)

    def wake(self, count: int) -> None:
        """So many messages became available."""
        if self._skipped and count:
            self._skipped, count = False, self.concurrency
        while count > 0 and self._idle:
            future = self._idle.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1

    def suspend(self, held: HeldPartition) -> None:
        """Hand out nothing more of it; what runs goes on, and so does the time of what waits to be tried again."""
        held.draining = True
        with contextlib.suppress(ValueError):
            self._partitions.remove(held)
        self._resting.suspend(held)
        self._attempts.suspects.look()

    def resume(self, held: HeldPartition) -> None:
        """Hand out again what is suspended."""
        held.draining = held.ending = False
        self.add(held)
        self._resting.resume()

    def _end(self, held: HeldPartition) -> None:
        """Suspend it; what only waits to be tried again is put back: another holder knows nothing of a delay."""
        held.ending = True
        self.suspend(held)
        self._resting.end(held)

    async def drain(self, held: HeldPartition, limit: float) -> None:
        """Hand out nothing more of it, and wait for what runs, for so many seconds."""
        self._end(held)
        if not await self._ended(held, limit):
            log.warning("%s: handlers still run after %.0f s: cancelled", held, limit)

    async def drop(self, held: HeldPartition) -> bool:
        """What runs of it is cancelled, and counts no more. Returns whether nothing of it runs any more."""
        self._end(held)
        held.lose()
        for task, turn in list(self._running.items()):
            if turn.held is held:
                task.cancel()
        if not await self._ended(held, CANCEL_LIMIT_S):
            for task, turn in list(self._running.items()):
                if turn.held is held:
                    self._leave_behind(task, turn)
        return not self.runs.any_left(held.fence.log)

    def drop_blocked(self, held: HeldPartition, offset: int) -> bool:
        """Drop a message that is blocked: its group goes on. False: it cannot be done at this moment."""
        known = held.window.ledger.find(offset)
        return known is not None and self._resting.skip(held, known[0], offset)

    def skip(self, held: HeldPartition, group: bytes) -> int:
        """Drop the first message of a group that no handler runs now; returns how many went, 1 or 0."""
        if self._resting.skip(held, group):
            return 1
        return held.window.skip(group)

    def give_up(
        self, held: HeldPartition, group: bytes, *, skip: bool, below: int | None = None
    ) -> list[int]:
        """Send what no handler has of a group, below an offset, to the dead letters, or (``skip``) its first message alone.

        Returns their offsets; none where a handler runs the first one. They are finished when their letters are written.
        """
        meant = {number for number in held.window.of(group) if below is None or number < below}
        if not meant:
            return []
        turn = self._resting.take(held, group) or Turn(held, "operator")
        known = set(turn.offsets)
        offsets = held.window.ledger.claim(turn, group, max(1 if skip else len(meant), len(known)))
        turn.offsets.extend(offset for offset in offsets if offset not in known)
        if not turn.offsets:
            return []
        chosen = list(turn.offsets)[:1] if skip else [offset for offset in turn.offsets if offset in meant]
        turn.given_up |= set(chosen)
        self._resting.due(turn)
        return chosen

    def release(self, held: HeldPartition, group: bytes) -> int:
        """End the handler that runs the first message of a group, as a failed attempt; returns how many it were, 1 or 0."""
        for task, turn in self._running.items():
            if turn.held is held and turn.offsets and held.window.group(turn.offsets[0]) == group:
                self._cut_short(task, turn, "an operator released it")
                return 1
        return 0

    @property
    def faults(self) -> list[str]:
        """Why messages wait that could run; empty = none do."""
        return list(self._attempts.suspects.faults())

    @property
    def idle(self) -> int:
        """Handlers that wait for work."""
        return sum(not future.done() for future in self._idle)

    @property
    def running(self) -> int:
        """Handlers that have work."""
        return len(self._running)

    async def _ended(self, held: HeldPartition, limit: float) -> bool:
        deadline = asyncio.get_running_loop().time() + limit
        while any(turn.held is held for turn in self._running.values()):
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            held.ended.clear()
            await set_within(held.ended, left)
        return True

    # -- handlers --------------------------------------------------------------------------------------------

    async def _slot(self, name: str) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        while not self._stopping:
            turn = self._next_turn(name)
            if turn is None:
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._idle.append(future)
                await future
                continue
            self._running[task] = turn
            self._retrying += turn.is_retry
            try:
                await self._run(turn)
            finally:
                left_behind = self._left_behind.pop(task, None)
                if left_behind is None:
                    self._leave_slot(task)
                    if turn.offsets and turn.held.draining and turn not in self._resting:
                        turn.put_back()
                    turn.held.ended.set()
                else:
                    left_behind.cancel()
            if left_behind is not None:
                return  # another one has taken its place
            while task.cancelling() and not self._stopping:
                task.uncancel()  # also where the handler kept its cancellation to itself

    def _leave_slot(self, task: "asyncio.Task[None]") -> None:
        self._retrying -= self._running.pop(task).is_retry

    async def _run(self, turn: Turn) -> None:
        """Run a turn, whatever happens in it."""
        try:
            await self._attempts.work(turn)
        except asyncio.CancelledError:
            if self._stopping or not turn.held.window.closed:
                raise
        except LostError:
            pass
        except Exception:
            log.exception("%s: internal error, please report", turn.held)
            turn.held.fail()

    def _next_turn(self, name: str) -> Turn | None:
        """Return the turn that a free slot takes, marked as a retry or not; None = nothing may run now."""
        if self.refused is not None:
            return None
        if self.breaker.limited:
            now = asyncio.get_running_loop().time()
            if not self.breaker.room(len(self._running), now):
                asyncio.get_running_loop().call_later(
                    max(PROBE_CHECK_S, self.breaker.wait(now)), self.wake, 1
                )
                return None
        turn = self._choose(name)
        if turn is not None:
            turn.is_retry = turn.has_failed
        return turn

    def _choose(self, name: str) -> Turn | None:
        """Retries come first up to half of the slots; a message that never failed gets any slot.

        While the breaker is open, messages that never failed come first: retries may be just those that fail for ever.
        """
        room = self._retrying < self._retries_max
        first = room and not self.breaker.open and (self.concurrency > 1 or self._retry_next)
        self._retry_next = not self._retry_next
        if first and (turn := self._resting.next_retry()) is not None:
            return turn
        fresh = self._resting.next_fresh() or self._fresh(name)
        if fresh is not None or not room:
            return fresh
        return self._resting.next_retry()

    def _fresh(self, name: str) -> Turn | None:
        """Of partitions that can write, as many groups as there are handlers; of others one, which has to wait for that."""
        for _ in range(len(self._partitions)):
            held = self._partitions[0]
            self._partitions.rotate(-1)
            if self._attempts.preparing[held] >= (self.concurrency if held.writer.covers() else 1):
                self._skipped = True
                continue
            for _ in range(SIFTED_MAX):
                turn = self._acquire(held, name)
                if turn is None:
                    break
                if not turn.has_failed:
                    return turn
                self._keep_for_retry(turn)
            else:
                # There are more. Other tasks of the loop come first.
                asyncio.get_running_loop().call_soon(self.wake, 1)
        return None

    def _acquire(self, held: HeldPartition, name: str) -> Turn | None:
        """Acquire the oldest available message of a partition, with more of its group where it is prefetched."""
        turn = Turn(held, name)
        ledger = held.window.ledger
        offset = ledger.acquire(turn)
        if offset is None:
            return None
        turn.offsets.append(offset)
        if self._options.prefetch > 1:
            turn.offsets.extend(ledger.acquire_more(turn))
        return turn

    def _keep_for_retry(self, turn: Turn) -> None:
        """Have a message wait for its next attempt that failed before it was acquired: with another holder, or before a release."""
        window, offset = turn.held.window, turn.offsets[0]
        failures = window.failures[offset]
        delay = self._policy.before_last(window.attempts.get(offset, 0), failures, round(time.time() * 1000))
        if delay and offset not in turn.given_up:
            self._resting.rest(turn, delay, release=False)
        else:
            self._resting.due(turn)

    # -- runs that are ended -----------------------------------------------------------------------------------

    def _cut_short(self, task: "asyncio.Task[None]", turn: Turn, reason: str) -> None:
        """End a run, as a failed attempt."""
        if turn.cut_short or self._running.get(task) is not turn:
            return
        turn.cut_short = reason
        task.cancel()
        ending = asyncio.create_task(self._leave_behind_later(task, turn))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _leave_behind_later(self, task: "asyncio.Task[None]", turn: Turn) -> None:
        await asyncio.sleep(CANCEL_LIMIT_S)
        if turn.cut_short and self._running.get(task) is turn:
            self._leave_behind(task, turn)

    def _leave_behind(self, task: "asyncio.Task[None]", turn: Turn) -> None:
        """A handler that goes on when it is cancelled keeps neither its slot nor its turn; its message waits for it."""
        held = turn.held
        self._leave_slot(task)
        held.ended.set()
        future = self._left_behind[task] = asyncio.get_running_loop().create_future()
        self._start_slot(task.get_name().removeprefix("handler "))
        if not turn.offsets:
            return
        offset = turn.offsets[0]
        log.error(
            "%s/%d: the handler does not end when it is cancelled: its group waits for it, another consumer for the lease",
            held, offset,
        )  # fmt: skip
        self.runs.outlives(held.fence.log, offset, future)
        self._attempts.leave(turn)

    def _refuse(self, error: HandlerError) -> None:
        if self.refused is None:
            self.refused = error
            self.refusing.set()

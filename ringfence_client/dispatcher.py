"""Hands messages to handlers: so many at once, a group strictly in order, groups beside one another.

A *turn* is what a handler holds: a message, and with a prefetch above one the next of the same group. The turn, not the
handler, is the ledger's consumer: when a message is to be tried again later, its turn rests and keeps the group, and the
handler is free for others.
"""

import asyncio
import contextlib
import logging
import random
from collections import Counter, deque
from typing import Any, Final, cast

from aiokafka.errors import KafkaError

from ringfence_client.claim import LostError
from ringfence_client.claimed import Claimed
from ringfence_client.dead_letters import DeadLetter
from ringfence_client.handler import Handler, HandlerRuns
from ringfence_client.message import MessageFactory, Reject, Release, Retry
from ringfence_client.turns import RestingTurns, Turn
from tables.waiting import set_within

log: Final = logging.getLogger("ringfence.consumer")

RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 30.0
RELEASE_REST_S: Final = 0.1
"""A released group rests for so long: a handler that releases what it gets would else do nothing else."""
LOAD_REST_S: Final = 1.0
"""A group whose parked message cannot be read now rests for so long."""
CANCEL_LIMIT_S: Final = 2.0
"""For cancelled handlers to end; who does not is left behind, and what it runs is not run again beside it."""


class Dispatcher:
    """Runs the handlers of one consumer, over all partitions that it holds."""

    def __init__(
        self,
        handler: Handler,
        factory: MessageFactory,
        name: str,
        *,
        concurrency: int,
        prefetch: int,
        max_attempts: int,
    ) -> None:
        """``handler``: a coroutine function, or a plain one, which runs in threads. ``name``: of this consumer."""
        self._factory = factory
        self._name = name
        self._prefetch = prefetch
        self._max_attempts = max_attempts
        self.concurrency = concurrency
        self._runs = HandlerRuns(handler, concurrency)
        self._claims: deque[Claimed] = deque()
        self._resting = RestingTurns(self.wake)
        self._idle: deque[asyncio.Future[None]] = deque()
        self._running: dict[asyncio.Task[None], Turn] = {}
        self._stubborn: dict[asyncio.Task[None], asyncio.Future[None]] = {}
        """Handlers that went on when they were cancelled; each future is cancelled when its handler ends at last."""
        self._last_of_suspects = asyncio.Lock()
        """Around the last attempt of what may have ended its process: one at a time, so that none becomes a dead letter for
        another's sake."""
        self.counts: Counter[str] = Counter()
        self._slots: list[asyncio.Task[None]] = []
        self._stopping = False

    # -- what its owner calls ------------------------------------------------------------------------------

    def start(self) -> None:
        """Run handlers from now on."""
        names = [f"{self._name}/{number}" for number in range(self.concurrency)]
        self._slots = [asyncio.create_task(self._slot(name), name=f"handler {name}") for name in names]

    async def stop(self) -> None:
        """End all; what still runs is cancelled."""
        self._stopping = True
        for each in self._slots:
            each.cancel()
        if self._slots:
            await asyncio.wait(self._slots, timeout=CANCEL_LIMIT_S)
        self._runs.stop()

    def add(self, claimed: Claimed) -> None:
        """Hand out messages of this partition too."""
        self._claims.append(claimed)
        self.wake(self.concurrency)

    def wake(self, count: int) -> None:
        """So many messages became available."""
        while count > 0 and self._idle:
            future = self._idle.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1

    def suspend(self, claimed: Claimed) -> None:
        """Hand out nothing more of it; what runs goes on, and so does the time of what waits to be tried again."""
        claimed.draining = True
        with contextlib.suppress(ValueError):
            self._claims.remove(claimed)
        self._resting.suspend(claimed)

    def resume(self, claimed: Claimed) -> None:
        """Hand out again what is suspended."""
        claimed.draining = claimed.ending = False
        self.add(claimed)
        self._resting.resume()

    def _end(self, claimed: Claimed) -> None:
        """Suspend it; what only waits to be tried again is put back: another holder knows nothing of a delay."""
        claimed.ending = True
        self.suspend(claimed)
        self._resting.end(claimed)

    async def drain(self, claimed: Claimed, limit: float) -> bool:
        """Hand out nothing more of it, and wait for what runs; after ``limit`` seconds cancel that.

        Returns:
            Whether nothing of it runs any more.
        """
        self._end(claimed)
        if await self._ended(claimed, limit):
            return not self._runs.any_left(claimed.topic, claimed.partition)
        log.warning("%s: handlers still run after %.0f s: cancelled", claimed, limit)
        return await self.drop(claimed)

    async def drop(self, claimed: Claimed) -> bool:
        """What runs of it is cancelled, and counts no more. Returns whether nothing of it runs any more."""
        self._end(claimed)
        claimed.lose()
        for task, turn in list(self._running.items()):
            if turn.claimed is claimed:
                task.cancel()
        if await self._ended(claimed, CANCEL_LIMIT_S):
            return not self._runs.any_left(claimed.topic, claimed.partition)
        for task, turn in self._running.items():
            if turn.claimed is claimed and turn.offsets and task not in self._stubborn:
                log.error("%s/%d: the handler does not end when it is cancelled", claimed, turn.offsets[0])
                self._stubborn[task] = asyncio.get_running_loop().create_future()
                self._runs.outlives(claimed.topic, claimed.partition, turn.offsets[0], self._stubborn[task])
        return False

    def skip(self, claimed: Claimed, group: bytes) -> int:
        """Drop the first message of a group that no handler runs now; returns how many went, 1 or 0."""
        if self._resting.skip(claimed, group):
            return 1
        return claimed.window.skip(group)

    @property
    def idle(self) -> int:
        """Handlers that wait for work."""
        return sum(not each.done() for each in self._idle)

    async def _ended(self, claimed: Claimed, limit: float) -> bool:
        deadline = asyncio.get_running_loop().time() + limit
        while any(turn.claimed is claimed for turn in self._running.values()):
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            claimed.ended.clear()
            await set_within(claimed.ended, left)
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
            try:
                await self._run(turn)
            finally:
                del self._running[task]
                if turn.offsets and turn.claimed.draining and turn not in self._resting:
                    turn.put_back()
                if task in self._stubborn:
                    self._stubborn.pop(task).cancel()
                turn.claimed.ended.set()
            while task.cancelling() and not self._stopping:
                task.uncancel()  # also where the handler kept its cancellation to itself

    async def _run(self, turn: Turn) -> None:
        """Run a turn, whatever happens in it."""
        try:
            await self._work(turn)
        except asyncio.CancelledError:
            if self._stopping or not turn.claimed.window.closed:
                raise
        except LostError:
            pass
        except (KafkaError, OSError) as error:
            # Of reading what is parked: a handler's belong to its attempt.
            log.warning(
                "%s/%d cannot be read: %s", turn.claimed, turn.offsets[0], error or type(error).__name__
            )
            self._rest(turn, LOAD_REST_S, release=False)
        except Exception:
            log.exception("%s: this should not happen", turn.claimed)
            turn.claimed.fail()

    def _next_turn(self, name: str) -> Turn | None:
        """One that has rested, else the oldest available message of the next partition that has one."""
        if (rested := self._resting.next()) is not None:
            return rested
        for _ in range(len(self._claims)):
            claimed = self._claims[0]
            self._claims.rotate(-1)
            turn = Turn(claimed, name)
            ledger = claimed.window.ledger
            offset = ledger.acquire(turn)
            if offset is not None:
                turn.offsets.append(offset)
                if self._prefetch > 1:
                    turn.offsets.extend(ledger.acquire_more(turn))
                return turn
        return None

    async def _work(self, turn: Turn) -> None:
        """Run a turn to its end, or until it rests, or until nothing more of its partition is handed out."""
        claimed, window = turn.claimed, turn.claimed.window
        while turn.offsets and not claimed.draining:
            offset = turn.offsets[0]
            left = self._runs.left(claimed.topic, claimed.partition, offset)
            if left is not None:
                self._await(turn, left)
                return
            record = window.record(offset)
            if record is None:
                record = await claimed.load(offset)
                if claimed.draining:
                    return
            if record is None:
                self._finish(turn)
            elif window.attempts.get(offset, 0) >= self._max_attempts:
                await self._bury(turn, record, "it was running whenever its consumer died")
            else:
                suspect = offset < window.suspect_below
                last = window.attempts.get(offset, 0) >= max(1, self._max_attempts - 1)
                async with self._last_of_suspects if suspect and last else contextlib.nullcontext():
                    rest = await self._begin(turn, record)
                if rest is not None:
                    self._rest(turn, *rest)
                    return

    async def _begin(self, turn: Turn, record: Any) -> tuple[float, bool] | None:
        """Begin its first message, as soon as a successor would know that; returns what :meth:`_attempt` does."""
        claimed, window, offset = turn.claimed, turn.claimed.window, turn.offsets[0]
        if claimed.draining:
            return None
        attempt = window.begin(offset)
        claimed.writer.note()
        unsafe = offset >= window.reserved or offset < window.suspect_below
        while unsafe or not claimed.writer.covers():  # also where the answer to a write came late
            await claimed.writer.persisted()
            unsafe = False
            if claimed.draining:
                self._take_back(claimed, offset)
                return None
        return await self._attempt(turn, record, attempt)

    async def _attempt(self, turn: Turn, record: Any, attempt: int) -> tuple[float, bool] | None:
        """Call the handler and do as it decides.

        Returns:
            None: the message is finished. Else how long its group rests, in seconds, and whether it is released.
        """
        try:
            await self._runs.run(self._factory.make(record, attempt, turn.claimed.fence))
        except asyncio.CancelledError:
            turn.claimed.window.take_back(record.offset)  # we ended it: that is no failure of its own
            raise
        except Release:
            self._take_back(turn.claimed, record.offset)
            self.counts["released"] += 1
            return RELEASE_REST_S, True
        except Reject as decision:
            await self._bury(turn, record, _legible(decision.reason) or "rejected by the handler")
        except Exception as error:  # noqa: BLE001 - whatever a handler raises, its message is tried again
            reason = _legible(
                error.reason if isinstance(error, Retry) else f"{type(error).__name__}: {error}"
            )
            if attempt < self._max_attempts:
                delay = (
                    error.delay
                    if isinstance(error, Retry) and error.delay is not None
                    else _back_off(attempt)
                )
                self.counts["retries"] += 1
                log.warning(
                    "%s/%d: attempt %d of %d failed, again in %.1f s: %s",
                    turn.claimed, record.offset, attempt, self._max_attempts, delay, reason,
                )  # fmt: skip
                return delay, False
            await self._bury(turn, record, reason or "tried in vain")
        else:
            self._finish(turn)
        return None

    def _take_back(self, claimed: Claimed, offset: int) -> None:
        claimed.window.take_back(offset)
        claimed.writer.note()

    def _finish(self, turn: Turn) -> None:
        if not turn.claimed.window.closed:
            turn.claimed.window.finish(turn, turn.offsets.popleft())
            turn.claimed.writer.note()
            self.counts["finished"] += 1

    async def _bury(self, turn: Turn, record: Any, reason: str) -> None:
        claimed, offset = turn.claimed, turn.offsets[0]
        attempts = claimed.window.attempts.get(offset, 0)
        log.error("%s/%d goes to the dead letters after %d attempts: %s", claimed, offset, attempts, reason)
        await claimed.writer.bury(DeadLetter(record, reason, attempts))
        if not claimed.window.closed:
            claimed.window.finish(turn, turn.offsets.popleft(), reject=True)
            claimed.writer.note()
            self.counts["dead_letters"] += 1

    def _rest(self, turn: Turn, delay: float, release: bool) -> None:
        """Keep the group for a while without a handler; then go on, or put all back."""
        if not turn.claimed.ending:
            self._resting.rest(turn, delay, release=release)

    def _await(self, turn: Turn, left: "asyncio.Future[Any]") -> None:
        """Keep the group, without a handler, until a run of an earlier claim of ours has ended; it may have finished it."""

        def over(_: "asyncio.Future[Any]") -> None:
            if not turn.offsets:
                return
            if not left.cancelled() and left.exception() is None:
                self._finish(turn)
            if turn.claimed.draining:
                turn.put_back()
            elif turn.offsets:
                self._resting.due(turn)
            else:
                self.wake(1)

        left.add_done_callback(over)


def _legible(reason: str) -> str:
    """A reason may quote the message, and with it half a surrogate pair, which no log and no header can hold."""
    return reason.encode(errors="backslashreplace").decode()


def _back_off(attempt: int) -> float:
    delay = RETRY_FIRST_S * float(2 ** min(attempt - 1, 20))
    return min(RETRY_MAX_S, delay) * random.uniform(0.8, 1.2)  # noqa: S311

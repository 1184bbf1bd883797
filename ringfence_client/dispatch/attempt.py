"""One attempt at the first message of a turn: what must be there before it, the handler's run, and what follows from it.

A handler's slot is for running handlers. Whatever an attempt waits for (progress that must be written first, a record that must be
read again, a dead letter that must be there before its group goes on), its turn waits for without a slot: a partition that can do
none of that keeps its own groups waiting, and nobody else's.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from aiokafka.errors import KafkaError

from ringfence_client.dispatch.circuit_breaker import CircuitBreaker
from ringfence_client.dispatch.failure_log import FailureLog, shortened
from ringfence_client.dispatch.poison_messages import PoisonMessages
from ringfence_client.dispatch.turn import RestingTurns, Turn
from ringfence_client.handlers import group_names
from ringfence_client.handlers.handler import HandlerError, HandlerRuns
from ringfence_client.handlers.message import Message, MessageFactory, Reject, Release, Retry
from ringfence_client.handlers.retries import RetryPolicy
from ringfence_client.partition.dead_letters import DeadLetter
from ringfence_client.partition.parked_reader import GONE
from ringfence_client.partition.partition import HeldPartition
from ringfence_client.progress.lease import LostError
from ringfence_kafka.errors import named

log: Final = logging.getLogger("ringfence.consumer")

RELEASE_REST_S: Final = 0.1
"""A released group rests for so long: a handler that releases what it gets would else do nothing else."""
CUT_SHORT_REST_S: Final = 10.0
"""A group whose handler an operator ended rests at least for so long: time to skip what it hung at."""
KILLED: Final = "it was running whenever its consumer died"
DROPPED: Final = "dropped by an operator"
LOAD_REST_S: Final = 1.0
"""A group whose parked message cannot be read now rests for so long."""


class Attempts:
    """Those of one consumer."""

    def __init__(
        self,
        runs: HandlerRuns,
        factory: MessageFactory,
        policy: RetryPolicy,
        breaker: CircuitBreaker,
        resting: RestingTurns,
        counts: Counter[str],
        cut_short: Callable[["asyncio.Task[None]", Turn, str], None],
        refuse: Callable[[HandlerError], None],
        limit: float,
        concurrency: int,
        *,
        park: bool = False,
    ) -> None:
        """Attempts without a loop of their own.

        Args:
            runs: Calls the handler.
            factory: Makes its messages.
            policy: How often it is called with one.
            breaker: Told of each outcome.
            resting: Where turns wait.
            counts: Counted on.
            cut_short: Ends the run of a task.
            refuse: Told when the handler turns out to be none.
            limit: Seconds that a run may take; 0 = any.
            concurrency: Handlers.
            park: Whether a group waits behind its dead letter.
        """
        self._runs = runs
        self._factory = factory
        self._policy = policy
        self._breaker = breaker
        self._resting = resting
        self._counts = counts
        self._cut_short = cut_short
        self._refuse = refuse
        self._limit = limit
        self._park = park
        self._failure_log = FailureLog()
        self.suspects = PoisonMessages(concurrency)
        self.preparing: Counter[HeldPartition] = Counter()
        """By partition, turns that wait for what an attempt needs and the partition itself must do."""

    async def work(self, turn: Turn) -> None:
        """Run a turn to its end, or until it rests, or until nothing more of its partition is handed out."""
        while turn.offsets and not turn.held.draining:
            if self._lacks(turn):
                return
            record = turn.held.window.record(turn.offsets[0])
            rest = await self._attempt(turn, record)
            if rest is not None:
                self.rest(turn, *rest)
            if turn in self._resting:
                return

    # -- before it --------------------------------------------------------------------------------------------

    def _lacks(self, turn: Turn) -> bool:
        """Whether something must happen before its first message is attempted; if so, the turn rests until then."""
        held, window, offset = turn.held, turn.held.window, turn.offsets[0]
        if self._waits(turn):
            self.suspects.withdraw(turn)
            return True
        window.resident.recall(offset)
        record = window.record(offset)
        if record is None:
            self._prepare(turn, _background(held.load(offset)), self._loaded)
            return True
        attempts, failures = window.attempts.get(offset, 0), window.failures.get(offset)
        dropped = offset in turn.given_up
        if dropped or (not turn.attempt and self._policy.died_of_it(attempts, failures)):
            turn.given_up -= {offset}
            self.suspects.withdraw(turn)
            park = False if dropped else None
            self._bury(turn, record, DROPPED if dropped else KILLED, park=park)
            return True
        if turn.attempt:
            unsafe = False
        else:
            suspect = offset < window.suspect_below
            if suspect:
                last = self._policy.last_before_death(attempts, failures)
                if (admitted := self.suspects.begin(turn, last=last)) is not None:
                    self._resting.until(turn, admitted, lambda _: self._resting.go_on(turn))
                    return True
            turn.begin()
            unsafe = offset >= window.reserved or suspect
        if unsafe or not held.writer.covers():  # also where the answer to a write came late
            self._prepare(turn, held.writer.persisted(), self._recorded)
            return True
        return False

    def _waits(self, turn: Turn) -> bool:
        """Whether its first message is not to be tried now: a run of it goes on that nobody could end, or it is blocked."""
        held, offset = turn.held, turn.offsets[0]
        if (left := self._runs.left(held.fence.log, offset)) is not None:
            self.wait_for_left(turn, left)
            return True
        if offset not in turn.given_up and (blocking := held.blocking(offset)) is not None:
            held.window.rest([offset])
            held.window.set_aside(offset)
            self._resting.until(turn, blocking, lambda _: self._resting.go_on(turn))
            return True
        return False

    def _prepare(
        self, turn: Turn, needed: "asyncio.Future[Any]", then: Callable[[Turn, "asyncio.Future[Any]"], None]
    ) -> None:
        held = turn.held
        self.preparing[held] += 1

        def counted(_: "asyncio.Future[Any]") -> None:
            self.preparing[held] -= 1
            if not self.preparing[held]:
                del self.preparing[held]
            if turn not in self._resting:
                self._resting.passed()  # it was dropped meanwhile; others of its partition were passed over because of it

        # Before what follows, which may prepare something else.
        needed.add_done_callback(counted)
        self._resting.until(turn, needed, lambda future: then(turn, future))

    def _loaded(self, turn: Turn, future: "asyncio.Future[Any]") -> None:
        error = None if future.cancelled() else future.exception()
        if error is None and not future.cancelled():
            if future.result() is GONE:
                self._finish(turn)
            elif future.result() is None and not turn.held.draining:
                self.rest(turn, LOAD_REST_S, release=False)
                return
        elif isinstance(error, KafkaError | OSError):
            log.warning("%s/%d cannot be read: %s", turn.held, turn.offsets[0], named(error))
            self.rest(turn, LOAD_REST_S, release=False)
            return
        elif error is not None:
            log.error("%s: internal error, please report", turn.held, exc_info=error)
            turn.held.fail()
        self._resting.go_on(turn)

    def _recorded(self, turn: Turn, future: "asyncio.Future[Any]") -> None:
        if future.cancelled() or future.exception() is not None:
            turn.over()  # the partition is lost, and its turns with it; but messages of others may wait for this attempt
            return
        self._resting.go_on(turn)

    # -- the attempt ------------------------------------------------------------------------------------------

    async def _attempt(self, turn: Turn, record: Any) -> tuple[float, bool] | None:
        """Call the handler and do as it decides.

        Returns:
            None: the message is finished, or will be. Else how long its group rests, in seconds, and whether it is released.
        """
        redriven = turn.held.window.redriven.get(record.offset, 0)
        message = self._factory.make(record, turn.attempt, turn.held.fence, redriven)
        run = turn.run = object()
        error: BaseException | None = None
        try:
            await self._run(turn, message)
        except BaseException as raised:
            error = raised
        if turn.run is not run:
            raise LostError(f"{turn.held}/{record.offset} went on without this run")
        turn.run = None
        if turn.cut_short and (error is not None or not self._runs.in_threads):
            # A coroutine that returns although it was cancelled may have left out the rest.
            return self._failed(turn, record, HandlerEndedError(turn.cut_short))
        return self._judge(turn, record, error)

    async def _run(self, turn: Turn, message: Message) -> None:
        if not self._limit:
            await self._runs.run(message)
            return
        task = cast("asyncio.Task[None]", asyncio.current_task())
        reason = f"the handler did not end within {self._limit:g} s (--handler-timeout)"
        timer = asyncio.get_running_loop().call_later(self._limit, self._cut_short, task, turn, reason)
        try:
            await self._runs.run(message)
        finally:
            timer.cancel()

    def _judge(self, turn: Turn, record: Any, error: BaseException | None) -> tuple[float, bool] | None:
        match error:
            case None:
                self._count_success(turn)
                self._finish(turn)
            case Reject():
                self._count_success(turn)
                self._bury(turn, record, _legible(error.reason) or "rejected by the handler")
            case Release():
                turn.take_back()
                self._counts["released"] += 1
                return RELEASE_REST_S, True
            case HandlerError():
                turn.take_back()
                self._refuse(error)
                return CUT_SHORT_REST_S, False
            case asyncio.CancelledError():
                turn.take_back()  # we ended it: that is no failure of its own
                raise error
            case _:  # whatever a handler raises, no matter of which class, its message is tried again
                return self._failed(turn, record, error)
        return None

    def leave(self, turn: Turn) -> None:
        """Its run goes on although it was cancelled, and belongs to nobody any more; the turn goes on without it."""
        turn.run = None
        record = turn.held.window.record(turn.offsets[0])
        if turn.cut_short and not turn.held.draining:
            rest = self._failed(turn, record, HandlerEndedError(turn.cut_short))
            if rest is not None:
                self.rest(turn, *rest)
        else:
            turn.put_back()

    def _failed(self, turn: Turn, record: Any, error: BaseException) -> tuple[float, bool] | None:
        held, offset, attempt = turn.held, record.offset, turn.attempt
        if held.window.closed or not turn.offsets:
            return None
        said = error.reason if isinstance(error, Retry) else None
        reason = _legible(
            str(error) if isinstance(error, HandlerEndedError) else named(error) if said is None else said
        )
        first = offset not in held.window.failures
        turn.count()
        held.window.fail(offset, round(time.time() * 1000))
        turn.over()
        self._counts["failed"] += 1
        if self._breaker.failed(first=first, reason=reason, now=asyncio.get_running_loop().time()):
            log.error(
                "nearly every attempt fails, the last with: %s: slowing down to an attempt now and then until some succeed, "
                "and nothing is given up meanwhile; look at what the handler depends on", reason,
            )  # fmt: skip
        left = self._runs.left(held.fence.log, offset)
        if left is not None:
            log.warning(
                "%s/%d: attempt %d failed, and its handler goes on; group %s waits for it, all others go on: %s",
                held, offset, attempt, shown(record.key), reason,
            )  # fmt: skip
            self.wait_for_left(turn, left, lambda: self._again(turn, record, attempt, reason, error))
            return None
        return self._again(turn, record, attempt, reason, error)

    def _again(
        self, turn: Turn, record: Any, attempt: int, reason: str, error: BaseException
    ) -> tuple[float, bool] | None:
        """After a failed attempt of which nothing runs any more: give the message up, or say how long its group rests."""
        held, offset, now_ms = turn.held, record.offset, round(time.time() * 1000)
        failures = held.window.failures[offset]
        if self._policy.exhausted(attempt) and not self._breaker.open:
            self._bury(turn, record, reason or "failed in every attempt", error)
            return None
        asked = error.delay if isinstance(error, Retry) else None
        delay = self._policy.delay(attempt, failures, now_ms, asked)
        if isinstance(error, HandlerEndedError):
            delay = max(delay, CUT_SHORT_REST_S)
        self._failure_log.attempt_failed(
            f"{held}/{offset}: attempt {attempt} failed, again in {delay:.1f} s: {reason} (group {shown(record.key)})"
        )
        return delay, False

    def _count_success(self, turn: Turn) -> None:
        first = bool(turn.offsets) and not turn.has_failed
        if self._breaker.succeeded(first=first):
            log.info(
                "attempts succeed again: messages that fail may become dead letters again, and all handlers get work"
            )

    # -- after it ---------------------------------------------------------------------------------------------

    def _finish(self, turn: Turn) -> None:
        if not turn.held.window.closed and turn.offsets:
            turn.finish()
            self._counts["finished"] += 1

    def _bury(
        self,
        turn: Turn,
        record: Any,
        reason: str,
        error: BaseException | None = None,
        *,
        park: bool | None = None,
    ) -> None:
        """Have a dead letter written; its group waits until it is, or with ``park`` until it is redriven."""
        parks = self._park if park is None else park
        held, offset = turn.held, turn.offsets[0]
        attempts = held.window.attempts.get(offset, 0)
        message: Message = self._factory.make(record, attempts, held.fence)
        trace = error if error is not None and not isinstance(error, Retry | HandlerEndedError) else None
        self._failure_log.dead_letter(
            f"{held}/{offset} goes to the dead letters after {attempts} attempts: {reason} (group {shown(message.group)}, "
            f"ID {_printed(message.duplicate_id)})",
            trace,
        )
        turn.over()

        def written(future: "asyncio.Future[None]") -> None:
            if future.cancelled() or future.exception() is not None or held.window.closed:
                return  # the partition is lost, and its turns with it
            if not parks:
                turn.finish(reject=True)
            self._counts["dead_letters"] += 1
            self._resting.go_on(turn)

        letter = DeadLetter(record, reason, attempts, held.window.redriven.get(offset, 0), parks)
        self._resting.until(turn, held.writer.bury(letter), written, keeps=True)

    def rest(self, turn: Turn, delay: float, release: bool) -> None:
        """Keep the group for a while without a handler; then go on, or put all back."""
        if not turn.held.ending:
            self._resting.rest(turn, delay, release=release)

    def wait_for_left(
        self,
        turn: Turn,
        left: "asyncio.Future[Any]",
        again: Callable[[], tuple[float, bool] | None] | None = None,
    ) -> None:
        """Keep the group, without a handler, until a run that nobody could end has ended; it may have finished it.

        ``again`` decides, where it has not, what becomes of the attempt that the run was, as :meth:`_attempt` returns it.
        """

        def over(_: "asyncio.Future[Any]") -> None:
            finished = not left.cancelled() and left.exception() is None
            if finished:
                self._finish(turn)
            if turn.held.draining:
                turn.put_back()
                return
            rest = again() if again is not None and not finished else None
            if rest is not None:
                self.rest(turn, *rest)
            elif turn not in self._resting:
                self._resting.go_on(turn)

        self._resting.until(turn, left, over)


class HandlerEndedError(Exception):
    """A handler's run was ended by somebody else."""


def shown(group: bytes | None) -> str:
    """A group in a log line, as verbs take it."""
    return "none" if group is None else group_names.shown(group)


def _printed(duplicate_id: bytes | None) -> str:
    return "none" if duplicate_id is None else duplicate_id.decode(errors="backslashreplace")


def _legible(reason: str) -> str:
    """A reason may quote the message: all of it, or half a surrogate pair, which no log and no header can hold."""
    return shortened(reason).encode(errors="backslashreplace").decode()


def _background(work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    return asyncio.create_task(work)

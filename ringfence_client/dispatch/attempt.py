"""One attempt at the first message of a turn: its conditions, the handler's run, and its outcome.

Slots are for running handlers. A turn waits without a slot until progress is written, a record is read again, or a dead letter is written.
A partition that cannot do this delays only its own groups.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, cast

from aiokafka.errors import KafkaError

from ringfence_client.dispatch.circuit_breaker import CircuitBreaker
from ringfence_client.dispatch.failure_log import FailedAttempt, FailureLog, legible
from ringfence_client.dispatch.poison_messages import PoisonMessages
from ringfence_client.dispatch.resting_turns import RestingTurns
from ringfence_client.dispatch.turn import Rest, Turn, messages_of
from ringfence_client.dispatch.turn_waits import TurnWaits
from ringfence_client.handlers import group_names
from ringfence_client.handlers.effects import Effects
from ringfence_client.handlers.handler import HandlerEndedError, HandlerError, HandlerRuns
from ringfence_client.handlers.message import Message, MessageFactory, Reject, Release, Retry
from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.handlers.retries import Failures
from ringfence_client.partition.parked_reader import GONE
from ringfence_client.progress.lease import LostError
from ringfence_client.sends.outbox import OutgoingRecord
from ringfence_client.window.window import End
from ringfence_kafka.errors import named

log: Final = logging.getLogger("ringfence.consumer")

RELEASE_REST_S: Final = 0.1
"""Rest of a released group, in seconds. A handler that releases every message would otherwise run all the time."""
CUT_SHORT_REST_S: Final = 10.0
"""Shortest rest of a group whose handler an operator ended, in seconds. It leaves time to skip the message."""
KILLED: Final = "its consumer died in each of its attempts"
DROPPED: Final = "dropped by an operator"
LOAD_REST_S: Final = 1.0
"""Rest of a group whose parked message cannot be read now, in seconds."""


class Attempts:
    """Attempts of one consumer."""

    def __init__(
        self,
        runs: HandlerRuns,
        factory: MessageFactory,
        options: ConsumerOptions,
        breaker: CircuitBreaker,
        resting: RestingTurns,
        counts: Counter[str],
        cut_short: Callable[["asyncio.Task[None]", Turn, str], None],
        refuse: Callable[[HandlerError], None],
    ) -> None:
        """``cut_short`` ends the run of a task; ``refuse`` is called when the handler is unusable."""
        self._runs = runs
        self._factory = factory
        self._options = options
        self._parks = options.on_dead_letter == "park"
        self._breaker = breaker
        self._resting = resting
        self._counts = counts
        self._cut_short = cut_short
        self._refuse = refuse
        self._failure_log = FailureLog()
        self.recent_failures = self._failure_log.recent
        self._stopping = False
        self._abandoned: set[Turn] = set()
        """Turns that continue without the runs that their tasks wait for."""
        self.suspects = PoisonMessages(options.concurrency, runs.soon)
        self._waits = TurnWaits(resting, self.suspects, self._failure_log, factory, counts, self._finish)

    def stop(self) -> None:
        """Stop counting cancellations as failures."""
        self._stopping = True

    # -- before it --------------------------------------------------------------------------------------------

    def prepare(self, turn: Turn) -> bool:
        """Return whether the first message of a turn can be attempted now. If not, the turn waits and is due again later."""
        window, offset = turn.held.window, turn.offsets[0]
        if self._is_blocked(turn):
            self.suspects.withdraw(turn)
            return False
        window.cache.recall(offset)
        record = window.cache.record(offset)
        if record is None:
            self._resting.wait(turn, asyncio.create_task(self._load(turn)), prepares=True)
            return False
        attempts, failures = window.attempts.counts.get(offset, 0), window.attempts.failures.get(offset)
        is_dropped = offset in turn.given_up
        if is_dropped or (
            attempts and not turn.attempt and self._options.policy.died_of_it(attempts, failures)
        ):
            self.suspects.withdraw(turn)
            self._waits.write_dead_letter(
                turn, record, DROPPED if is_dropped else KILLED, parks=self._parks and not is_dropped
            )
            return False
        return (bool(turn.attempt) or self._waits.may_run(turn, record.key)) and self._begin(
            turn, attempts, failures
        )

    def _begin(self, turn: Turn, attempts: int, failures: Failures | None) -> bool:
        """Start the attempt if it has not started; return whether the handler may run now."""
        held, window, offset = turn.held, turn.held.window, turn.offsets[0]
        is_unknown = False
        if not turn.attempt:
            is_suspect = offset < window.suspect_below
            if is_suspect:
                last = self._options.policy.last_before_death(attempts, failures)
                if (admitted := self.suspects.begin_trial(turn, last=last, first=not attempts)) is not None:
                    self._resting.wait(turn, admitted)
                    return False
            turn.begin_attempt()
            is_unknown = is_suspect or offset >= window.reserved
        # A successor must know of the attempt before it runs. A late answer to a write also ends the cover of the lease.
        if is_unknown or not held.writer.covers():
            self._resting.wait(turn, held.writer.persisted(), prepares=True)
            return False
        return True

    def _is_blocked(self, turn: Turn) -> bool:
        """Return whether the first message waits for a redrive, or for an earlier run that did not end."""
        held, offset = turn.held, turn.offsets[0]
        if (left := self._runs.left(held.fence.log, offset)) is not None:
            self._waits.await_run(turn, left)
            return True
        if offset not in turn.given_up and (unblocked := held.unblocked(offset)) is not None:
            held.window.attempts.rest([offset])
            held.window.mark_waiting(offset)
            self._resting.wait(turn, unblocked)
            return True
        return False

    async def _load(self, turn: Turn) -> Rest | None:
        held, offset = turn.held, turn.offsets[0]
        try:
            record = await asyncio.shield(held.load(offset))  # the reading also serves other turns
        except (KafkaError, OSError) as error:
            log.warning("%s/%d cannot be read: %s", held, offset, named(error))
            return Rest(LOAD_REST_S)
        if record is GONE:
            self._finish(turn)
        return Rest(LOAD_REST_S) if record is None and not held.draining else None

    # -- the attempt ------------------------------------------------------------------------------------------

    async def work(self, turn: Turn) -> None:
        """Run a prepared turn until it is done or waits, or its partition hands out no more messages."""
        while True:
            rest = await self._attempt(turn)
            if rest is not None:
                self._resting.rest(turn, rest)
            if not turn.offsets or turn in self._resting or turn.held.draining or not self.prepare(turn):
                return

    async def _attempt(self, turn: Turn) -> Rest | None:
        """Call the handler and apply its decision. Returns the rest of its group; None = the message is finished, or will be."""
        window, offset = turn.held.window, turn.offsets[0]
        record = window.cache.record(offset)
        messages = messages_of(turn, record, self._factory, self._runs, self._options.batch)
        if turn.trial is not None:
            self.suspects.started(turn)
        effects = messages[0].effects
        sent: list[OutgoingRecord] = []
        error: BaseException | None = None
        try:
            if self._options.handler_timeout:
                await self._run_limited(turn, messages)
            else:
                await self._runs.call(messages)
            effects.end()  # later sends would be lost
            if effects.are_asked_for:
                found = turn.held.sends.resolve_at_once(effects)
                sent = await turn.held.sends.resolve(effects) if found is None else found
        except asyncio.CancelledError as raised:
            is_ours = turn.cut_short or turn.held.draining or self._stopping
            # A turn with a cancelled attempt would keep its group for ever.
            error = raised if is_ours else RuntimeError("the handler cancelled its own task")
        except BaseException as raised:
            error = raised
        if turn in self._abandoned:
            self._abandoned.discard(turn)
            raise LostError(f"{turn.held}/{offset} continued without this run")
        left = self._runs.left(turn.held.fence.log, offset)
        if left is None:
            effects.end()
        else:
            self._waits.abandon(left, messages)
        if turn.cut_short and (error is not None or not self._runs.in_threads):
            # A coroutine that returns after its cancellation may have skipped its remaining work.
            ended = HandlerEndedError(turn.cut_short)
            return (
                self._try_alone(turn, record, ended)
                if turn.batched and left is None
                else self._failed(turn, record, ended)
            )
        return self._judge(turn, record, error, effects, sent)

    async def _run_limited(self, turn: Turn, messages: list[Message]) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        reason = f"the handler did not end within {self._options.handler_timeout:g} s (--handler-timeout)"
        timer = asyncio.get_running_loop().call_later(
            self._options.handler_timeout, self._cut_short, task, turn, reason
        )
        try:
            await self._runs.call(messages)
        finally:
            timer.cancel()

    def _judge(
        self,
        turn: Turn,
        record: Any,
        error: BaseException | None,
        effects: Effects,
        sent: list[OutgoingRecord],
    ) -> Rest | None:
        if error is not None and turn.batched and not isinstance(error, Release | HandlerError):
            return self._try_alone(turn, record, error)
        match error:
            case None:
                self._count_success(turn)
                self._finish(turn, record.key, effects, sent)
            case Reject():
                self._count_success(turn)
                self._waits.write_dead_letter(
                    turn, record, legible(error.reason) or "rejected by the handler", parks=self._parks
                )
            case Release():
                turn.break_batch()
                turn.take_back()
                self._counts["released"] += 1
                return Rest(RELEASE_REST_S, release=True)
            case HandlerError():
                turn.break_batch()
                turn.take_back()
                self._refuse(error)
                return Rest(CUT_SHORT_REST_S)
            case asyncio.CancelledError():
                turn.take_back()  # the consumer cancelled the run: the message did not fail
                raise error
            case _:  # for any other exception, the message is tried again
                return self._failed(turn, record, error)
        return None

    def _try_alone(self, turn: Turn, record: Any, error: BaseException) -> Rest | None:
        """Try the messages of a failed batch one by one. It does not count as an attempt, because one message failed it."""
        count = 1 + len(turn.batched)
        attempt = turn.attempt
        turn.break_batch()
        turn.take_back()
        if isinstance(error, asyncio.CancelledError):
            raise error
        held, offset = turn.held, record.offset
        text = f"a batch of {count} messages failed and is tried one by one: {legible(named(error))}"
        self.recent_failures.append(
            FailedAttempt(self._resting.clock.now_ms(), held.partition, offset, record.key, attempt, text)
        )
        self._failure_log.attempt_failed(f"{held}/{offset}: {text}")
        return None

    def abandon(self, turn: Turn) -> None:
        """Let a turn continue without its run, which ignored its cancellation."""
        self._abandoned.add(turn)
        if not turn.cut_short or turn.held.draining:
            turn.put_back()
            return
        record = turn.held.window.cache.record(turn.offsets[0])
        if (rest := self._failed(turn, record, HandlerEndedError(turn.cut_short))) is not None:
            self._resting.rest(turn, rest)

    def _failed(self, turn: Turn, record: Any, error: BaseException) -> Rest | None:
        held, offset, attempt = turn.held, record.offset, turn.attempt
        turn.break_batch()
        if held.window.closed or not turn.offsets:
            return None
        said = error.reason if isinstance(error, Retry) else None
        reason = legible(
            str(error) if isinstance(error, HandlerEndedError) else named(error) if said is None else said
        )
        first, now_ms = not turn.has_failed, self._resting.clock.now_ms()
        turn.count_failure(now_ms)
        self.recent_failures.append(
            FailedAttempt(now_ms, held.partition, offset, record.key, attempt, reason)
        )
        self._counts["failed"] += 1
        now = asyncio.get_running_loop().time()
        # A failure caused by the message proves neither an outage nor working handlers.
        if not isinstance(error, self._options.reject_on) and self._breaker.failed(
            first=first, reason=reason, now=now
        ):
            log.error(
                "nearly every attempt fails, the last with: %s. The consumer slows down until attempts "
                "succeed, and discards nothing. Look at what the handler depends on", reason,
            )  # fmt: skip
        left = self._runs.left(held.fence.log, offset)
        if left is not None:
            log.warning(
                "%s/%d: attempt %d failed, and its handler still runs; group %s waits for it, and all "
                "others continue: %s",
                held, offset, attempt, group_names.shown_or_none(record.key), reason,
            )  # fmt: skip
            self._waits.await_run(
                turn, left, lambda: self._after_failure(turn, record, attempt, reason, error)
            )
            return None
        return self._after_failure(turn, record, attempt, reason, error)

    def _after_failure(
        self, turn: Turn, record: Any, attempt: int, reason: str, error: BaseException
    ) -> Rest | None:
        """Give the message up, or return the rest of its group. Nothing of the attempt runs any more."""
        held, offset, now_ms = turn.held, record.offset, self._resting.clock.now_ms()
        is_last = attempt >= self._options.policy.max_attempts
        is_given_up = is_last or isinstance(error, self._options.reject_on)
        if is_given_up and not self._breaker.open:
            self._waits.write_dead_letter(
                turn, record, reason or "failed in every attempt", error, parks=self._parks
            )
            return None
        asked = error.delay if isinstance(error, Retry) else None
        delay = self._options.policy.delay(attempt, held.window.attempts.failures[offset], now_ms, asked)
        if isinstance(error, HandlerEndedError):
            delay = max(delay, CUT_SHORT_REST_S)
        self._failure_log.attempt_failed(
            f"{held}/{offset}: attempt {attempt} failed, again in {delay:.1f} s: {reason} (group {group_names.shown_or_none(record.key)})"
        )
        return Rest(delay)

    def _count_success(self, turn: Turn) -> None:
        if self._breaker.succeeded(first=bool(turn.offsets) and not turn.has_failed):
            log.info(
                "attempts succeed again: failing messages can become dead letters again, and all handlers "
                "work"
            )

    # -- after it ---------------------------------------------------------------------------------------------

    def _finish(
        self,
        turn: Turn,
        group: bytes | None = None,
        effects: Effects | None = None,
        sent: list[OutgoingRecord] | None = None,
    ) -> None:
        if not turn.held.window.closed and turn.offsets:
            self._counts["finished"] += 1 + len(turn.batched)
            # One step without await: no progress record is taken in between.
            turn.finish(End.ACK)
            turn.held.acknowledge(group, sent or (), effects)

"""Writes a holder's progress record, dead letters and the consumer group's offset in one transaction.

The group's offset is never committed in another way: a plain commit ignores fences.
"""

import asyncio
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final

from aiokafka import TopicPartition

from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.partition.dead_letters import DeadLetter, DeadLetters, PendingLetters
from ringfence_client.partition.write_schedule import WriteSchedule
from ringfence_client.progress import progress_record
from ringfence_client.progress.lease import Lease, LostError
from ringfence_client.progress.progress_record import Progress
from ringfence_client.progress.progress_topic import record_batches
from ringfence_client.progress.record_parts import PartLayout
from ringfence_client.sends.partition_sends import PartitionSends
from ringfence_client.window.window import End, Window
from ringfence_kafka import clock
from ringfence_kafka.concurrency.timeouts import back_off, set_within
from ringfence_kafka.errors import named, require
from ringfence_kafka.producer.transactional import Outgoing, TransactionalProducer, refusing_topics

log: Final = logging.getLogger("ringfence.consumer")

TRANSACTION_LIMIT_S: Final = 8.0
LETTERS_LIMIT_S: Final = 4.0
"""Time limit of a transaction with dead letters, in seconds. A dead-letter topic that refuses them delays progress no longer."""
TRANSACTION_TIMEOUT_MS: Final = 10_000
"""Limit of the delay that an open transaction of a dead holder causes for readers of the progress topic, in milliseconds."""
BACKOFF_FIRST_S: Final = 0.1
BACKOFF_MAX_S: Final = 5.0
CROWDED: Final = 0.8
"""Share of a partition's limit of waiting messages above which the log warns."""


class ProgressWriter:
    """Writer of one held partition, with its own task."""

    def __init__(
        self,
        lease: Lease,
        window: Window,
        producer: TransactionalProducer,
        destination: Callable[[], tuple[str, int]],
        dead_letters: DeadLetters,
        take_back: Callable[[Callable[[], bool]], Awaitable[tuple[TransactionalProducer, Progress | None]]],
        explain: Callable[[Exception], Awaitable[str]],
        sends: PartitionSends,
        *,
        options: ConsumerOptions,
        parts: Iterable[int] = (),
    ) -> None:
        """Prepare a writer for a producer that has fenced. ``parts``: numbers of the parts of the last holder's record.

        ``destination`` returns the present topic and partition of the progress record. ``take_back`` is called after a failure, with a
        function that returns whether the partition is draining. It returns a producer that has fenced again, and the last committed
        progress. It raises :class:`LostError` if another consumer holds the partition, and any other error if that is unknown.
        ``explain`` returns the reason of a failed write in words.
        """
        self.sends = sends
        self._lease = lease
        self._window = window
        self._producer = producer
        self._destination = destination
        self._dead_letters = dead_letters
        self._take_back = take_back
        self._explain = explain
        self._committing = True
        """Whether the group's offset is written too."""
        self._writing: asyncio.Timeout | None = None
        """Time limit of the running transaction."""
        self._state = progress_record.HELD
        self._beat = 0
        self._next = 0
        """``next`` of the last record that is known to be committed. It never decreases."""
        self._closing = asyncio.Event()
        self._schedule = WriteSchedule(options, self._closing)
        # Handlers call these for each message, so this class adds no methods in between.
        self.count_changes, self.hurry, self.covers = (
            self._schedule.count_changes,
            self._schedule.hurry,
            self._schedule.covers,
        )
        self._ended = False
        """The writer has stopped."""
        self._finished = False
        """The final record is written."""
        self._broken = False
        """The producer must be replaced."""
        self._outlived = False
        """A handler run continues that the consumer failed to stop."""
        self._in_doubt: tuple[int, int] | None = None
        """Beat of a failed transaction, and number of the first waiting futures to complete if the next fence shows that it was committed."""
        self._parts = PartLayout(parts)
        self._task: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self.letters = PendingLetters(str(lease), dead_letters, self.hurry)
        self._crowded = False
        """Whether the log has warned of too many waiting messages."""
        self.fault = ""
        """Reason why progress is not being written; empty = it is written."""
        self.failing_since = 0.0
        """Start of the present fault by the monotonic clock, in seconds."""

    def start(self, lost: Callable[[], None], refused: Callable[[], None] = lambda: None) -> None:
        """Start writing. ``lost`` is called if another consumer holds the partition; ``refused``, and the writer stops, if a topic refused a send."""
        self._task = asyncio.create_task(self._run(lost, refused), name=f"progress of {self._lease}")

    @property
    def draining(self) -> bool:
        """Whether the dispatcher must not deliver new messages."""
        return self._state != progress_record.HELD

    def hold(self, held: bool) -> None:
        """Write the state held or draining. A closing writer ignores the call."""
        if self._closing.is_set():
            return
        self._state = progress_record.HELD if held else progress_record.DRAINING
        self.count_changes()
        self.hurry()

    def exists(self, exists: bool) -> None:
        """Leave out the group's offset while the partition does not exist: the cluster refuses it, and the transaction would not end."""
        if self._committing and not exists and self._writing is not None:
            self._writing.reschedule(0)  # the running transaction contains the offset
        self._committing = exists

    def write_again(self) -> None:
        """Write everything again, because the topic lost it."""
        self._parts.forget()
        if not self._closing.is_set():
            self.count_changes()
            self.hurry()

    def persisted(self) -> "asyncio.Future[None]":
        """Return a future that completes when everything recorded so far is committed, or fails with :class:`LostError`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._ended:
            _refuse(future, LostError(f"{self._lease} is no longer held"))
        else:
            self._waiting.append(future)
            self.hurry()
        return future

    def write_dead_letter(self, letter: DeadLetter) -> "asyncio.Future[None]":
        """Write a dead letter and finish its message; the future completes as in :meth:`persisted`."""
        if self._ended:
            return self.persisted()  # the future fails
        self.hurry()
        return self.letters.add_letter(letter)

    def withdraw(self, offset: int) -> bool:
        """Cancel the dead letter of a message. Returns False if it may be written already."""
        return self.letters.withdraw(offset)

    async def close(self, limit: float, *, released: bool) -> bool:
        """Write the final record; return whether that succeeded within ``limit`` seconds. ``released``: all runs have ended."""
        self._state = progress_record.RELEASED if released else progress_record.DRAINING
        # A thread that ignores its cancellation counts as running. No other consumer should start its message soon.
        self._outlived = not released
        self._closing.set()
        self.hurry()
        if self._task is not None:
            done, _ = await asyncio.wait([self._task], timeout=limit)
            if not done:
                log.warning(
                    "%s: final progress not written; the next consumer repeats messages that finished "
                    "since the last write",
                    self._lease,
                )
        await self.abandon()
        return self._finished

    async def abandon(self) -> None:
        """Stop without another write, because another consumer holds the partition."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait([self._task])
        self._give_up()
        await self._producer.discard()

    # -- the task ------------------------------------------------------------------------------------------

    async def _run(self, lost: Callable[[], None], refused: Callable[[], None]) -> None:
        attempt = 0
        while True:
            await self._schedule.due(self._window.attempts.running)
            closing = self._closing.is_set()
            letters: Collection[DeadLetter] = ()
            try:
                if self._broken:
                    await self._start_again()
                letters = self.letters.take_letters()
                await self._write(letters)
                attempt, self.fault = 0, ""
                if closing:
                    self._finished = True
                    return
            except LostError as error:
                log.warning("%s: another consumer has it now: %s", self._lease, error)
                self._give_up()
                lost()
                return
            except Exception as error:
                attempt += 1
                self._broken = True
                self.hurry()
                self._parts.forget()
                shown = await self.sends.explained(error, self._destination())
                refusing = refusing_topics(shown)
                is_own = self._destination()[0] in refusing
                if not is_own and self.sends.refused(shown):
                    log.error(
                        "%s: %s: records that handlers send there cannot be written. The partition "
                        "reopens: unwritten messages are handled again, and those that send there fail",
                        self._lease, named(shown),
                    )  # fmt: skip
                    self._give_up()
                    await self._producer.discard()
                    refused()
                    return
                if letters and (not refusing or self._dead_letters.topic.name in refusing):
                    self.letters.rest(error)
                await self._back_off(error, attempt)

    async def _write(self, letters: Collection[DeadLetter]) -> None:
        """Write one transaction with everything recorded so far and these dead letters."""
        window, lease, begun, building = self._window, self._lease, clock.now(), time.monotonic()
        self._beat += 1
        progress = dataclasses.replace(
            window.progress(
                dead_lettered=frozenset(letter.offset for letter in letters if not letter.parks),
                blocking=frozenset(letter.offset for letter in letters if letter.parks),
                outlived=self._outlived,
            ),
            holder=lease.holder, web=lease.web, state=self._state, token=lease.token, beat=self._beat, topic_id=lease.topic_id,
            states=self.sends.states.topic_id,
        )  # fmt: skip
        require(
            progress.next >= self._next, lease, "is written up to", progress.next, "and was up to", self._next
        )
        change = self._parts.change(progress)
        records = progress_record.records(lease.key, progress, change)
        size = sum(len(value or b"") for _, value in records)
        filled = record_batches(records, self._producer.builder)
        batches = [Outgoing(*self._destination(), item) for item in filled]
        sent = self.sends.take_batches(self._producer.builder)
        built_s = time.monotonic() - building
        if letters:
            batches += self._dead_letters.outgoing(letters, self._producer)
        batches += sent
        # The futures are taken last: a letter that cannot be built must delay its message.
        waiting, self._waiting = self._waiting, []
        running = bool(progress.running)
        write = self._schedule.start_write(begun, running=running)
        offsets = {TopicPartition(lease.topic, lease.partition): progress.next} if self._committing else {}
        try:
            limit = LETTERS_LIMIT_S if letters else TRANSACTION_LIMIT_S
            async with self._producer.turn(), asyncio.timeout(limit) as self._writing:
                bases = await self._producer.transact(batches, offsets, lease.group)
        except BaseException:
            self._waiting = waiting + self._waiting
            self._schedule.failed(write)
            self._in_doubt = progress.beat, len(waiting)
            raise
        finally:
            self._writing = None
        self._next = progress.next
        self._parts.written()
        self.sends.commit(batches, bases)
        window.written(progress)
        self._schedule.written(write, running=running, size=size, built_s=built_s)
        self._confirm_letters()
        _answer(waiting)
        self._warn_of_crowding()

    def _warn_of_crowding(self) -> None:
        """Warn in time: at the limit, healthy groups wait too."""
        crowding = self._window.crowding
        if crowding >= CROWDED and not self._crowded:
            log.warning(
                "%s: waiting messages have reached %.0f %% of the limit of a partition. At 100 %% fetching "
                "from it pauses, and healthy groups wait too. Fix the failures, or drop failing groups "
                "('ringfence groups show', 'skip', 'purge')",
                self._lease, 100 * crowding,
            )  # fmt: skip
        self._crowded = crowding >= (CROWDED / 2 if self._crowded else CROWDED)

    def _confirm_letters(self) -> None:
        for letter in self.letters.written():
            if letter.parks:
                self._window.redrives.blocked.add(letter.offset)
            else:
                self._window.finish(letter.offset, End.DEAD_LETTER)

    async def _back_off(self, error: Exception, attempt: int) -> None:
        if not self.fault:
            self.failing_since = time.monotonic()
        self.fault = named(error)
        if attempt > 1 and (seen := await self._explain(error)):
            self.fault = f"{self.fault}: {seen}"
        delay = back_off(attempt, BACKOFF_FIRST_S, BACKOFF_MAX_S)
        log.warning(
            "%s: progress not written, next attempt in %.1f s (attempt %d): %s",
            self._lease, delay, attempt, self.fault,
        )  # fmt: skip
        await self._producer.discard()
        if self._closing.is_set():
            await asyncio.sleep(BACKOFF_FIRST_S)
        else:
            await set_within(self._closing, delay)

    async def _start_again(self) -> None:
        self._producer, progress = await self._take_back(lambda: self.draining)
        self._broken = False
        doubt, self._in_doubt = self._in_doubt, None
        lease = self._lease
        if (
            doubt is not None
            and progress is not None
            and (progress.holder, progress.beat) == (lease.holder, doubt[0])
        ):
            # It was committed, and only its answer was lost. Its dead letters must not be written again.
            waiting, self._waiting = self._waiting[: doubt[1]], self._waiting[doubt[1] :]
            self.sends.commit()
            self._confirm_letters()
            _answer(waiting)
        self.letters.mark_uncommitted()

    def _give_up(self) -> None:
        self._ended = True
        error = LostError(f"{self._lease} belongs to another consumer")
        for future in self._waiting:
            if not future.done():
                _refuse(future, error)
        self._waiting = []
        self.sends.outbox.drop()
        self.letters.give_up(error)


def _refuse(future: "asyncio.Future[None]", error: Exception) -> None:
    future.set_exception(error)
    future.exception()  # marks the exception as retrieved, because not every future is awaited


def _answer(futures: Iterable["asyncio.Future[None]"]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)

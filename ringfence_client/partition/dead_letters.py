"""Dead letters in ``<address>.dlq``, written in the transaction that finishes their messages."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ringfence_client.handlers.effects import HEADER_BYTES, Headers
from ringfence_client.sends.outbox import OutgoingRecord, batches_of
from ringfence_kafka.errors import named
from ringfence_kafka.producer.transactional import NewBuilder, Outgoing, TransactionalProducer
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.key_hash import key_hash
from ringfence_kafka.protocol.value_digest import placeholder_of

log: Final = logging.getLogger("ringfence.consumer")

REASON_BYTES_MAX: Final = 2_000
"""Limit of a reason, in bytes. A reason may contain a whole stack trace."""
OWN_BYTES_MAX: Final = 8_192
"""Upper bound of the added headers, with the reason twice, and of a batch's overhead, in bytes."""
AGAIN_FIRST_S: Final = 1.0
AGAIN_MAX_S: Final = 30.0
"""Longest interval of attempts to write letters that the topic refused, in seconds."""
RENEW_LIMIT_S: Final = 20.0
LETTERS_MAX: Final = 500
"""Limit of letters in one transaction, so that it ends within its time limit."""
LETTERS_BYTES_MAX: Final = 4 * 2**20
"""Limit of keys and values in one transaction, in bytes. A larger letter is sent alone."""


@dataclass(eq=False, slots=True)
class DeadLetter:
    """A message that failed finally."""

    record: Any
    reason: str
    attempts: int
    redriven: int = 0
    parks: bool = False
    """The message stays unfinished, and its group waits behind it."""
    written: "asyncio.Future[None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    size_confirmed: bool = False
    """The topic was looked up after the letter was added. If the letter does not fit now, a digest replaces its value."""

    @property
    def offset(self) -> int:
        """Offset of the failed message."""
        return int(self.record.offset)


class DeadLetterTopic(NamedTuple):
    """Present state of the dead-letter topic."""

    name: str
    partitions: int
    message_bytes_max: int
    """Size limit of one record batch of the topic, in bytes."""


class DeadLetters:
    """Dead letters of one consumer group at one address."""

    def __init__(
        self, topic: DeadLetterTopic, group: str, find: Callable[[], Awaitable[DeadLetterTopic]] | None = None
    ) -> None:
        """``find`` looks the topic up again, and creates it if it is missing."""
        self.topic = topic
        self._group = group
        self._find = find
        self._finding: asyncio.Task[None] | None = None

    async def renew(self) -> None:
        """Look the topic up again. It refused a letter, so it may have been deleted or created again."""
        # Concurrent calls of several partitions share one lookup.
        if self._finding is None or self._finding.done():
            self._finding = asyncio.create_task(self._renew())
        await asyncio.shield(self._finding)

    async def _renew(self) -> None:
        if self._find is not None:
            async with asyncio.timeout(RENEW_LIMIT_S):
                self.topic = await self._find()

    def surely_fits(self, letter: DeadLetter) -> bool:
        """Return whether the letter surely fits the topic as it was at the last lookup. False means that it may not fit."""
        record = letter.record
        size = len(record.key or b"") + len(record.value or b"") + OWN_BYTES_MAX
        size += sum(len(name.encode()) + len(value or b"") + HEADER_BYTES for name, value in record.headers)
        return size <= self.topic.message_bytes_max

    def outgoing(self, letters: Iterable[DeadLetter], producer: TransactionalProducer) -> list[Outgoing]:
        """Return the record batches of letters: as few as possible, because each costs a round trip. Each partition's letters stay in order."""
        return batches_of((self._record(letter, producer.builder) for letter in letters), producer.builder)

    def _record(self, letter: DeadLetter, new: NewBuilder) -> OutgoingRecord:
        """Return a letter's record, in the partition of the default partitioner.

        If the value does not fit, its size and digest replace it, as in quarantine. If the headers do not fit, headers and then the key are
        left out.
        """
        record = letter.record
        reason = letter.reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore").encode()
        own: Headers = [
            (wire_names.HEADER_REASON, reason),
            (wire_names.HEADER_CONSUMER_GROUP, self._group.encode()),
            (wire_names.HEADER_ATTEMPTS, b"%d" % letter.attempts),
            (wire_names.DEAD_LETTER_TOPIC, record.topic.encode()),
            (wire_names.DEAD_LETTER_PARTITION, b"%d" % record.partition),
            (wire_names.DEAD_LETTER_OFFSET, b"%d" % record.offset),
            (wire_names.DEAD_LETTER_GROUP, self._group.encode()),
            (wire_names.DEAD_LETTER_DELIVERIES, b"%d" % letter.attempts),
            (wire_names.DEAD_LETTER_MESSAGE, reason),
        ]
        if letter.redriven:
            own.append((wire_names.HEADER_REDRIVEN, b"%d" % letter.redriven))
        number = record.partition if record.key is None else key_hash(record.key)
        headers, bytes_max = [*record.headers, *own], self.topic.message_bytes_max
        digest = placeholder_of(record.value or b"")
        for key, value, carried in (
            (record.key, record.value, headers),
            (record.key, digest, headers),
            (record.key, digest, own),
            (None, digest, own),
        ):
            found = OutgoingRecord(
                self.topic.name, number % self.topic.partitions, key, value, carried, None, 0, bytes_max
            )
            alone = new()
            found.append_to(alone)
            if alone.size() <= bytes_max:
                break
        return found._replace(bytes=alone.size())


class PendingLetters:
    """Unwritten letters of one partition. If their topic refuses them, the partition's progress continues without them.

    Only the groups of these messages wait. No message counts as finished before its letter is written.
    """

    def __init__(self, place: str, dead_letters: DeadLetters, hurry: Callable[[], None]) -> None:
        """``place``: name of the partition in log lines; ``hurry`` is called when there are letters to write."""
        self._place = place
        self._dead_letters = dead_letters
        self._hurry = hurry
        self._pending: list[DeadLetter] = []
        self._under_way: Collection[DeadLetter] = ()
        """Letters that are sent, with unknown outcome."""
        self.fault = ""
        """Reason why letters are not being written; empty = they are written."""
        self._reviving: asyncio.Task[None] | None = None
        """While letters are left out: the task that looks up the topic."""
        self._pause = AGAIN_FIRST_S
        self._most = LETTERS_MAX

    def __len__(self) -> int:
        return len(self._pending)

    def add_letter(self, letter: DeadLetter) -> "asyncio.Future[None]":
        """Add a letter to write. The future completes when it is committed."""
        self._pending.append(letter)
        self._hurry()
        return letter.written

    def withdraw(self, offset: int) -> bool:
        """Remove the letter of a message. Returns False if it may be written already."""
        if any(pending.offset == offset for pending in self._under_way):
            return False
        self._pending = [pending for pending in self._pending if pending.offset != offset]
        return True

    def take_letters(self) -> Collection[DeadLetter]:
        """Return the letters to write now; the caller then calls :meth:`written` or :meth:`mark_uncommitted`."""
        resting = self._reviving is not None and not self._reviving.done()
        first = () if resting else tuple(self._first())
        if any(
            not pending.size_confirmed and not self._dead_letters.surely_fits(pending) for pending in first
        ):
            # An operator may have raised the topic's limit. The lease does not wait for the answer.
            self._reviving = asyncio.create_task(self._revive(0))
            first = ()
        self._under_way = first
        return self._under_way

    def _first(self) -> Iterable[DeadLetter]:
        taken = 0
        for pending in self._pending[: self._most]:
            record = pending.record
            taken += len(record.key or b"") + len(record.value or b"")
            if taken > LETTERS_BYTES_MAX and pending is not self._pending[0]:
                return
            yield pending

    def written(self) -> Collection[DeadLetter]:
        """Return the taken letters, which are committed. The event loop notifies the waiting futures afterwards."""
        letters, self._under_way = self._under_way, ()
        if letters:
            self.fault, self._pause = "", AGAIN_FIRST_S
            self._most = min(LETTERS_MAX, 2 * self._most)
        under_way = frozenset(letters)
        self._pending = [pending for pending in self._pending if pending not in under_way]
        if letters and self._pending:
            self._hurry()
        for letter in letters:
            if not letter.written.done():
                letter.written.set_result(None)
        return letters

    def mark_uncommitted(self) -> None:
        """Record that the taken letters are known not to be committed."""
        self._under_way = ()

    def rest(self, error: Exception) -> None:
        """Pause the letters after a failure, until the topic is looked up. Then fewer are taken at once."""
        self._most = max(1, self._most // 2)
        if self.fault:
            log.error(
                "%s: dead letters cannot be written to %s: the groups of %d messages wait, and all others "
                "continue; next attempt in %.0f s: %s", self._place, self._dead_letters.topic.name, len(self._pending), self._pause, named(error),
            )  # fmt: skip
        self.fault = named(error)
        self._reviving = asyncio.create_task(self._revive(self._pause))

    async def _revive(self, pause: float) -> None:
        """Look the topic up after a pause in seconds, and repeat until that succeeds."""
        while True:
            await asyncio.sleep(pause)
            pause = self._pause = min(AGAIN_MAX_S, 2 * self._pause) if pause else self._pause
            waiting = tuple(self._pending)
            try:
                await self._dead_letters.renew()
                break
            except Exception as error:
                self.fault = named(error)
                log.error(
                    "%s: the dead-letter topic is not usable: the groups of %d messages wait, and all "
                    "others continue; next attempt in %.0f s: %s", self._place, len(self._pending), self._pause, self.fault,
                )  # fmt: skip
        for pending in waiting:
            pending.size_confirmed = True
        asyncio.get_running_loop().call_soon(self._hurry)  # after this task has ended

    def give_up(self, error: Exception) -> None:
        """Fail all waiting futures, and stop."""
        if self._reviving is not None:
            self._reviving.cancel()
        pending, self._pending = self._pending, []
        for item in pending:
            if not item.written.done():
                item.written.set_exception(error)
                # Marks the exception as retrieved, because not every future is awaited.
                item.written.exception()

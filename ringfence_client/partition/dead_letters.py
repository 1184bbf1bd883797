"""Dead letters in ``<address>.dlq``, written in the transaction that finishes their message."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ringfence_kafka.errors import named
from ringfence_kafka.producer.transactional import Builder, Outgoing, TransactionalProducer
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.key_hash import key_hash
from ringfence_kafka.protocol.value_digest import stand_in_of

log: Final = logging.getLogger("ringfence.consumer")

REASON_BYTES_MAX: Final = 2_000
"""A reason may hold a whole stack; its beginning says enough."""
OWN_BYTES_MAX: Final = 8_192
"""More than the headers take that are added, with the reason twice, and a record batch of one record."""
HEADER_BYTES: Final = 10
"""More than a header takes beside name and value."""
AGAIN_FIRST_S: Final = 1.0
AGAIN_MAX_S: Final = 30.0
"""Between two attempts to write what the dead-letter topic did not take."""
RENEW_LIMIT_S: Final = 20.0
LETTERS_MAX: Final = 500
"""In one transaction. However many wait, what is written at once must be there before its time is up."""
LETTERS_BYTES_MAX: Final = 4 * 2**20
"""The same, of keys and values; one that is larger goes alone."""


class DeadLetter(NamedTuple):
    """A message that was given up."""

    record: Any
    """As aiokafka read it from the accepted topic."""
    reason: str
    attempts: int
    redriven: int = 0
    """How often the message was, before it failed again."""
    parks: bool = False
    """Its message stays unfinished, and its group behind it."""


class DeadLetterTopic(NamedTuple):
    """As it is now."""

    name: str
    partitions: int
    message_bytes_max: int
    """Its largest record batch."""


Headers = list[tuple[str, bytes | None]]


class _Alone(NamedTuple):
    """A letter as it is written, and a record batch of it."""

    key: bytes | None
    value: bytes | None
    builder: Builder


class DeadLetters:
    """Dead letters of one consumer group at one address."""

    def __init__(
        self, topic: DeadLetterTopic, group: str, find: Callable[[], Awaitable[DeadLetterTopic]] | None = None
    ) -> None:
        """``find`` looks the topic up again, and makes it where it is gone."""
        self.topic = topic
        self._group = group
        self._find = find
        self._finding: asyncio.Task[None] | None = None

    async def renew(self) -> None:
        """Look the topic up again: it refused a letter, so it may have been deleted, or created again.

        Raises:
            TopicError: it is not there and cannot be made; or it is not as it must be.
            KafkaError: the cluster does not say.
            TimeoutError: it does not answer.
        """
        if self._finding is None or self._finding.done():  # partitions ask together
            self._finding = asyncio.create_task(self._renew())
        await asyncio.shield(self._finding)

    async def _renew(self) -> None:
        if self._find is not None:
            async with asyncio.timeout(RENEW_LIMIT_S):
                self.topic = await self._find()

    def surely_fits(self, letter: DeadLetter) -> bool:
        """Whether the letter fits into the topic as it was when it was last looked up; False: perhaps not."""
        record = letter.record
        size = len(record.key or b"") + len(record.value or b"") + OWN_BYTES_MAX
        size += sum(len(name.encode()) + len(value or b"") + HEADER_BYTES for name, value in record.headers)
        return size <= self.topic.message_bytes_max

    def outgoing(self, letters: Iterable[DeadLetter], producer: TransactionalProducer) -> list[Outgoing]:
        """Their record batches, as few as can be: each is a round trip. A partition's in order."""
        filled: dict[int, Builder] = {}
        full: list[Outgoing] = []
        for letter in letters:
            partition, headers, alone = self._alone(letter, producer)
            builder = filled.get(partition)
            if builder is not None:
                room = self.topic.message_bytes_max - builder.size()
                if alone.builder.size() <= room and _append(builder, *alone[:2], headers):
                    continue
                full.append(Outgoing(self.topic.name, partition, builder))
            filled[partition] = alone.builder
        return full + [Outgoing(self.topic.name, partition, item) for partition, item in filled.items()]

    def _alone(self, letter: DeadLetter, producer: TransactionalProducer) -> tuple[int, Headers, _Alone]:
        """Return a letter's partition by the default partitioner, and a batch of it alone.

        A value that does not fit is replaced by its size and digest, as in quarantine. Headers that do not fit are left out with the key.
        """
        record = letter.record
        reason = letter.reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore").encode()
        own: list[tuple[str, bytes | None]] = [
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
        partition = record.partition if record.key is None else key_hash(record.key)
        headers = [*record.headers, *own]
        digest = stand_in_of(record.value or b"")
        for key, value, carried in (
            (record.key, record.value, headers),
            (record.key, digest, headers),
            (record.key, digest, own),
            (None, digest, own),
        ):
            builder = producer.builder()
            _append(builder, key, value, carried)
            if builder.size() <= self.topic.message_bytes_max:
                break
        return partition % self.topic.partitions, carried, _Alone(key, value, builder)


@dataclass(eq=False, slots=True)
class Pending:
    """A dead letter that is not written yet."""

    letter: DeadLetter
    written: "asyncio.Future[None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    size_confirmed: bool = False
    """The topic was looked up since the letter came: what does not fit now is replaced by its digest."""

    @property
    def offset(self) -> int:
        """Offset of the failed message."""
        return int(self.letter.record.offset)


class PendingLetters:
    """Letters of one partition that wait to be written. If their topic refuses them, the partition's progress continues without them.

    Only the groups of these messages wait: none of them counts as finished before its letter is there.
    """

    def __init__(self, place: str, dead_letters: DeadLetters, hurry: Callable[[], None]) -> None:
        """``place``: the partition, for log lines; ``hurry`` is told when there is something to write."""
        self._place = place
        self._dead_letters = dead_letters
        self._hurry = hurry
        self._pending: list[Pending] = []
        self._under_way: Collection[Pending] = ()
        """Sent, and not known to be committed or not."""
        self.fault = ""
        """Why they are not written; empty = they are."""
        self._reviving: asyncio.Task[None] | None = None
        """While they are left out: looks after the topic."""
        self._pause = AGAIN_FIRST_S
        self._most = LETTERS_MAX

    def __len__(self) -> int:
        return len(self._pending)

    def add_letter(self, letter: DeadLetter) -> "asyncio.Future[None]":
        """Have a letter written; the future is done when it is committed."""
        self._pending.append(Pending(letter))
        self._hurry()
        return self._pending[-1].written

    def withdraw(self, offset: int) -> bool:
        """Write none of this message. False: it may be written already."""
        if any(pending.offset == offset for pending in self._under_way):
            return False
        self._pending = [pending for pending in self._pending if pending.offset != offset]
        return True

    def take_letters(self) -> Collection[Pending]:
        """Return what is to be written now; :meth:`written` or :meth:`settle` follows."""
        resting = self._reviving is not None and not self._reviving.done()
        first = () if resting else tuple(self._first())
        if any(
            not pending.size_confirmed and not self._dead_letters.surely_fits(pending.letter)
            for pending in first
        ):
            # Somebody may have raised the topic's limit. The lease does not wait for the answer.
            self._reviving = asyncio.create_task(self._revive(0))
            first = ()
        self._under_way = first
        return self._under_way

    def _first(self) -> Iterable[Pending]:
        taken = 0
        for pending in self._pending[: self._most]:
            record = pending.letter.record
            taken += len(record.key or b"") + len(record.value or b"")
            if taken > LETTERS_BYTES_MAX and pending is not self._pending[0]:
                return
            yield pending

    def written(self) -> list[DeadLetter]:
        """Return what was taken and is committed. The event loop notifies the waiting futures afterwards."""
        letters, self._under_way = self._under_way, ()
        if letters:
            self.fault, self._pause = "", AGAIN_FIRST_S
            self._most = min(LETTERS_MAX, 2 * self._most)
        under_way = {id(letter) for letter in letters}
        self._pending = [pending for pending in self._pending if id(pending) not in under_way]
        if letters and self._pending:
            self._hurry()
        for letter in letters:
            if not letter.written.done():
                letter.written.set_result(None)
        return [letter.letter for letter in letters]

    def settle(self) -> None:
        """Note that what was taken is known not to be committed."""
        self._under_way = ()

    def rest(self, error: Exception) -> None:
        """Write without what was taken, which failed, until the topic has been looked at. Then fewer are taken."""
        self._most = max(1, self._most // 2)
        if self.fault:
            log.error(
                "%s: dead letters cannot be written to %s: the groups of %d messages wait, and all others "
                "continue; next attempt in %.0f s: %s", self._place, self._dead_letters.topic.name, len(self._pending), self._pause, named(error),
            )  # fmt: skip
        self.fault = named(error)
        self._reviving = asyncio.create_task(self._revive(self._pause))

    async def _revive(self, pause: float) -> None:
        """Look the topic up after so many seconds, and again until that succeeds."""
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
        asyncio.get_running_loop().call_soon(self._hurry)  # when this has ended

    def give_up(self, error: Exception) -> None:
        """Write none any more."""
        if self._reviving is not None:
            self._reviving.cancel()
        pending, self._pending = self._pending, []
        for item in pending:
            if not item.written.done():
                item.written.set_exception(error)
                item.written.exception()  # whoever waits sees it; nobody needs to


def _append(builder: Builder, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
    """Whether it had room."""
    return builder.append(timestamp=None, key=key, value=value, headers=headers) is not None

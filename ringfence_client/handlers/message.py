"""Messages for handlers, and the ways in which a handler decides about them."""

import math
import re
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from ringfence_client.handlers.effects import DONE, Data, Effects, Origin, new_send
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.errors import named
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.duplicate_id import DuplicateIds

_OWN_HEADERS: Final = frozenset(
    {
        wire_names.HEADER_SOURCE, wire_names.HEADER_KEY, wire_names.HEADER_PART, wire_names.HEADER_SEQUENCE,
        wire_names.HEADER_VERDICT,
    }
)  # fmt: skip
NUMBER_DIGITS_MAX: Final = 20
"""A sequence number has fewer digits. Only workers write one, but others might write the header."""
_PART_NUMBER: Final = re.compile(rb"([1-9][0-9]{0,8})/([1-9][0-9]{0,8})")


class Disposition(Exception):  # noqa: N818 - a decision, no error
    """Exceptions by which a handler decides otherwise than by returning."""

    def __init__(self, reason: str | BaseException | None = "") -> None:
        """``reason``: a text; an exception stands for its name and text."""
        super().__init__(reason)
        self.reason = _text(reason)


class Reject(Disposition):
    """Take the message out: it goes to ``<address>.dlq`` and its group goes on (Qpid: reject)."""


def _text(reason: object) -> str:
    """Handlers give what they have: often the exception that they caught."""
    if isinstance(reason, BaseException):
        return named(reason)
    return "" if reason is None else str(reason)


class Release(Disposition):
    """Put it back to its place, and the later held ones of its group with it (Qpid: release).

    It does not count as a failed attempt. The next consumer of the group gets it, after a moment.
    """


class Retry(Disposition):
    """Try it again later. Only its own group waits."""

    def __init__(self, reason: str | BaseException | None = "", delay: float | None = None) -> None:
        """``delay``: seconds; None = a back-off that grows with the attempts; below 0 = at once.

        Raises:
            ValueError: nobody can wait for so long. Raised by a handler, that is a failed attempt like any other.
        """
        super().__init__(reason)
        if delay is not None and not (isinstance(delay, int | float) and math.isfinite(delay)):
            raise ValueError(f"Retry(delay={delay!r}): give a number of seconds, or None for a back-off")
        self.delay = None if delay is None else max(0.0, delay)


class Fence:
    """The right to process a partition's messages, as their handlers see it."""

    __slots__ = ("log", "lost", "token")

    def __init__(self, token: int, log: tuple[str, int, str] = ("", 0, "")) -> None:
        self.token = token
        self.log = log
        """Topic, partition, and Kafka's own ID of the topic: what an offset is an offset of."""
        self.lost = False
        """Somebody else may have it; what is acknowledged under it counts no more."""

    def lose(self) -> None:
        """Let handlers know that somebody else may have it."""
        self.lost = True


@dataclass(frozen=True, slots=True)
class PartNumber:
    """Which part of its transaction a message is."""

    index: int
    """Counted from 1, in the order that its producer wrote."""
    count: int
    """Number of all parts, in all groups and addresses."""

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


@dataclass(slots=True, eq=False)
class Message:
    """One accepted message.

    Attributes:
        address: The address that it was published to.
        group: Its group; None = it has none, and is in order with nothing.
        key: The key that its producer gave it.
        value: Its value.
        headers: The producer's headers, in order.
        duplicate_id: Its duplicate ID; None = it has none. A part has its own, not that of its transaction. An ID of several parts has
            the length of each before it, in four bytes.
        timestamp: Its producer's, in ms.
        source: ``<topic>/<partition>/<offset>`` of the input; rising within a group as long as its producers use one
            partitioner. Unique with :attr:`part`: all parts of a transaction have the same, which is the transaction's name.
        topic, partition, offset: Where it is in the accepted topic.
        attempt: 1 for the first time; counted on over crashes and by each failure.
        held: Under which right; see :attr:`fence` and :attr:`fenced`.
        part: Which part of its transaction it is; None = it was sent alone.
        redriven: How often an operator had it done again after it was a dead letter; 0 = it comes in its group's order. One that is
            redriven comes when later ones of its group may be done.
        sequence: Its ID's number among the IDs that its lane has accepted; None = it has no ID, or its address does not set ``lanes``.
            With ``lanes = 1`` it orders the messages of all groups as they were accepted.
        first_here: Whether this process handles the group for the first time since it got the partition. True of a message without a
            group. A cache of the group can be filled then; ``lost(groups)`` says when to drop it.
        verdict: ``ACCEPTED``, ``UNCHECKED``, or ``DUPLICATE`` with the source of its original, where the address only observes;
            None = it enforces.
    """

    address: str
    group: bytes | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    duplicate_id: bytes | None
    timestamp: int
    source: str
    topic: str
    partition: int
    offset: int
    attempt: int
    held: Fence
    part: PartNumber | None = None
    redriven: int = 0
    sequence: int | None = None
    first_here: bool = True
    effects: Effects = field(default_factory=Effects, repr=False)
    sent: int = field(default=0, repr=False)
    """Records that the handler has sent so far."""
    verdict: str | None = None

    def send(
        self,
        topic: str,
        value: Data,
        *,
        key: Data = None,
        headers: Mapping[str, Data] | Iterable[tuple[str, Data]] | None = None,
        duplicate_id: Data = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Awaitable[None]:
        """Send a record when this message is acknowledged, in the same transaction. A failed attempt sends nothing.

        Coroutines await it, and plain functions call it.

        Args:
            topic: Where to. The cluster is the one that the message comes from.
            value: Bytes, text (UTF-8), or None.
            key: Chooses the partition as Kafka's clients do. Without a key the group of this message does, so its sends stay in order.
            headers: A dict, or pairs of name and value.
            duplicate_id: The ID that the address detects duplicates by. None = one that follows from this message, if ``topic`` is the
                input topic of an address.
            partition: Number of the partition; None = by the key.
            timestamp: Milliseconds since the epoch; None = the time of writing.

        Raises:
            RuntimeError: the attempt is over.
            TypeError: an argument is of another type.
            ValueError: an argument cannot be sent, or the message sends too much.
        """
        part = "" if self.part is None else f"#{self.part.index}"
        origin = Origin(self.source + part, self.group, self.offset, self.timestamp, self.value)
        send = new_send(origin, self.sent + 1, topic, value, key, headers, duplicate_id, partition, timestamp)
        self.effects.add(send)
        self.sent += 1
        return DONE

    @property
    def state(self) -> bytes | None:
        """The state that the last acknowledged message of this group left, as bytes; None = nothing.

        Set it to change it, with None to delete it. The change is written when this message is acknowledged, in the same transaction.
        """
        return self.effects.state

    @state.setter
    def state(self, state: Data) -> None:
        if self.group is None:
            raise ValueError(
                "this message has no group, so there is no state to set: give messages a key, or the address a group_header"
            )
        self.effects.set_state(state)

    @property
    def fence(self) -> int:
        """The fencing token: it grows with each holder of the partition, so a store can refuse the effects of a former one."""
        return self.held.token

    @property
    def fenced(self) -> bool:
        """Whether the partition was lost while this runs: whatever is done from now on is done by somebody else too.

        A coroutine is cancelled then; a thread cannot be, and should look here before it takes effect.
        """
        return self.held.lost

    def reject(self, reason: str | BaseException | None = "") -> NoReturn:
        """Reject the message, as ``raise Reject(reason)`` does."""
        raise Reject(reason)

    def release(self) -> NoReturn:
        """Release the message, as ``raise Release()`` does."""
        raise Release

    def retry(self, reason: str | BaseException | None = "", delay: float | None = None) -> NoReturn:
        """As ``raise Retry(reason, delay)``."""
        raise Retry(reason, delay)


class MessageFactory:
    """Makes messages of one address from the records of its accepted topic."""

    def __init__(self, address: AddressSettings) -> None:
        self._address = address.name
        self._ids = DuplicateIds(address.duplicate_id_from, address.duplicate_id_headers)

    def make(
        self,
        record: Any,
        attempt: int,
        fence: Fence,
        redriven: int = 0,
        *,
        first_here: bool = True,
        effects: Effects | None = None,
    ) -> Message:
        """Return the message of a record as aiokafka has it."""
        own: dict[str, bytes | None] = {}
        headers: list[tuple[str, bytes | None]] = []
        for header in record.headers:
            name, content = header
            if name in _OWN_HEADERS:
                own[name] = content
            else:
                headers.append(header)
        key = own.get(wire_names.HEADER_KEY, record.key)
        source = own.get(wire_names.HEADER_SOURCE)
        return Message(
            self._address,
            record.key,
            key,
            record.value,
            headers,
            self._ids.read(headers, key, record.value),
            record.timestamp,
            # Nobody but the workers writes it, but the partition of whoever else does must not stand still.
            source.decode(errors="backslashreplace") if source is not None else f"{record.topic}/{record.partition}/{record.offset}",
            record.topic,
            record.partition,
            record.offset,
            attempt,
            fence,
            _part_number(own.get(wire_names.HEADER_PART)) if own else None,
            redriven,
            _number(own.get(wire_names.HEADER_SEQUENCE)),
            first_here,
            effects if effects is not None else Effects(),
            verdict=None if (verdict := own.get(wire_names.HEADER_VERDICT)) is None else verdict.decode(errors="backslashreplace"),
        )  # fmt: skip


def _number(header: bytes | None) -> int | None:
    return (
        int(header) if header is not None and header.isdigit() and len(header) < NUMBER_DIGITS_MAX else None
    )


def _part_number(header: bytes | None) -> PartNumber | None:
    """Return the number in the header; None if there is none, or it is not a part number."""
    found = None if header is None else _PART_NUMBER.fullmatch(header)
    if found is None:
        return None
    part = PartNumber(int(found[1]), int(found[2]))
    return part if part.index <= part.count else None

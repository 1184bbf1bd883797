"""Messages for handlers, and a handler's decisions about them."""

import math
import re
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from ringfence_client.handlers.effects import (
    DONE,
    HEADER_BYTES,
    Data,
    Effects,
    Origin,
    Send,
    check_send,
    encoded,
    encoded_headers,
)
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
"""Limit of a sequence number's digits. Only workers write the header, but another program may write nonsense."""
_PART_NUMBER: Final = re.compile(rb"([1-9][0-9]{0,8})/([1-9][0-9]{0,8})")


class Disposition(Exception):  # noqa: N818 - a decision, no error
    """Decision of a handler other than acknowledgement, as an exception."""

    def __init__(self, reason: str | BaseException | None = "") -> None:
        """Create the decision. ``reason``: a text, or an exception, which stands for its name and text."""
        super().__init__(reason)
        given = "" if reason is None else reason
        self.reason = named(given) if isinstance(given, BaseException) else str(given)


class Reject(Disposition):
    """Remove the message: it goes to ``<address>.dlq`` and its group continues (Qpid: reject)."""


class Release(Disposition):
    """Put the message back to its place, with the later held ones of its group (Qpid: release).

    It does not count as a failed attempt. After a moment, the next consumer of the group gets the message.
    """


class Retry(Disposition):
    """Try the message again later. Only its own group waits."""

    def __init__(self, reason: str | BaseException | None = "", delay: float | None = None) -> None:
        """Create the decision. ``delay``: seconds; None = a back-off that grows with the attempts; below 0 = at once.

        Raises:
            ValueError: The delay is not a finite number. In a handler, this is a failed attempt.
        """
        super().__init__(reason)
        if delay is not None and not (isinstance(delay, int | float) and math.isfinite(delay)):
            raise ValueError(f"Retry(delay={delay!r}): give a number of seconds, or None for a back-off")
        self.delay = None if delay is None else max(0.0, delay)


@dataclass(eq=False, slots=True)
class Fence:
    """Permission to process a partition's messages, as their handlers see it."""

    token: int
    log: tuple[str, int, str] = ("", 0, "")
    """Topic, partition, and Kafka's ID of the topic, to which an offset belongs."""
    lost: bool = False
    """Another consumer may hold the partition, and acknowledgements under this fence do not count any more."""

    def lose(self) -> None:
        """Mark the partition as lost for its handlers."""
        self.lost = True


@dataclass(frozen=True, slots=True)
class PartNumber:
    """Number of a message within its transaction."""

    index: int
    """Number from 1, in the order of the producer."""
    count: int
    """Number of all parts, in all groups and addresses."""

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


@dataclass(slots=True, eq=False)
class Message:
    """One accepted message.

    Attributes:
        address: The address that it was published to.
        group: Its group; None = no group, and no order.
        key: The key that its producer gave it.
        value: Its value.
        headers: The producer's headers, in order.
        duplicate_id: Its duplicate ID; None = no ID. A part has its own ID, not that of its transaction. In an ID of several headers, four
            bytes with its length precede each value.
        timestamp: The producer's timestamp, in milliseconds since the epoch.
        source: ``<topic>/<partition>/<offset>`` of the input. It grows within a group as long as the producers use one partitioner. It is
            unique with :attr:`part`: all parts of a transaction have the same source, which is the transaction's name.
        topic, partition, offset: Its place in the accepted topic.
        attempt: Number of the attempt from 1. Failures and crashes increase it.
        held: The fence of the partition; see :attr:`fence` and :attr:`fenced`.
        part: Number of the part in its transaction; None = sent alone.
        redriven: Number of redrives of its dead letters; 0 = it comes in its group's order. Later messages of the group may precede a
            redriven one.
        sequence: Number of its ID among the IDs that its lane has accepted; None = no ID, or the address does not set ``lanes``. With
            ``lanes = 1`` it gives the order in which the messages of all groups were accepted.
        first_here: Whether this process handles the group for the first time since it got the partition; always true without a group. A
            handler can fill a cache of the group then, and ``lost(groups)`` reports when to drop it.
        verdict: ``ACCEPTED``, ``UNCHECKED``, or ``DUPLICATE`` with the source of its original, if the address only observes; None = it
            enforces.
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
    """Number of records that the handler has sent so far."""
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

        Coroutines await the call; plain functions just call it.

        Args:
            topic: Target topic, on the cluster of this message.
            value: Bytes, text (UTF-8), or None.
            key: Chooses the partition as Kafka's clients do. Without a key, the group of this message chooses it, so its sends stay in
                order.
            headers: A dict, or pairs of name and value.
            duplicate_id: The ID by which the address detects duplicates. None = derived from this message if ``topic`` is the input topic
                of an address.
            partition: Number of the partition; None = chosen by the key.
            timestamp: Milliseconds since the epoch; None = the time of writing.

        Raises:
            RuntimeError: The attempt is over.
            TypeError: An argument has a wrong type.
            ValueError: An argument cannot be sent, or the message sends too much.
        """
        part = "" if self.part is None else f"#{self.part.index}"
        origin = Origin(self.source + part, self.group, self.offset, self.timestamp, self.value)
        own_id, written = encoded(duplicate_id, "duplicate_id"), encoded_headers(headers)
        check_send(topic, partition, timestamp, own_id)
        number, own_key, own_value = self.sent + 1, encoded(key, "key"), encoded(value, "value")
        size = len(own_key or b"") + len(own_value or b"")
        for name, data in written:
            size += HEADER_BYTES + len(name) + len(data or b"")
        self.effects.add_send(
            Send(topic, partition, own_key, own_value, written, own_id, timestamp, number, origin, size)
        )
        self.sent += 1
        return DONE

    @property
    def state(self) -> bytes | None:
        """The state that the group's last acknowledged message left, as bytes; None = no state.

        A handler sets it to change it, or to None to delete it. The change is written in the transaction of the acknowledgement.
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
        """The fencing token. It grows with each holder of the partition, so a store can refuse effects of a former holder."""
        return self.held.token

    @property
    def fenced(self) -> bool:
        """Whether the partition was lost during the run. Another consumer repeats everything from now on.

        A coroutine is cancelled then. A thread is not, and should check this before it takes effect.
        """
        return self.held.lost

    def reject(self, reason: str | BaseException | None = "") -> NoReturn:
        """Reject the message, as ``raise Reject(reason)`` does."""
        raise Reject(reason)

    def release(self) -> NoReturn:
        """Release the message, as ``raise Release()`` does."""
        raise Release

    def retry(self, reason: str | BaseException | None = "", delay: float | None = None) -> NoReturn:
        """Retry the message, as ``raise Retry(reason, delay)`` does."""
        raise Retry(reason, delay)


class MessageFactory:
    """Creates messages of one address from the records of its accepted topic."""

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
        """Return the message of an aiokafka record."""
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
            self._ids.id_of(headers, key, record.value),
            record.timestamp,
            # Only workers write the header. Another program's nonsense must not stop the partition.
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
    found = None if header is None else _PART_NUMBER.fullmatch(header)
    if found is None:
        return None
    part = PartNumber(int(found[1]), int(found[2]))
    return part if part.index <= part.count else None

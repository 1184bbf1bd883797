"""Results for tests: committed sends and dead letters, and the runs of the handler."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ringfence_client.handlers.message import Message
from ringfence_client.sends.destinations import ID_HEADER
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol import wire_names


@dataclass(frozen=True, slots=True)
class SentRecord:
    """A record that readers of committed data see.

    Attributes:
        topic: Its topic.
        value: Its value.
        key: Its key.
        headers: Its written headers, including a duplicate ID.
        duplicate_id: The ID in its headers; None = no ID. Not compared.
        partition: Number of its partition. Not compared.
        timestamp: Milliseconds since the epoch. Not compared.
    """

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    duplicate_id: bytes | None = field(default=None, compare=False)
    partition: int = field(default=0, compare=False)
    timestamp: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        """Make given lists of headers comparable with written ones."""
        object.__setattr__(self, "headers", tuple((name, value) for name, value in self.headers))

    @classmethod
    def from_record(cls, record: Any, address: AddressSettings | None) -> "SentRecord":
        """Return a record of the topic of this address, or of no address."""
        names = (ID_HEADER,) if address is None else address.id_headers or address.duplicate_id_headers
        last = dict(record.headers)
        found = next((value for name in names if (value := last.get(name))), None)
        return cls(
            record.topic,
            record.value,
            record.key,
            record.headers,
            found,
            record.partition,
            record.timestamp,
        )


@dataclass(frozen=True, slots=True)
class DeadLetterRecord:
    """A dead letter.

    Attributes:
        group: Group of its message.
        value: Value of its message.
        reason: Reason of the failure.
        attempts: Number of attempts.
        offset: Offset of its message in the accepted topic.
        redriven: Number of earlier redrives of its message.
        headers: Its written headers. Not compared.
    """

    group: bytes | None
    value: bytes | None
    reason: str
    attempts: int
    offset: int
    redriven: int
    headers: Sequence[tuple[str, bytes | None]] = field(compare=False)

    @classmethod
    def from_record(cls, record: Any) -> "DeadLetterRecord":
        """Return a record of the dead-letter topic."""
        headers = {name: value or b"" for name, value in record.headers}
        return cls(
            record.key,
            record.value,
            headers[wire_names.HEADER_REASON].decode(),
            int(headers[wire_names.HEADER_ATTEMPTS]),
            int(headers[wire_names.DEAD_LETTER_OFFSET]),
            int(headers.get(wire_names.HEADER_REDRIVEN, 0)),
            tuple(record.headers),
        )


@dataclass(slots=True, eq=False)
class HandlerRun:
    """One call of the handler.

    Attributes:
        messages: Its argument: one message, or a batch.
        error: Exception of the call; None = it returned, or still runs.
    """

    messages: list[Message]
    error: BaseException | None = None

    @property
    def message(self) -> Message:
        """The first message."""
        return self.messages[0]

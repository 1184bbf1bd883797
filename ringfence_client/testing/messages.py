"""Messages for tests, where a value is enough; and results: committed sends and dead letters, and the runs of the handler."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka.structs import ConsumerRecord

from ringfence_client.handlers.effects import Data, Effects, encoded, encoded_headers
from ringfence_client.handlers.envelope import DUPLICATE_ID_HEADER
from ringfence_client.handlers.message import Fence, Message, PartNumber
from ringfence_client.sends.destinations import ID_HEADER
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol import wire_names

ADDRESS: Final = "test"
TIMESTAMP: Final = 1_700_000_000_000
"""Milliseconds since the epoch, the same in each run of a test."""
UNPLACED: Final = "test/0/0"
"""Default source of a message. A bench replaces it by one that contains the offset."""


def message(
    value: Data = b"",
    *,
    group: Data = None,
    key: Data = None,
    headers: Mapping[str, Data] | Iterable[tuple[str, Data]] | None = None,
    duplicate_id: Data = None,
    timestamp: int = TIMESTAMP,
    address: str = ADDRESS,
    source: str = UNPLACED,
    offset: int = 0,
    partition: int = 0,
    attempt: int = 1,
    fence: int = 1,
    part: PartNumber | None = None,
    redriven: int = 0,
    sequence: int | None = None,
    first_here: bool = True,
    state: Data = None,
    verdict: str | None = None,
) -> Message:
    """Return a message for a handler. Text stands for its UTF-8 bytes.

    A handler can be called with it directly. Then its sends are in ``message.effects.sends``, and its state is in ``message.state``. A
    bench uses its value, group, key, headers, IDs, timestamp, part and attempt, and computes the other fields as a consumer does.

    The arguments are the attributes of :class:`ringfence_client.Message`. ``group``: None = its key. ``key``: None = its group; without both,
    it has no group. ``headers``: a dict, or pairs of name and value. ``duplicate_id`` is also written to the header ``_AMQ_DUPL_ID``. With
    ``attempt`` = 3, two have failed. ``state``: the state of its group.
    """
    key = encoded(key, "key")
    grouped = encoded(group, "group")
    listed, own_id = encoded_headers(headers), encoded(duplicate_id, "duplicate_id")
    if own_id and DUPLICATE_ID_HEADER not in dict(listed):
        listed.append((DUPLICATE_ID_HEADER, own_id))
    topic = wire_names.accepted_topic(address)
    return Message(
        address,
        grouped if grouped is not None else key,
        key if key is not None else grouped,
        encoded(value, "value"),
        listed,
        own_id or dict(listed).get(DUPLICATE_ID_HEADER),
        timestamp,
        source,
        topic,
        partition,
        offset,
        attempt,
        Fence(fence, (topic, partition, "")),
        part,
        redriven,
        sequence,
        first_here,
        Effects(encoded(state, "state")),
        verdict=verdict,
    )


def accepted_record(given: Message, address: AddressSettings, offset: int) -> Any:
    """Return the record of a message as a worker writes it to the accepted topic."""
    source = given.source if given.source != UNPLACED else f"{address.input_topic}/0/{offset}"
    headers = list(given.headers)
    names = address.id_headers
    if given.duplicate_id and names and not any(name in names for name, _ in headers):
        headers.append((names[0], given.duplicate_id))
    headers.append((wire_names.HEADER_SOURCE, source.encode()))
    if given.key != given.group:
        headers.append((wire_names.HEADER_KEY, given.key))
    if given.part is not None:
        headers.append((wire_names.HEADER_PART, str(given.part).encode()))
    if given.sequence is not None:
        headers.append((wire_names.HEADER_SEQUENCE, b"%d" % given.sequence))
    if given.verdict is not None:
        headers.append((wire_names.HEADER_VERDICT, given.verdict.encode()))
    return record_of(
        address.accepted_topic, 0, offset, given.timestamp, given.group, given.value, tuple(headers)
    )


def record_of(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
) -> Any:
    """Return a record as aiokafka reads it."""
    return ConsumerRecord(
        topic, partition, offset, timestamp, 0, key, value, None,
        len(key or b""), len(value or b""), headers,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SentRecord:
    """A record that readers of committed data see.

    ``headers`` include a duplicate ID, which ``duplicate_id`` repeats. The ID, the partition, and the timestamp in milliseconds since the
    epoch are not compared.
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
            record.topic, record.value, record.key, record.headers, found, record.partition, record.timestamp
        )


@dataclass(frozen=True, slots=True)
class DeadLetterRecord:
    """A dead letter. ``offset`` is that of its message in the accepted topic. Headers are not compared."""

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
    """One call of the handler, with a message or a batch. ``error``: None = it returned, or still runs."""

    messages: list[Message]
    error: BaseException | None = None

    @property
    def message(self) -> Message:
        """The first message."""
        return self.messages[0]

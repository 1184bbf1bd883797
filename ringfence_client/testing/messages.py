"""Messages for tests: a value is enough."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from aiokafka.structs import ConsumerRecord

from ringfence_client.handlers.effects import Data, Effects, encoded, encoded_headers
from ringfence_client.handlers.envelope import DUPLICATE_ID_HEADER
from ringfence_client.handlers.message import Fence, Message, PartNumber
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

    Args:
        value: Its value.
        group: Its group; None = its key.
        key: Its key; None = its group. Without both, it has no group.
        headers: A dict, or pairs of name and value.
        duplicate_id: Its duplicate ID, also written to the header ``_AMQ_DUPL_ID``.
        timestamp: Milliseconds since the epoch.
        address: The address that it was published to.
        source: ``<topic>/<partition>/<offset>`` of its input.
        offset: Its offset in the accepted topic.
        partition: Its partition in the accepted topic.
        attempt: Number of its attempt. With 3, two have failed.
        fence: The fencing token.
        part: Number of the part in its transaction.
        redriven: Number of redrives.
        sequence: The number of its ID.
        first_here: Whether it is the first message of its group in this process.
        state: The state of its group.
        verdict: Verdict of an address that only observes.
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

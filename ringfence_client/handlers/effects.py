"""Effects of a handler's run: records to send, and a new state of its group. Both wait for the acknowledgement."""

import re
from collections.abc import Generator, Iterable, Mapping
from typing import Any, Final, NamedTuple
from zlib import crc32

from ringfence_kafka.config.section import TOPIC_NAME_PATTERN
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.protocol import wire_names

STATE_BYTES_MAX: Final = 64 * 2**10
SENDS_MAX: Final = 10_000
SENDS_BYTES_MAX: Final = 16 * 2**20
"""Limit of their keys, values and headers, in bytes."""
HEADER_BYTES: Final = 10
"""Upper bound of a header's overhead beside its name and value, in bytes."""
PARTITION_MAX: Final = 2**31 - 1
TIMESTAMP_MAX: Final = 2**63 - 1
_TOPIC: Final = re.compile(TOPIC_NAME_PATTERN)

Headers = list[tuple[str, bytes | None]]
Data = bytes | bytearray | memoryview | str | None


class Origin(NamedTuple):
    """The part of a message that its sends need. A reference to the message would be a cycle."""

    source: str
    """``<topic>/<partition>/<offset>`` of the message, with ``#part`` if it is a part."""
    group: bytes | None
    offset: int
    timestamp: int
    value: bytes | None

    @property
    def digest(self) -> int:
        """Digest of the message. It differs for a message with the same source in a topic that was created again."""
        return crc32(self.value or b"", self.timestamp & 0xFFFFFFFF)


class Send(NamedTuple):
    """A record that a handler sends."""

    topic: str
    partition: int | None
    """None = chosen by the key, or without a key by the message's group."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    duplicate_id: bytes | None
    """None = derived from the message if an address is the target, otherwise no ID."""
    timestamp: int | None
    """Milliseconds since the epoch; None = the time of writing."""
    number: int
    """Number among the sends of its message, from 1."""
    origin: Origin
    bytes: int
    """Approximate size of key, value and headers."""


class StateError(RingfenceError):
    """The state of the group cannot be read, so handlers must not rely on it."""


class Effects:
    """Effects of one attempt. The messages of a batch share them."""

    __slots__ = ("_state", "bytes", "changed", "ended", "fault", "sends")

    def __init__(self, state: bytes | None = None, fault: str = "") -> None:
        """Start without effects. ``state``: the group's state before the attempt; ``fault``: why it is unknown, empty = it is known."""
        self.sends: list[Send] = []
        self._state = state
        self.fault = fault
        self.changed = False
        """Whether the handler set the state."""
        self.ended = False
        """The attempt is over, and later effects would be lost."""
        self.bytes = 0

    @property
    def state(self) -> bytes | None:
        """The state of the group, as the handler left it so far. Raises :class:`StateError` if it is unknown."""
        if self.fault:
            raise StateError(self.fault)
        return self._state

    @property
    def are_asked_for(self) -> bool:
        """Whether the handler asked for an effect."""
        return self.changed or bool(self.sends)

    def end(self) -> None:
        """Refuse further effects, because the attempt is over."""
        self.ended = True

    def add_send(self, send: Send) -> None:
        """Add a record; raise RuntimeError if the attempt is over, or ValueError if the message sends too much."""
        self._require_open("send")
        self.bytes += send.bytes
        if len(self.sends) >= SENDS_MAX or self.bytes > SENDS_BYTES_MAX:
            raise ValueError(
                f"a message may send up to {SENDS_MAX} records and {SENDS_BYTES_MAX} bytes, because all of them are one transaction: "
                "send less for each message"
            )
        self.sends.append(send)

    def set_state(self, state: Data) -> None:
        """Set the state that the group has after the acknowledgement; None deletes it."""
        self._require_open("set the state of its group")
        if self.fault:
            raise StateError(self.fault)
        found = encoded(state, "message.state")
        if found is not None and len(found) > STATE_BYTES_MAX:
            raise ValueError(
                f"message.state has {len(found)} bytes: at most {STATE_BYTES_MAX}; keep large data elsewhere, and a reference to it here"
            )
        self._state, self.changed = found, True

    def _require_open(self, what: str) -> None:
        if self.ended:
            raise RuntimeError(
                f"the attempt is over, so this message can no longer {what}: await everything before the handler returns"
            )


class _Done:
    """A completed awaitable: sends are buffered at once."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


DONE: Final = _Done()


def encoded(data: Data, what: str) -> bytes | None:
    """Return a handler's data as bytes; text becomes UTF-8. ``what`` names it in a TypeError."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"{what} is of type {type(data).__name__}: give bytes or str (json.dumps makes a str)")


def encoded_headers(headers: "Mapping[str, Data] | Iterable[tuple[str, Data]] | None") -> Headers:
    """Return headers as a list of names and bytes; raise TypeError or ValueError for those that cannot be sent."""
    if not headers:
        return []
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found: Headers = []
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise TypeError(f"headers hold {pair!r}: give a dict, or a list of pairs (name, value)")
        name, value = pair
        if name.startswith(wire_names.RESERVED_PREFIX) and name != wire_names.HEADER_TRANSACTION:
            raise ValueError(
                f"the header {name} begins with {wire_names.RESERVED_PREFIX}, which Ringfence itself writes: choose another name"
            )
        try:
            name.encode()
        except UnicodeEncodeError as error:
            # Found later, the name would block all messages of the partition.
            raise ValueError(f"the header {name!r} cannot be written in UTF-8: give another name") from error
        found.append((name, encoded(value, f"the header {name}")))
    return found


def check_send(topic: Any, partition: Any, timestamp: Any, duplicate_id: bytes | None) -> None:
    """Check the arguments of a send; raise TypeError or ValueError if it cannot be sent."""
    if not isinstance(topic, str):
        raise TypeError(f"topic is of type {type(topic).__name__}: give the name of a topic")
    if not topic:
        raise ValueError("topic is empty: give the name of a topic")
    if len(topic) > wire_names.TOPIC_CHARACTERS_MAX or _TOPIC.fullmatch(topic) is None:
        raise ValueError(
            f"{topic!r} cannot be the name of a topic: give up to {wire_names.TOPIC_CHARACTERS_MAX} of A-Z, a-z, 0-9, '.', '_' and '-'"
        )
    if partition is not None:
        _require_number("partition", partition, PARTITION_MAX)
    if timestamp is not None:
        _require_number("timestamp", timestamp, TIMESTAMP_MAX)
    if duplicate_id == b"":
        raise ValueError("duplicate_id is empty: give at least one byte, or None")


def _require_number(name: str, found: Any, most: int) -> None:
    if not isinstance(found, int) or isinstance(found, bool):
        raise TypeError(f"{name} is of type {type(found).__name__}: give an int")
    if not 0 <= found <= most:
        raise ValueError(f"{name} = {found}: 0 to {most}")

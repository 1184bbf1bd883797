"""The four requests of a transaction in which partitions are added by writing to them (KIP-890), as bytes. Pure.

aiokafka's connections send and receive them; it knows none of these versions itself. All are of Kafka's compact encoding: lengths are
varints and one more than they are (0 = null), and each structure ends with its tagged fields, of which we send none and skip all.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any, Final, NamedTuple

from aiokafka.errors import IncompatibleBrokerVersion

PRODUCE, TXN_OFFSET_COMMIT, END_TXN, API_VERSIONS = 0, 28, 26, 18
"""Keys of the requests."""
PRODUCE_VERSION: Final = 12
TXN_OFFSET_COMMIT_VERSION: Final = 5
END_TXN_VERSION: Final = 5
API_VERSIONS_VERSION: Final = 3
FEATURE: Final = "transaction.version"
IMPLICIT: Final = 2
"""Of that feature, from which on brokers add partitions by themselves."""

Place = tuple[str, int]
"""Topic and partition."""

_NO_TAGS: Final = b"\0"
_FINALIZED: Final = 2
"""Tag of the cluster's features in the answer to ApiVersions."""
_ACKS_ALL: Final = -1
_LENGTH: Final = 0x7F
_MORE: Final = 0x80
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_HEADER: Final = struct.Struct(">hhi")
_PRODUCER: Final = struct.Struct(">qh")
_TRIED: Final = struct.Struct(">hi")
_PARTITION_OFFSET: Final = struct.Struct(">iqi")
_WRITTEN: Final = struct.Struct(">ihqqq")


class Producer(NamedTuple):
    """Who writes."""

    id: int
    epoch: int


class Ended(NamedTuple):
    """What the coordinator says to the end of a transaction."""

    error_code: int
    producer: Producer
    """Of the next one."""


class _Header(NamedTuple):
    """What aiokafka's connection asks of a header."""

    data: bytes
    correlation_id: int

    def encode(self) -> bytes:
        """The bytes."""
        return self.data


class _Answer(NamedTuple):
    """What it asks of the type of an answer."""

    read: "Callable[[Reader], Any]"

    def decode(self, buffer: BytesIO) -> Any:
        """The answer."""
        return self.read(Reader(buffer.getbuffer(), buffer.tell()))


class Question:
    """What it asks of a request, and of the structure that it makes for it: both are this."""

    __slots__ = ("API_KEY", "API_VERSION", "RESPONSE_TYPE", "_body", "_tagged")

    def __init__(
        self, key: int, version: int, body: bytes, read: "Callable[[Reader], Any]", *, tagged: bool = True
    ) -> None:
        """``read`` makes the answer of its bytes; ``tagged``: its header may have tagged fields."""
        self.API_KEY, self.API_VERSION = key, version
        self.RESPONSE_TYPE = _Answer(read)
        self._body, self._tagged = body, tagged

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> "Question":
        """For a connection whose broker knows these versions.

        Raises:
            IncompatibleBrokerVersion: it does not know this one.
        """
        least, most = versions.get(self.API_KEY, (0, -1))
        if not least <= self.API_VERSION <= most:
            raise IncompatibleBrokerVersion(
                f"the broker takes request {self.API_KEY} in versions {least} to {most}, not {self.API_VERSION}"
            )
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> _Header:
        """Version 2."""
        name = client_id.encode()
        head = _HEADER.pack(self.API_KEY, self.API_VERSION, correlation_id)
        return _Header(head + _INT16.pack(len(name)) + name + _NO_TAGS, correlation_id)

    def encode(self) -> bytes:
        """The body."""
        return self._body

    def parse_response_header(self, buffer: BytesIO) -> _Header:
        """Version 1, or 0 where nothing is tagged."""
        (number,) = _INT32.unpack(buffer.read(_INT32.size))
        if self._tagged:
            reader = Reader(buffer.getbuffer(), _INT32.size)
            reader.skip_tags()
            buffer.seek(reader.at)
        return _Header(b"", number)


def api_versions(name: str, version: str) -> Question:
    """Asks for the features of the cluster. The answer: their levels, by name."""
    body = _text(name) + _text(version) + _NO_TAGS
    return Question(API_VERSIONS, API_VERSIONS_VERSION, body, _read_features, tagged=False)


def produce(transactional_id: str, timeout_ms: int, batches: Mapping[Place, bytes]) -> Question:
    """Writes a record batch to each partition. The answer: error code and base offset, by partition."""
    topics: dict[str, list[tuple[int, bytes]]] = {}
    for (topic, partition), data in batches.items():
        topics.setdefault(topic, []).append((partition, data))
    pieces = [_text(transactional_id), _TRIED.pack(_ACKS_ALL, timeout_ms), _length(len(topics))]
    for topic, partitions in topics.items():
        pieces += (_text(topic), _length(len(partitions)))
        for partition, data in partitions:  # joined once: they are large
            pieces += (_INT32.pack(partition), _length(len(data)), data, _NO_TAGS)
        pieces.append(_NO_TAGS)
    pieces.append(_NO_TAGS)
    body = b"".join(pieces)
    return Question(PRODUCE, PRODUCE_VERSION, body, _read_written)


def commit_offsets(
    transactional_id: str, group_id: str, producer: Producer, offsets: Mapping[Place, int]
) -> Question:
    """Offsets of a group, with the transaction. The answer: error codes by partition."""
    topics: dict[str, list[bytes]] = {}
    for (topic, partition), offset in offsets.items():
        whole = _PARTITION_OFFSET.pack(partition, offset, -1) + _text("") + _NO_TAGS
        topics.setdefault(topic, []).append(whole)
    body = b"".join(
        (
            _text(transactional_id),
            _text(group_id),
            _PRODUCER.pack(*producer),
            _INT32.pack(-1),  # no generation: the transactional ID is the fence
            _text(""),
            _text(None),
            _array(_text(topic) + _array(partitions) + _NO_TAGS for topic, partitions in topics.items()),
            _NO_TAGS,
        )
    )
    return Question(TXN_OFFSET_COMMIT, TXN_OFFSET_COMMIT_VERSION, body, _read_committed)


def end(transactional_id: str, producer: Producer, *, commit: bool) -> Question:
    """Ends the transaction. The answer: :class:`Ended`."""
    body = _text(transactional_id) + _PRODUCER.pack(*producer) + (b"\1" if commit else b"\0") + _NO_TAGS
    return Question(END_TXN, END_TXN_VERSION, body, _read_ended)


class Reader:
    """Goes over an answer."""

    __slots__ = ("_data", "at")

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self.at = at

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        """What stands here in this form."""
        found = form.unpack_from(self._data, self.at)
        self.at += form.size
        return found

    def number(self) -> int:
        """A varint."""
        found = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            found |= (byte & _LENGTH) << shift
            if not byte & _MORE:
                return found
            shift += 7

    def text(self) -> str:
        """A compact string; empty where it is null."""
        length = max(0, self.number() - 1)
        found = bytes(self._data[self.at : self.at + length])
        self.at += length
        return found.decode()

    def array(self) -> range:
        """As many turns as it has elements."""
        return range(max(0, self.number() - 1))

    def skip_tags(self) -> None:
        """Past the tagged fields of a structure."""
        for _ in range(self.number()):
            self.number()
            length = self.number()
            self.at += length


def _read_features(reader: Reader) -> dict[str, int]:
    features: dict[str, int] = {}
    (error_code,) = reader.unpack(_INT16)
    for _ in reader.array():
        reader.at += 3 * _INT16.size
        reader.skip_tags()
    reader.unpack(_INT32)
    if error_code:
        return features
    for _ in range(reader.number()):
        tag, end = reader.number(), reader.number()
        end += reader.at
        if tag == _FINALIZED:
            for _ in reader.array():
                name = reader.text()
                features[name], _ = reader.unpack(struct.Struct(">hh"))
                reader.skip_tags()
        reader.at = end
    return features


def _read_written(reader: Reader) -> dict[Place, tuple[int, int]]:
    answers: dict[Place, tuple[int, int]] = {}
    for _ in reader.array():
        topic = reader.text()
        for _ in reader.array():
            partition, error_code, base, _, _ = reader.unpack(_WRITTEN)
            answers[topic, partition] = error_code, base
            for _ in reader.array():
                reader.unpack(_INT32)
                reader.text()
                reader.skip_tags()
            reader.text()
            reader.skip_tags()
        reader.skip_tags()
    return answers


def _read_committed(reader: Reader) -> dict[Place, int]:
    answers: dict[Place, int] = {}
    reader.unpack(_INT32)
    for _ in reader.array():
        topic = reader.text()
        for _ in reader.array():
            (partition,), (error_code,) = reader.unpack(_INT32), reader.unpack(_INT16)
            answers[topic, partition] = error_code
            reader.skip_tags()
        reader.skip_tags()
    return answers


def _read_ended(reader: Reader) -> Ended:
    reader.unpack(_INT32)
    (error_code,) = reader.unpack(_INT16)
    return Ended(error_code, Producer(*reader.unpack(_PRODUCER)))


def _number(number: int) -> bytes:
    """As a varint."""
    found = bytearray()
    while number > _LENGTH:
        found.append(number & _LENGTH | _MORE)
        number >>= 7
    found.append(number)
    return bytes(found)


def _length(length: int) -> bytes:
    return _number(length + 1)


def _text(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    data = text.encode()
    return _length(len(data)) + data


def _array(elements: Iterable[bytes]) -> bytes:
    every: Sequence[bytes] = list(elements)
    return _length(len(every)) + b"".join(every)

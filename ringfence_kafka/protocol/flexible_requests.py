"""Requests that aiokafka does not know, for its connections: in Kafka's compact form, and in the older one. Pure.

Lengths of the compact form are varints of the length plus one (0 = null). Each structure ends with tagged fields: requests have none, and responses' are skipped.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any, Final, NamedTuple, Self

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import Schema

from ringfence_kafka.protocol import varints

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
NO_TAGS: Final = b"\0"
_HEADER: Final = struct.Struct(">hhi")


def older_request(key: int, version: int, fields: Schema, answer: Schema) -> Any:
    """Return the class of a request in the older form, in a version that all supported brokers take."""

    class Answer(Response):  # type: ignore[misc]
        API_KEY, API_VERSION, SCHEMA = key, version, answer

    class Older(RequestStruct):  # type: ignore[misc]
        API_KEY, API_VERSION, SCHEMA, RESPONSE_TYPE = key, version, fields, Answer

        def prepare(self, _versions: Mapping[int, tuple[int, int]]) -> Self:
            return self

    return Older


class _Header(NamedTuple):
    """Request header with the methods that aiokafka's connection calls."""

    data: bytes
    correlation_id: int

    def encode(self) -> bytes:
        return self.data


class _Answer(NamedTuple):
    """Response type with the method that aiokafka's connection calls."""

    read: "Callable[[Reader], Any]"

    def decode(self, buffer: BytesIO) -> Any:
        return self.read(Reader(buffer.getbuffer(), buffer.tell()))


class Question:
    """Request for aiokafka's connection. It is also the structure that aiokafka builds from a request."""

    __slots__ = ("API_KEY", "API_VERSION", "RESPONSE_TYPE", "_body", "_tagged")

    def __init__(
        self, key: int, version: int, body: bytes, read: "Callable[[Reader], Any]", *, tagged: bool = True
    ) -> None:
        """Create a request. ``read`` decodes the response; ``tagged``: the response header may have tagged fields."""
        self.API_KEY, self.API_VERSION = key, version
        self.RESPONSE_TYPE = _Answer(read)
        self._body, self._tagged = body, tagged

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Self:
        """Check that a broker with these versions supports the request.

        Raises:
            IncompatibleBrokerVersion: the broker does not support it.
        """
        least, most = versions.get(self.API_KEY, (0, -1))
        if not least <= self.API_VERSION <= most:
            raise IncompatibleBrokerVersion(
                f"the broker takes request {self.API_KEY} in versions {least} to {most}, not {self.API_VERSION}"
            )
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> _Header:
        """Return a request header of version 2."""
        name = client_id.encode()
        head = _HEADER.pack(self.API_KEY, self.API_VERSION, correlation_id)
        return _Header(head + INT16.pack(len(name)) + name + NO_TAGS, correlation_id)

    def encode(self) -> bytes:
        """Return the body."""
        return self._body

    def parse_response_header(self, buffer: BytesIO) -> _Header:
        """Read a response header of version 1, or 0 without tagged fields."""
        (number,) = INT32.unpack(buffer.read(INT32.size))
        if self._tagged:
            reader = Reader(buffer.getbuffer(), INT32.size)
            reader.skip_tags()
            buffer.seek(reader.at)
        return _Header(b"", number)


class Reader:
    """Reader of a response."""

    __slots__ = ("_data", "at")

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self.at = at

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        """Unpack the next bytes in this form."""
        found = form.unpack_from(self._data, self.at)
        self.at += form.size
        return found

    def number(self) -> int:
        """Return a varint."""
        found: int = self._data[self.at]
        self.at += 1
        if found > 0x7F:
            found, self.at = varints.decode(self._data, self.at - 1)
        return found

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        found = bytes(self._data[self.at : self.at + count])
        self.at += count
        return found

    def text(self) -> str:
        """Return a compact string; empty if it is null."""
        return self.take(max(0, self.number() - 1)).decode()

    def array(self) -> range:
        """Return the indexes of an array; the caller reads the elements."""
        return range(max(0, self.number() - 1))

    def skip_tags(self) -> None:
        """Skip the tagged fields of a structure."""
        for _ in range(self.number()):
            self.number()
            length = self.number()
            self.at += length


def length(count: int) -> bytes:
    """Return the encoded length of a string or an array."""
    return varints.encode(count + 1)


def text(value: str | None) -> bytes:
    """Return an encoded string."""
    if value is None:
        return b"\0"
    data = value.encode()
    return length(len(data)) + data


def array(elements: Iterable[bytes]) -> bytes:
    """Return an encoded array of structures."""
    every: Sequence[bytes] = list(elements)
    return length(len(every)) + b"".join(every)

"""Numbers of variable length (LEB128): of Kafka's requests, of records (zigzag), and of offset ranges. Pure."""

from collections.abc import Iterator
from typing import Final

_MORE: Final = 0x80
_BITS: Final = 7


def encode(number: int) -> bytes:
    """Return a number that is not negative."""
    data = bytearray()
    while number >= _MORE:
        data.append(number & (_MORE - 1) | _MORE)
        number >>= _BITS
    data.append(number)
    return bytes(data)


def encode_signed(number: int) -> bytes:
    """Return a number as records have it."""
    return encode(number << 1 if number >= 0 else (-number << 1) - 1)


def decode(data: bytes | memoryview, at: int, bits_max: int = 70) -> tuple[int, int]:
    """Return the number that begins there, and where it ends.

    Raises:
        IndexError: the bytes end within it.
        ValueError: it has more bits.
    """
    number = data[at]
    at += 1
    if number < _MORE:  # nearly always
        return number, at
    number -= _MORE
    shift = _BITS
    while shift < bits_max:
        byte = data[at]
        at += 1
        if byte < _MORE:
            return number | byte << shift, at
        number |= (byte - _MORE) << shift
        shift += _BITS
    raise ValueError(f"a number has more than {bits_max} bits")


def signed(number: int) -> int:
    """Return the number that a record means by a decoded one."""
    return (number >> 1) ^ -(number & 1)


def decode_all(data: bytes, bits_max: int, what: str) -> Iterator[int]:
    """Yield all numbers of these bytes, of which each is as short as it can be.

    Raises:
        ValueError: one has more bits, is longer than needed, or is cut off; ``what`` names the bytes.
    """
    number = shift = 0
    for index, byte in enumerate(data):
        number |= (byte & (_MORE - 1)) << shift
        shift += _BITS
        if shift > bits_max:
            raise ValueError(f"the varint that ends at byte {index} of {what} has more than {bits_max} bits")
        if not byte & _MORE:
            if not byte and shift > _BITS:
                raise ValueError(f"the varint that ends at byte {index} of {what} is longer than needed")
            yield number
            number = shift = 0
    if shift:
        raise ValueError(f"{what} end within a varint")

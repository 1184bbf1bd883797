"""Numbers of variable length (LEB128), in Kafka's requests, in records (zigzag) and in offset ranges. Pure."""

from collections.abc import Iterator
from typing import Final

_MORE: Final = 0x80
_BITS: Final = 7


def encode(number: int) -> bytes:
    """Return the bytes of a non-negative number."""
    data = bytearray()
    while number >= _MORE:
        data.append(number & (_MORE - 1) | _MORE)
        number >>= _BITS
    data.append(number)
    return bytes(data)


def encode_signed(number: int) -> bytes:
    """Return the bytes of a number in a record (zigzag)."""
    return encode(number << 1 if number >= 0 else (-number << 1) - 1)


def decode(data: bytes | memoryview, at: int, bits_max: int = 70) -> tuple[int, int]:
    """Return the number at position ``at``, and its end.

    Raises:
        IndexError: the bytes end within the number.
        ValueError: the number has more than ``bits_max`` bits.
    """
    number = data[at]
    at += 1
    if number < _MORE:  # the usual case
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
    """Return the signed number of a decoded one (zigzag)."""
    return (number >> 1) ^ -(number & 1)


def decode_all(data: bytes, bits_max: int, what: str) -> Iterator[int]:
    """Yield all numbers in these bytes. Each must have its shortest form.

    Raises:
        ValueError: a number has too many bits, is longer than needed, or is cut off; ``what`` names the bytes.
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

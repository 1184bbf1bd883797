"""Stored and displayed forms of duplicate IDs. Pure."""

from hashlib import blake2b
from typing import Final

DISPLAY_PREFIXES: Final = ("hex:", "base64:", "digest:", "text:")
"""Prefixes with which people read and write IDs that are not plain text."""
ID_BYTES_MAX: Final = 256
"""Longer IDs are stored as a digest."""
_RAW: Final = b"\x00"
_DIGEST: Final = b"\x01"
_LENGTH_BYTES: Final = 4
"""Length prefix of each part of an ID with several parts."""
_FOREIGN: Final = b"\x02"
"""Mark of another address's ID: u8 length and name of the address, then the ID as that address stores it."""
_VARIANT: Final = b"\x03"
"""Mark of a second value: u64 digest of the value, then its ID; see :func:`variant_of`."""


def encode_id(value: bytes) -> bytes:
    """Return the stored form of a duplicate ID.

    IDs are compared as bytes. An ID of more than 256 bytes is stored as its BLAKE2b-256 digest. The kind byte distinguishes it from an ID
    that equals the digest.
    """
    if len(value) <= ID_BYTES_MAX:
        return _RAW + value
    return digest_id(value)


def digest_id(value: bytes) -> bytes:
    """Return the stored form of an ID as a digest of constant length."""
    return _DIGEST + blake2b(value, digest_size=32).digest()


def foreign_id(address: str, encoded_id: bytes) -> bytes:
    """Return the stored form of another address's ID, in the ring of the lane that accepted its part.

    It differs from the lane's own IDs: ``7`` of payments is never ``7`` of transfers. A name has at most 200 characters.
    """
    name = address.encode()
    return b"%b%c%b%b" % (_FOREIGN, len(name), name, encoded_id)


def variant_of(encoded_id: bytes, digest: int) -> bytes:
    """Return the stored form of an ID that was accepted with a second value. ``digest``: digest of that value."""
    return _VARIANT + digest.to_bytes(8, "big") + encoded_id


def without_value(encoded_id: bytes) -> bytes:
    """Return the stored form of an ID without the digest of a second value; other forms stay unchanged."""
    return encoded_id[9:] if encoded_id[:1] == _VARIANT else encoded_id


def of_address(encoded_id: bytes) -> tuple[str | None, bytes]:
    """Return the address of an ID (None = the lane's own), and the ID as that address stores it."""
    if encoded_id[:1] != _FOREIGN:
        return None, encoded_id
    end = 2 + encoded_id[1]
    return encoded_id[2:end].decode(), encoded_id[end:]


def stored_digest(digest: bytes) -> bytes:
    """Return the stored form of an ID of which only the digest is known.

    Raises:
        ValueError: the digest does not have 32 bytes.
    """
    if len(digest) != 32:
        raise ValueError(f"a digest has 32 bytes, this has {len(digest)}")
    return _DIGEST + digest


def display_id(encoded_id: bytes) -> str:
    """Return the readable form of an ID: printable text, else ``hex:…`` or ``digest:…``.

    A text with one of these prefixes is shown as ``text:…``, so that each displayed ID can be searched for. The address of another
    address's ID is not shown; :func:`of_address` returns it. An ID with a second value is shown as the ID.
    """
    _, encoded_id = of_address(without_value(encoded_id))
    kind, value = encoded_id[:1], encoded_id[1:]
    return f"digest:{value.hex()}" if kind == _DIGEST else _display(value)


def display_parts(encoded_id: bytes, count: int) -> list[str]:
    """Return the readable parts of an ID; empty if it does not have ``count`` parts, or only its digest is known."""
    encoded_id = without_value(encoded_id)
    found, rest = [], encoded_id[1:] if encoded_id[:1] == _RAW else b""
    while len(rest) > _LENGTH_BYTES:
        end = _LENGTH_BYTES + int.from_bytes(rest[:_LENGTH_BYTES], "big")
        if end > len(rest):
            return []
        found.append(_display(rest[_LENGTH_BYTES:end]))
        rest = rest[end:]
    return found if len(found) == count and not rest else []


def _display(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"hex:{value.hex()}"
    if not text.isprintable():
        return f"hex:{value.hex()}"
    return f"text:{text}" if text.startswith(DISPLAY_PREFIXES) else text

"""Digests of values. Pure."""

import json
from hashlib import blake2b
from typing import Any, Final

import xxhash

SEED: Final = 42
"""Of XXH64: Spark's ``xxhash64`` has the same."""


def slot_digest(value: bytes | None) -> int:
    """Return the digest that the slot of an ID holds of a value: never 0; null counts as empty."""
    return xxhash.xxh64_intdigest(value or b"", SEED) or 1


def new() -> Any:
    """Return a digest that pieces of a value are added to."""
    return blake2b(digest_size=32)


def stand_in(size: int, digest: Any) -> bytes:
    """Return the value that stands for one of so many bytes with this digest."""
    return json.dumps({"bytes": size, "blake2b_256": digest.hexdigest()}).encode()


def stand_in_of(value: bytes) -> bytes:
    """Return the value that stands for this one."""
    digest = new()
    digest.update(value)
    return stand_in(len(value), digest)

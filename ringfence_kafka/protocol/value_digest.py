"""Digests of values. Pure."""

import json
from hashlib import blake2b
from typing import Any, Final

import xxhash

SEED: Final = 42
"""Seed of XXH64, equal to that of Spark's ``xxhash64``."""


def slot_digest(value: bytes | None) -> int:
    """Return the digest of a value for the slot of an ID: never 0; null counts as empty."""
    return xxhash.xxh64_intdigest(value or b"", SEED) or 1


def new() -> Any:
    """Return a digest to which pieces of a value can be added."""
    return blake2b(digest_size=32)


def placeholder(size: int, digest: Any) -> bytes:
    """Return the replacement of a value with this size and digest."""
    return json.dumps({"bytes": size, "blake2b_256": digest.hexdigest()}).encode()


def placeholder_of(value: bytes) -> bytes:
    """Return the replacement of a value."""
    digest = new()
    digest.update(value)
    return placeholder(len(value), digest)

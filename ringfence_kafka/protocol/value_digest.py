"""Size and digest that stand for a value that is too large. Pure."""

import json
from hashlib import blake2b
from typing import Any


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

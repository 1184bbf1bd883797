"""What the product makes in slices, made at once."""

from typing import Any

from ringfence_kafka.slices import at_once
from tables.resize import making_ring
from tables.ring import ResidentIndex, Ring


def rebuild(*arguments: Any, **options: Any) -> ResidentIndex:
    """As :meth:`tables.ring.ResidentIndex.rebuilding`."""
    return at_once(ResidentIndex.rebuilding(*arguments, **options))


def make_ring(*arguments: Any, **options: Any) -> Ring:
    """As :func:`tables.resize.making_ring`."""
    return at_once(making_ring(*arguments, **options))

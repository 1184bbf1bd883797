"""Promise of ``id_min_age``: a ring keeps younger IDs beyond ``id_cache_size``, up to ``id_cache_size_max``. Pure."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

AGED_AT_ONCE: Final = 10_000
"""Limit of IDs that one transaction removes for their age, beside as many as it adds. More would block the event loop."""

BURST_MS: Final = 1_000
"""A ring that reaches back less, in milliseconds, contains a burst. Its rate is not that of an hour."""


class Promise(NamedTuple):
    """The promise of a ring, and its outcome so far."""

    size: int
    """``id_cache_size``: number of IDs that are kept whatever their age."""
    min_age_ms: int
    newest_ms: int = 0
    """Newest record timestamp of all accepted IDs, in milliseconds. Ages are relative to it."""
    broken: int = 0
    """Number of IDs that left through ``id_cache_size_max`` while they were younger."""


class Coverage(NamedTuple):
    """A promise, and whether a ring keeps it now."""

    promise: Promise
    covered_ms: int
    """Age of the oldest live ID, in milliseconds."""
    enough: int
    """Sufficient size at the present rate; 0 = the promise is kept."""

    @property
    def holds(self) -> bool:
        """Whether no younger ID had to leave recently."""
        return not self.enough

    def report(self) -> dict[str, Any]:
        """Return the values for a page or a document, in seconds and IDs."""
        return {
            "id_min_age": self.promise.min_age_ms / 1000,
            "id_cache_size": self.promise.size,
            "holds": self.holds,
            "coverage_broken": self.promise.broken,
            "enough": self.enough or None,
        }


def coverage(promise: Promise, capacity: int, head: int, floor: int, oldest_ms: int | None) -> Coverage:
    """Return whether a ring of this head and floor keeps its promise; ``oldest_ms``: record timestamp of its oldest live ID.

    IDs that leave for their age raise the floor. A ring whose oldest ID is above the floor had to remove a younger one.
    """
    covered = 0 if oldest_ms is None else max(0, promise.newest_ms - oldest_ms)
    if head - capacity <= floor or covered > promise.min_age_ms:
        return Coverage(promise, covered, 0)
    return Coverage(promise, covered, rounded_up(capacity * promise.min_age_ms / max(covered, BURST_MS)))


def rounded_up(size: float) -> int:
    """Return the next number with two significant digits."""
    step = int(10 ** max(0, math.floor(math.log10(max(size, 1))) - 1))
    return math.floor(size / step) * step + step


def leaving(
    times: Callable[[Sequence[int]], Sequence[int]], low: int, gone: int, until: int, before: int, step: int
) -> tuple[int, int]:
    """Return the number of younger IDs below ``gone``, and the first younger ID from ``gone`` up to ``until``.

    ``times``: returns record timestamps of sequences; ``low``: the lowest live sequence; ``gone``: lower IDs leave whatever their age;
    ``until``: IDs from here on stay whatever their age; ``before``: timestamp from which IDs are younger than the promise; ``step``: number of
    IDs per lookup. Timestamps are in milliseconds.
    """
    broken = sum(time >= before for time in times(range(low, gone)))
    while gone < until:
        for time in times(range(gone, min(gone + step, until))):
            if time >= before:
                return broken, gone
            gone += 1
    return broken, gone

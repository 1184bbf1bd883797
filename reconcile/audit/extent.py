"""Part of a topic that an audit reads. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"(\d{1,9})([smhd])")


class Extent(NamedTuple):
    """Offsets of one partition."""

    start: int  # first offset that still exists
    stable: int  # last stable offset, the end for readers of committed data
    end: int  # end of the log


@dataclass(frozen=True, slots=True)
class Part:
    """Offsets to read."""

    asked: str  # in words: the whole topic, the last 24h, the last 1,000 records
    spans: Mapping[int, tuple[int, int]]
    """Partition → first offset, and offset behind the last. Markers and compaction leave empty offsets."""
    whole: bool  # whether it is the whole topic

    @property
    def offsets(self) -> int:
        """Upper bound of the records."""
        return sum(end - begin for begin, end in self.spans.values())

    def ranges(self) -> dict[int, tuple[int, int]]:
        """Return the ranges of partitions with something to read."""
        return {number: span for number, span in self.spans.items() if span[0] < span[1]}


def seconds_of(text: str) -> int:
    """Return the seconds of a duration such as 90s, 30m, 24h or 7d.

    Raises:
        ValueError: The text is not a duration.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not int(match[1]):
        raise ValueError(f"{text!r} is no duration: write for example 30m, 24h or 7d")
    return int(match[1]) * _UNITS[match[2]]


def whole(extents: Mapping[int, Extent]) -> Part:
    """Return the whole topic."""
    return Part(
        "the whole topic", {number: (extent.start, extent.stable) for number, extent in extents.items()}, True
    )


def since(extents: Mapping[int, Extent], begins: Mapping[int, int | None], asked: str) -> Part:
    """Return the part that begins at these offsets; None = the partition has no record so late."""
    spans = {}
    for number, extent in extents.items():
        begin = begins[number]
        spans[number] = (
            extent.stable if begin is None else min(max(begin, extent.start), extent.stable),
            extent.stable,
        )
    return _part(f"the last {asked}", spans, extents)


def last(extents: Mapping[int, Extent], count: int) -> Part:
    """Return the last ``count`` offsets, divided among the partitions in proportion to their sizes."""
    sizes = {number: extent.stable - extent.start for number, extent in extents.items()}
    total = sum(sizes.values())
    wanted = min(count, total)
    shares = {number: divmod(wanted * size, total) if total else (0, 0) for number, size in sizes.items()}
    missing = wanted - sum(share for share, _ in shares.values())
    largest_rest = sorted(shares, key=lambda number: (-shares[number][1], number))[:missing]
    spans = {
        number: (extent.stable - shares[number][0] - (number in largest_rest), extent.stable)
        for number, extent in extents.items()
    }
    return _part(f"the last {count:,} records", spans, extents)


def _part(asked: str, spans: Mapping[int, tuple[int, int]], extents: Mapping[int, Extent]) -> Part:
    return Part(asked, spans, all(spans[number][0] == extent.start for number, extent in extents.items()))

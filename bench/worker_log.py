"""Events of lanes in a worker's log, with their times. Pure."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

REBALANCE: Final = "rebalance: "
ASSIGNED: Final = "assigned "
READY: Final = "ready: "
NOT_READY: Final = "not ready: "

_LINE: Final = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) [A-Z]+ +ringfence\.\w+: (.*?)(?: \[RF-\d+\])?$"
)
_ASSIGNED: Final = re.compile(r"assigned (\d+) lanes: (.*)")
_OPEN: Final = re.compile(
    r"lane (\S+) open: (\d+) changelog records restored in ([\d.]+) s \((?:RocksDB )?(\w+)[^)]*\)"
)
_CLOSED: Final = re.compile(r"lane (\S+) closed at offsets? (\d+)")


class Event(NamedTuple):
    """One line."""

    moment: float
    """Seconds since the epoch."""
    text: str


class Opened(NamedTuple):
    """A lane was opened."""

    moment: float
    records: int
    """Restored from the changelog."""
    restore_s: float
    """Part of the time since its assignment."""
    reused: bool


def events(log: str) -> list[Event]:
    """Ringfence's own lines."""
    return [
        Event(datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f").timestamp(), match[2])  # noqa: DTZ007 - local, as logged
        for match in map(_LINE.match, log.splitlines())
        if match
    ]


def settled(found: Sequence[Event]) -> frozenset[str] | None:
    """Return the worker's lanes, when it has been ready since its last assignment; else None."""
    lanes: frozenset[str] | None = None
    ready = False
    for item in found:
        if match := _ASSIGNED.match(item.text):
            lanes = frozenset(match[2].split(", ")) if int(match[1]) else frozenset()
            ready = False
        elif item.text.startswith(READY):
            ready = True
        elif item.text.startswith((NOT_READY, REBALANCE)):
            ready = False
    return lanes if ready else None


def first(found: Iterable[Event], beginning: str, after: float) -> float | None:
    """When a line that begins so was first written after the moment."""
    return next(
        (item.moment for item in found if item.moment >= after and item.text.startswith(beginning)), None
    )


def last(found: Iterable[Event], beginning: str, after: float) -> float | None:
    """When a line that begins so was last written after the moment."""
    moments = [item.moment for item in found if item.moment >= after and item.text.startswith(beginning)]
    return moments[-1] if moments else None


def opened(found: Iterable[Event], after: float) -> dict[str, Opened]:
    """Return the last opening of each lane after the moment."""
    return {
        match[1]: Opened(item.moment, int(match[2]), float(match[3]), match[4] not in {"new", "in"})
        for item in found
        if item.moment >= after and (match := _OPEN.match(item.text))
    }


def closed(found: Iterable[Event], after: float) -> dict[str, int]:
    """Lane → the input offset at which it was last closed after the moment: what its next owner begins with."""
    return {
        match[1]: int(match[2])
        for item in found
        if item.moment >= after and (match := _CLOSED.match(item.text))
    }

"""Figures of a process over the last hour and the last day, in bounded memory.

A process reads its counters every ten seconds, so messages cost nothing. A page adds up the figures of several processes.
"""

import asyncio
import math
import os
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

EVERY_S: Final = 10
Subject = tuple[str, ...]
"""Subject of figures, such as ``("address", "orders")``, ``("consumers", "billing", "orders")`` or ``("worker", "w1")``."""
Values = list[float | None]
"""One value for each slot of a span, oldest first; None = not known."""


class Span(NamedTuple):
    """A time span until now, divided into slots."""

    slot_s: int
    slots: int


SPANS: Final = {"glance": Span(60, 60), "hour": Span(EVERY_S, 360), "day": Span(300, 288)}
"""Available spans. The first one also covers the last hour, for small charts."""
Fold = Callable[[Iterable[float]], float]


class Figure(NamedTuple):
    """Rules for combining values of one figure."""

    over_time: Fold | None
    """Combines samples in a slot; None = the figure is a counter, and a slot has its rate per second."""
    together: Fold
    """Combines values of several processes."""


_RATE: Final = Figure(None, sum)
_LEVEL: Final = Figure(max, sum)
FIGURES: Final[Mapping[str, Figure]] = {
    **dict.fromkeys(("in", "accepted", "duplicates", "handled", "failed"), _RATE),
    **dict.fromkeys(("lag", "running", "rss", "buffered"), _LEVEL),
    "oldest": Figure(max, max),
    "covered": Figure(min, min),
}


class _Series:
    def __init__(self, span: Span, over_time: Fold | None) -> None:
        self._span = span
        self._over_time = over_time
        self._values = array("f", [math.nan]) * span.slots
        self._slot = 0
        """Number of the newest slot."""
        self._samples = 0
        """Number of samples in the newest slot."""

    def put(self, at_s: float, value: float) -> None:
        """Add a sample. Its time is not before the last one's, unless the clock was set back."""
        slot = int(at_s // self._span.slot_s)
        if slot != self._slot:
            self._clear_between(slot)
            self._slot, self._samples = slot, 0
        place = slot % self._span.slots
        self._samples += 1
        if self._samples > 1:
            known = self._values[place]
            mean = known + (value - known) / self._samples
            value = mean if self._over_time is None else self._over_time((known, value))
        self._values[place] = value

    def _clear_between(self, slot: int) -> None:
        slots = self._span.slots
        first = self._slot + 1 if slot > self._slot else slot - slots + 1
        for passed in range(max(first, slot - slots + 1), slot + 1):
            self._values[passed % slots] = math.nan

    def until(self, slot: int) -> Values:
        """Return the values up to a slot."""
        slots = self._span.slots
        oldest = self._slot - slots
        return [
            None if not oldest < at <= self._slot or math.isnan(value := self._values[at % slots]) else float(f"{value:.4g}")
            for at in range(slot - slots + 1, slot + 1)
        ]  # fmt: skip


class History:
    """Figures of one process."""

    def __init__(
        self,
        read: Callable[[], Mapping[Subject, Mapping[str, float | None]]],
        now: Callable[[], float] = time.time,
    ) -> None:
        """Create an empty history. ``read``: returns the present figures of all subjects; ``now``: clock, in seconds since the epoch."""
        self._read = read
        self._now = now
        self._process = os.urandom(8).hex()
        self._series: dict[Subject, dict[str, dict[str, _Series]]] = {}
        self._counts: dict[tuple[Subject, str], tuple[float, float]] = {}

    async def run(self) -> None:
        """Take a sample every ten seconds, until cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(EVERY_S - self._now() % EVERY_S)

    def sample(self) -> None:
        """Take a sample."""
        at_s = self._now()
        for subject, figures in self._read().items():
            known = self._series.setdefault(subject, {})
            for name, figure in figures.items():
                value = self._rate(subject, name, at_s, figure) if FIGURES[name].over_time is None else figure
                if value is None:
                    continue
                if name not in known:
                    known[name] = {key: _Series(span, FIGURES[name].over_time) for key, span in SPANS.items()}
                for series in known[name].values():
                    series.put(at_s, value)

    def _rate(self, subject: Subject, name: str, at_s: float, count: float | None) -> float | None:
        """Return the growth of a counter since the last sample, per second; None = not known."""
        if count is None:
            return None
        before_s, before = self._counts.get((subject, name), (at_s, count))
        self._counts[subject, name] = at_s, count
        return (count - before) / (at_s - before_s) if at_s > before_s and count >= before else None

    def document(self, span: str, subject: Sequence[str] = ()) -> dict[str, Any]:
        """Return the response of ``/history``, for one subject or for all."""
        slot = int(self._now() // SPANS[span].slot_s)
        chosen = [tuple(subject)] if subject else list(self._series)
        return {
            "process": self._process,
            "slot": slot,
            "rows": [
                [list(each), {name: spans[span].until(slot) for name, spans in self._series[each].items()}]
                for each in chosen
                if each in self._series
            ],
        }


@dataclass(frozen=True, slots=True)
class Charts:
    """Figures of several processes over one span."""

    span: Span
    rows: Mapping[Subject, Mapping[str, Values]]

    def figures(self, *subject: str) -> Mapping[str, Values]:
        """Return the figures of a subject by name. Figures without a sample are absent."""
        return self.rows.get(subject, {})


def merged(span: str, documents: Iterable[Mapping[str, Any]]) -> Charts:
    """Add up the responses of processes for a span. Repeated responses of one process count once."""
    found = {str(document["process"]): document for document in documents}
    newest = max((int(document["slot"]) for document in found.values()), default=0)
    slots = SPANS[span].slots
    values: dict[Subject, dict[str, list[Values]]] = {}
    for document in found.values():
        behind = newest - int(document["slot"])
        for subject, figures in document["rows"]:
            for name, series in figures.items():
                if name in FIGURES:
                    moved = [*series[behind:], *[None] * min(behind, slots)]
                    values.setdefault(tuple(subject), {}).setdefault(name, []).append(moved[:slots])
    return Charts(
        SPANS[span],
        {
            subject: {name: _together(FIGURES[name].together, many) for name, many in figures.items()}
            for subject, figures in values.items()
        },
    )


def _together(fold: Fold, many: Sequence[Values]) -> Values:
    """Combine series of the same length, slot by slot. The newest slot of a process may still be empty."""
    return [fold(known) if (known := [value for value in slot if value is not None]) else None for slot in zip(*many, strict=False)]  # fmt: skip


def rss() -> int | None:
    """Return the resident memory of this process in bytes; None = the system does not report it."""
    try:
        pages = Path("/proc/self/statm").read_text("ascii").split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")

"""Plots of the page. They contain only numbers from the data."""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from reconcile.page import formatting
from reconcile.page.drawing import Mark, drawing
from reconcile.page.report_data import Bin, GroupBin, Moment, Ring

WIDE, NARROW = 1040, 400
"""Widths of drawings, in units (pixels on a wide page). Only the plot by time exists in both widths."""
_SHARES_TOP, _SHARES_HEIGHT, _SHARES_ALL = 46, 180, 272
_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000
_TIME_STEPS: Final = (
    1, 10, 100, 1000, 5000, 15_000, 30_000, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE, _HOUR, 2 * _HOUR, 3 * _HOUR,
    6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY, 28 * _DAY, 91 * _DAY, 364 * _DAY, 3640 * _DAY, 36400 * _DAY,
)  # fmt: skip
_AGES: Final = (
    (1e-3, "1 ms"), (1e-2, "10 ms"), (0.1, "0.1 s"), (1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"),
    (3600.0, "1 h"), (21_600.0, "6 h"), (86_400.0, "1 d"), (604_800.0, "7 d"), (2_592_000.0, "30 d"), (31_536_000.0, "1 y"),
)  # fmt: skip


def day(moments: Sequence[Moment], step_ms: int, *, wide: bool) -> str:
    """Draw inputs and accepted inputs over time, and duplicates below on their own scale."""
    width, above = (WIDE, 130) if wide else (NARROW, 120)
    begin, end = moments[0].at, moments[-1].at + step_ms
    records, duplicates = (
        sum(getattr(moment, name) for moment in moments) for name in ("records", "duplicates")
    )
    description = (
        f"{records:,} records and {duplicates:,} duplicates from "
        f"{formatting.time(begin)} to {formatting.time(end)} UTC, in intervals of "
        f"{formatting.span(step_ms)}."
    )
    with drawing(width, above + 124, letters=12.5) as made:
        upper = made.axes(top=22, height=above)
        edges, values = _stairs(moments, step_ms, "accepted")
        made.filled(upper, "accepted", values, edges)
        made.outlined(upper, "records", _stairs(moments, step_ms, "records")[1], edges)
        lower = made.axes(top=above + 48, height=50)
        made.filled(lower, "duplicates", _stairs(moments, step_ms, "duplicates")[1], edges)
        ticks = _time_ticks(begin, end, 8 if wide else 4)
        for axes, name in ((upper, "records, accepted"), (lower, "duplicates")):
            axes.set_xlim(begin, end)
            made.counted(axes, name)
            axes.set_xticks([])
        lower.set_xticks([at for at, _ in ticks], [text for _, text in ticks])
        return made.image("day wide" if wide else "day narrow", "Throughput and duplicates", description)


def distances(bins: Sequence[Bin], ring: Ring) -> str:
    """Draw the share of resends that rings of each size catch, with present and recommended size."""
    recommended = ring.recommended or 0
    last = max(1.0, ring.capacity, recommended, *(bin_.upper for bin_ in bins if math.isfinite(bin_.upper)))
    advised = "no size" if ring.recommended is None else f"{recommended:,}"
    description = (
        f"Half of {ring.resends:,} resends are within {ring.resend_distance_p50:,} IDs, "
        f"99 % within {ring.resend_distance_p99:,}, all within {ring.resend_distance_max:,}. "
        f"{ring.key} is {ring.capacity:,}, recommended {advised}."
    )
    with drawing(NARROW, _SHARES_ALL) as made:
        axes = made.axes(top=_SHARES_TOP, height=_SHARES_HEIGHT)
        made.cumulative(axes, _shares(bins, 0.8, last * 1.6), 0.8, last * 1.6)
        powers = range(math.floor(math.log10(last * 1.6)) + 1)
        every = math.ceil(len(powers) / 7)
        shown = [10**power for power in powers if power % every == 0]
        axes.set_xticks(shown, [formatting.compact(item) for item in shown])
        made.label(axes, "distance in IDs: the size of ring that catches it")
        marks = [Mark("recommended", recommended, f"recommended {recommended:,}")]
        if ring.capacity:
            marks.append(Mark("capacity", ring.capacity, f"{ring.key} {ring.capacity:,}"))
        made.marks(axes, [mark for mark in marks if mark.at])
        return made.image("small", "Resend distance against ring size", description)


def ages(bins: Sequence[Bin]) -> str:
    """Draw the time between a resend and its original."""
    finite = [bin_.upper for bin_ in bins if math.isfinite(bin_.upper)]
    first = max(1e-3, min(finite, default=1.0)) / 1.5
    last = max(max(finite, default=1.0) * 1.6, first * 100)
    total = sum(bin_.count for bin_ in bins)
    half, most = (
        next(bin_.upper for bin_, upto in zip(bins, _cumulated(bins), strict=True) if upto >= total * share)
        for share in (0.5, 0.99)
    )
    marks = [Mark("most", most, f"99 % within {formatting.span(most * 1000)}")] if most <= last else []
    if half < min(most, last):
        marks.append(Mark("half", half, f"half within {formatting.span(half * 1000)}"))
    description = ", ".join([f"Of {total:,} resends", *(mark.text for mark in reversed(marks))]) + "."
    with drawing(NARROW, _SHARES_ALL) as made:
        axes = made.axes(top=_SHARES_TOP, height=_SHARES_HEIGHT)
        made.cumulative(axes, _shares(bins, first, last), first, last)
        within = [age for age in _AGES if first <= age[0] <= last]
        shown = within[:: math.ceil(len(within) / 6) or 1]
        axes.set_xticks([at for at, _ in shown], [text for _, text in shown])
        made.label(axes, "time after what it repeats")
        made.marks(axes, [mark for mark in marks if mark.at > first])
        return made.image("small", "Time between a resend and what it repeats", description)


def groups(bins: Sequence[GroupBin]) -> str:
    """Draw the number of groups of each size, and their records."""
    total, records = sum(size.groups for size in bins), sum(size.records for size in bins)
    description = f"{total:,} groups with {records:,} records; the largest size is up to {bins[-1].upper:,}."
    with drawing(NARROW, 272) as made:
        upper, lower = made.axes(top=24, height=84), made.axes(top=136, height=84)
        step = math.ceil(len(bins) / 6)
        shown = range(0, len(bins), step)
        for axes, name, counts in (
            (upper, "groups", [size.groups for size in bins]),
            (lower, "records in them", [size.records for size in bins]),
        ):
            edges = [at + side for at in range(len(bins)) for side in (0.12, 0.88)]
            heights = [value for count in counts for value in (count, 0)][:-1]
            made.filled(axes, "groups" if axes is upper else "accepted", heights, edges)
            axes.set_xlim(0, max(len(bins), 4))
            made.counted(axes, name)
            axes.set_xticks([])
        lower.set_xticks([at + 0.5 for at in shown], [formatting.compact(bins[at].upper) for at in shown])
        made.label(lower, "records a group, up to")
        return made.image("small", "Groups by size", description)


def _cumulated(bins: Sequence[Bin]) -> list[int]:
    """Return for each bin the count up to it."""
    return [*accumulate(bin_.count for bin_ in bins)]


def _shares(bins: Sequence[Bin], first: float, last: float) -> tuple[list[float], list[float]]:
    """Return the cumulative share by value, from 0 at ``first`` to 1 at ``last``, exact at bin ends."""
    lowest, counts = bins[0].upper, _cumulated(bins)
    begin = max(first, lowest / 2 if lowest > 1 else lowest)
    xs = [min(x, last) for x in (begin, *(max(bin_.upper, first) for bin_ in bins), last)]
    return xs, [0.0, *(count / counts[-1] for count in counts), 1.0]


def _stairs(moments: Sequence[Moment], step_ms: int, name: str) -> tuple[list[float], list[float]]:
    """Return edges and values of steps, with 0 for moments that are left out."""
    edges: list[float] = [moments[0].at]
    values: list[float] = []
    for moment in moments:
        if moment.at > edges[-1]:
            edges.append(moment.at)
            values.append(0)
        edges.append(moment.at + step_ms)
        values.append(getattr(moment, name))
    return edges, values


def _time_ticks(begin: int, end: int, most: int) -> list[tuple[int, str]]:
    """Return ticks at round times in UTC, with the date at the start of each day."""
    step = next((step for step in _TIME_STEPS if (end - begin) / step <= most), None)
    if step is None:  # no step is long enough
        return []
    first = math.ceil(begin / step) * step
    ticks = []
    for at in range(first, end + 1, step):
        when = formatting.moment(at)
        if when is None:
            continue
        clock = (
            f"{when:%H:%M}"
            if step >= _MINUTE
            else f"{when:%H:%M:%S}"
            if step >= _SECOND
            else f"{when:%S.%f}"[:6]
        )
        dated = f"{formatting.date(when)} {when.year}" if step >= 91 * _DAY else formatting.date(when)
        ticks.append((at, dated if at % _DAY == 0 else clock))
    return ticks

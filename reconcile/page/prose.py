"""Sentences of the page about the numbers of an address. Pure."""

from collections.abc import Sequence
from statistics import median
from typing import Final

from reconcile.page import advice, formatting
from reconcile.page.report_data import AddressFigures, Lane, Moment, Ring
from ringfence_kafka.wording import counted

LANES_MAX: Final = 50  # lanes with a row; of more lanes, those with the highest lag


def peak(moments: Sequence[Moment], step_ms: int, strays: int = 0) -> str:
    """Return a sentence on the moment with most records. ``strays``: records outside all moments."""
    most = max(moments, key=lambda moment: moment.records)
    rate = formatting.brief(most.records * 1000 / step_ms)
    said = (
        f"Counted in intervals of {formatting.span(step_ms)}, by the records' timestamps. Most: "
        f"{most.records:,} from {formatting.time(most.at)} UTC on, {rate} a second."
    )
    if strays:
        one = strays == 1
        said += (
            f" Not drawn: {'1 record with a timestamp' if one else f'{strays:,} records with timestamps'} far from those of most "
            "others; seconds that were sent as milliseconds are in 1970."
        )
    return said


def resends(it: AddressFigures, *, of_run: bool) -> str:
    """Return sentences on the present or assumed ring, and on the need of the resends."""
    ring = it.ring
    has = (
        f"The ring of a lane {'holds' if of_run else 'would hold'} {counted(ring.capacity, 'ID')} ({ring.key})"
        if ring.capacity
        else "The ring is off (id_cache_size = 0)"
    )
    days = counted(ring.days, "day")
    if not ring.resends:
        return f"{_unmeasured(it, days)}. {has}; nothing asks for another size.{_again(ring, of_run=of_run)}"
    far = (
        f"{counted(ring.resends, 'resend')} in {days}: half of them within {counted(ring.resend_distance_p50, 'ID')}, 99\N{NO-BREAK SPACE}% within "
        f"{ring.resend_distance_p99:,}, all within {ring.resend_distance_max:,}. {has}"
    )
    catches = f"{formatting.percent(ring.confidence)} of them need {ring.needed:,}"
    if ring.recommended is None:
        far += f"; {catches}. No size is recommended: {advice.too_short(ring.span_ms)}."
    else:
        far += (
            f"; {catches}. Recommended: {ring.recommended:,}, which is the need in "
            f"{formatting.span(ring.span_ms)} and {advice.HEADROOM}\N{NO-BREAK SPACE}% headroom for traffic "
            "that was not seen."
        )
    return far + _again(ring, of_run=of_run)


def _unmeasured(it: AddressFigures, days: str) -> str:
    """Return why the resends show nothing about the ring."""
    by_hop = it.counts.get("bridge_duplicates", 0)
    others = it.counts.get("duplicates", 0) - by_hop
    elsewhere = it.anomalies.get("CROSS-LANE", 0) + it.counts.get("cross_lane", 0)
    there = [
        f"{count:,} {what}"
        for count, what in (
            (others, f"duplicate{'' if others == 1 else 's'} came at a distance that is not known"),
            (by_hop, "came over a bridge again, recognised by its hop"),
            (elsewhere, "reached another lane"),
        )
        if count > 0
    ]
    seen = "that a ring can catch was seen" if there or it.ring.overruns else "seen"
    return f"No resend {'was measured' if others > 0 else seen} in {days}{': ' if there else ''}{', '.join(there)}"


def _again(ring: Ring, *, of_run: bool) -> str:
    """Return a sentence on resends that were accepted again, for any reason of OVERRUN."""
    if not ring.overruns:
        return ""
    if not of_run:
        return f" {counted(ring.overruns, 'resend')} would come too late for it."
    was = "was" if ring.overruns == 1 else "were"
    return (
        f" {counted(ring.overruns, 'resend')} {was} accepted again: too late for it, too old (id_max_age), or the ring was cleared, "
        "resized or in memory only."
    )


def groups(it: AddressFigures) -> str:
    """Return a sentence on the number of groups, and on the largest."""
    count, records = (sum(getattr(size, name) for size in it.group_sizes) for name in ("groups", "records"))
    text = f"{counted(count, 'group')} with {counted(records, 'record')}."
    if it.groups_largest and records:
        text += f" The largest has {formatting.about(it.groups_largest[0].records / records)} of them."
    return text


def shown(every: Sequence[Lane]) -> Sequence[Lane]:
    """Return all lanes in order, or those with the highest lag."""
    if len(every) <= LANES_MAX:
        return every
    return sorted(every, key=lambda lane: (-lane.lag, -lane.records, lane.lane))[:LANES_MAX]


def lanes(it: AddressFigures, *, of_run: bool) -> str:
    """Return a few sentences on the lanes."""
    count, records = len(it.lanes), sum(lane.records for lane in it.lanes)
    if not count:
        return ""
    said = ["One lane." if count == 1 else f"{count:,} lanes."]
    if not of_run and count > 1:
        said.append("A record is in the lane of its group, or without one of its ID, whatever its partition.")
    if count > 1 and records:
        most = max(it.lanes, key=lambda lane: lane.records)
        said.append(
            f"The busiest, {most.lane}, has {formatting.about(most.records / records)} of the records; evenly it would be "
            f"{formatting.about(1 / count)}."
        )
    if of_run:
        behind = [lane.lag for lane in it.lanes if lane.lag]
        waiting = f"{sum(behind):,} records wait" if sum(behind) > 1 else "1 record waits"
        where = f", in {len(behind):,} of them" if count > 1 else ""
        said.append(f"{waiting} to be judged{where}." if behind else "Nothing waits to be judged.")
    if it.ring.capacity and any(lane.ring_used for lane in it.lanes):
        used = sorted(lane.ring_used / it.ring.capacity for lane in it.lanes)
        low, high, middle = (formatting.about(value) for value in (used[0], used[-1], median(used)))
        said.append(
            f"Of a ring {low} to {high} {'is' if of_run else 'would be'} used, the median is {middle}."
        )
    if count > LANES_MAX:
        said.append(
            f"Shown are the {LANES_MAX} with the most {'lag, then the most ' if of_run else ''}records."
        )
    return " ".join(said)

"""Figures of an audit for the report page. Pure."""

import datetime as dt
import math
from collections.abc import Sequence

from reconcile.audit.result import Audit
from reconcile.page.report_data import AddressFigures, Figures, Lane, Ring, step_ms


def figures(audit: Audit, notes: Sequence[str]) -> Figures:
    """Return the figures, with the audited topic as the only address."""
    return Figures(
        title=f"Audit of {audit.topic.name}",
        subtitle=_subtitle(audit),
        verdict="",
        bootstrap_servers=audit.bootstrap_servers,
        addresses=[_address(audit)],
        advice=list(notes),
    )


def _subtitle(audit: Audit) -> str:
    if not audit.records:
        return f"{audit.topic.part.asked}: no records"
    return f"{audit.topic.part.asked}: {audit.records:,} records, {_day(audit.first_ms)} to {_day(audit.last_ms)} (UTC)"


def _day(at: int) -> str:
    try:
        return dt.datetime.fromtimestamp(at / 1000, dt.UTC).isoformat(" ", "minutes")[:16]
    except (OverflowError, ValueError, OSError):
        return f"{at} ms"


def _address(audit: Audit) -> AddressFigures:
    found, capacity = audit.found, audit.settings.id_cache_size
    distance = found.distance
    return AddressFigures(
        name=audit.topic.name,
        counts={
            "records": audit.records,
            "with_id": found.with_id,
            "without_id": audit.records - found.with_id,
            "resends": found.resends,
            "other_partition": found.other_partition,
            "cross_lane": found.cross_lane,
            "forwarded": found.forwarded,
            "groups": audit.groups.count,
        },
        ring=Ring(
            capacity=capacity,
            recommended=audit.recommended,
            confidence=float(audit.confidence),
            resends=distance.count,
            overruns=distance.count - found.within_capacity,
            days=max(1, math.ceil(audit.days or 0)),
            resend_distance_p50=int(distance.p50),
            resend_distance_p99=int(distance.p99),
            resend_distance_max=int(distance.max),
            needed=found.needed,
            span_ms=audit.span_ms,
        ),
        step_ms=step_ms(audit.first_ms, audit.last_ms),
        moments=audit.moments,
        distances=distance.bins,
        ages=found.seconds.bins,
        group_sizes=audit.groups.sizes,
        groups_largest=audit.groups.largest,
        lanes=[
            Lane(
                lane.lane, lane.records, lane.records - lane.resends, lane.resends, 0, min(lane.ids, capacity)
            )
            for lane in found.lanes
        ],
    )

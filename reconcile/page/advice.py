"""Ring size that the measured resends need (HornetQ 37.2: "set it to a large enough size"). Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from reconcile.anomalies.names import Anomaly
from reconcile.page import formatting
from reconcile.page.report_data import Finding, Ring
from ringfence_kafka.config.addresses import MAX_ID_CACHE_SIZE
from ringfence_kafka.config.durations import duration_text
from ringfence_kafka.wording import counted, first_of

SPAN_MIN_MS: Final = 3_600_000  # a shorter time does not show the traffic of a day
HEADROOM: Final = 50
"""Percent added to the measured need, because traffic may become worse than measured."""
_DIGITS: Final = 2
_NAMES_MAX: Final = 5


def with_headroom(needed: int) -> int:
    """Return a size with :data:`HEADROOM`, rounded up to two significant digits."""
    size = -(-needed * (100 + HEADROOM) // 100)
    step = int(10 ** max(0, len(str(size)) - _DIGITS))
    return min(-(-size // step) * step, MAX_ID_CACHE_SIZE)


def recommended(needed: int, capacity: int, span_ms: int) -> int | None:
    """Return the size to configure, the present one if none was measured; None = too short a time range."""
    if span_ms < SPAN_MIN_MS:
        return None
    return with_headroom(needed) if needed else capacity


def document(ring: Ring) -> dict[str, int | None]:
    """Return ``ring`` of an address for ``summary.json``."""
    shown = ("capacity", "needed", "recommended", "enough", "span_ms", "resend_distance_p99")
    return {name: getattr(ring, name) for name in shown}


def sentences(rings: Mapping[str, Ring], overrun_max: float) -> Sequence[str]:
    """Return a sentence for each address whose ring is too small, or whose traffic is too short to judge."""
    found = []
    short: dict[str, int] = {}
    for name, ring in rings.items():
        if ring.overrun_share > overrun_max:
            found.append(f"{name}: {_overrun(ring, overrun_max)}")
        elif ring.recommended is None and ring.resends:
            short[name] = ring.span_ms
        elif ring.recommended is not None and ring.recommended > ring.capacity:
            found.append(f"{name}: {_larger(ring)}")
    if short:
        names = first_of(list(short), _NAMES_MAX)
        found.append(f"{names}: no ring size is recommended: {too_short(max(short.values()))}")
    return found


def _larger(ring: Ring) -> str:
    need = f"{_plain(formatting.percent(ring.confidence))} of the resends needed {ring.needed:,}"
    return f"set {ring.key} = {ring.recommended} (it has {ring.capacity}): {need} {over(ring.span_ms)}"


def too_short(span_ms: int) -> str:
    """Return why a time range is too short to recommend a size."""
    return (
        f"the records span {_plain(formatting.span(span_ms))}, and less than an hour does not show how far "
        "apart the resends of a day are"
    )


def over(span_ms: int) -> str:
    """Return the time range of a need, and the reason for headroom."""
    return (
        f"in {_plain(formatting.span(span_ms))}, and {HEADROOM} % headroom is for traffic that was not seen"
    )


def _overrun(ring: Ring, overrun_max: float) -> str:
    """Return a sentence on an OVERRUN share above its limit, and the size that would be enough."""
    broken = (
        f"{ring.overrun_share * 100:.3g} % of the duplicates were accepted again (OVERRUN), and reconcile.overrun_max allows "
        f"{_plain(formatting.percent(overrun_max))}"
    )
    if ring.enough <= ring.always:
        return (
            f"{broken}: no size would help, as id_cache_size = {ring.always} covers the measured distances. Look for id_max_age, "
            "a ring that was cleared, resized or in memory only, and for hops of bridges"
        )
    if ring.recommended is None:
        return (
            f"{broken}: id_cache_size = {ring.enough} would have been enough (it has {ring.always}). That is no recommendation: "
            f"{too_short(ring.span_ms)}"
        )
    need = max(ring.enough, ring.needed)
    longer = ", or a longer id_min_age" if ring.grows_from else ""
    return (
        f"{broken}: id_cache_size = {with_headroom(need)} would be enough (it has {ring.always}){longer}: the resends needed {need:,} "
        f"{over(ring.span_ms)}"
    )


def broken_promises(addresses: Mapping[str, Mapping[str, Any]]) -> Sequence[str]:
    """Return a sentence for each address whose rings dropped IDs too early."""
    return [
        f"{name}: {counted(count, 'ID')} left {'its' if count == 1 else 'their'} ring while younger than "
        f"id_min_age = {duration_text(address['promise']['id_min_age'])}: 'ringfence rings show {name}', or "
        "the workers' log of that time, names an id_cache_size_max that is enough"
        for name, address in addresses.items()
        if (count := address.get("promise", {}).get("coverage_broken", 0))
    ]


def torn(name: str, count: int, findings: Iterable[Finding]) -> Sequence[str]:
    """Return a sentence on the torn transactions of an address; empty = no torn transactions."""
    if not count:
        return []
    several = f"{name}: {counted(count, 'transaction is', 'transactions are')} torn"
    first = next((finding for finding in findings if finding.anomaly == Anomaly.TORN), None)
    if first is not None:
        place = f"{first.topic}/{first.partition}/{first.offset}"
        several += f"{': ' if count == 1 else ', the first is '}{place}, {first.detail}"
    known = "Their IDs are known, so a resend is dropped"
    what = "send what is missing as a transaction of its own, under a new ID, and report it"
    return [f"{several}. {known}: {what}"]


def _plain(text: str) -> str:
    """Replace no-break spaces for the terminal, so that a search for the text finds it."""
    return text.replace("\N{NO-BREAK SPACE}", " ")

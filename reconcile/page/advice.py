"""The size of a ring that resends ask for (HornetQ 37.2: "set it to a large enough size"). Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from reconcile.anomalies.names import Anomaly
from reconcile.page.report_data import Finding, Ring
from ringfence_kafka.wording import counted


class Seen(NamedTuple):
    """Resends of an address in some runs."""

    resends: int = 0
    needed: int = 0  # the smallest ring that would have caught the confidence of them
    p50: int = 0
    p99: int = 0
    largest: int = 0


def ring(capacity: int, confidence: float, seen: Seen, *, overruns: int, days: int) -> Ring:
    """Size of the ring, and the size that would do; without resends the present one."""
    return Ring(
        capacity=capacity,
        recommended=seen.needed if seen.resends else capacity,
        confidence=confidence,
        resends=seen.resends,
        overruns=overruns,
        days=days,
        resend_distance_p50=seen.p50,
        resend_distance_p99=seen.p99,
        resend_distance_max=seen.largest,
    )


def document(ring: Ring) -> dict[str, int]:
    """``ring`` of an address in ``summary.json``."""
    return {
        "capacity": ring.capacity,
        "recommended": ring.recommended,
        "resend_distance_p99": ring.resend_distance_p99,
    }


def sentences(addresses: Mapping[str, Mapping[str, Any]], confidence: float) -> Sequence[str]:
    """A sentence for each address of the document whose ring is too small."""
    return [
        f"{name}: {_percent(confidence)} of resends need id_cache_size = {address['ring']['recommended']}, "
        f"it has {address['ring']['capacity']}"
        for name, address in addresses.items()
        if address["ring"]["recommended"] > address["ring"]["capacity"]
    ]


def torn(name: str, count: int, findings: Iterable[Finding]) -> Sequence[str]:
    """A sentence on the torn transactions of an address, with the first one; empty = there are none."""
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


def _percent(share: float) -> str:
    return f"{share * 100:.10g} %"

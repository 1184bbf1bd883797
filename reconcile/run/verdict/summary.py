"""The result in numbers: the document, the verdict, the exit code. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from reconcile.anomalies.names import Anomaly
from reconcile.run.history.cut import AddressCut
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.wording import counted

CLEAN: Final = "clean"
ANOMALIES: Final = "anomalies"
GAP: Final = "gap"
EXIT_CODES: Final = {CLEAN: 0, ANOMALIES: 1, GAP: 3}
COUNTS: Final = (
    "input", "accepted", "duplicates", "bridge_duplicates", "quarantined", "unchecked", "forwarded", "in_flight",
)  # fmt: skip
ADDRESSES_MAX: Final = 5
"""In one line."""
BRIDGED: Final = "bridge_duplicates"
"""Each is one of the duplicates, too. Shown to people where there are any."""
_ALLOWED: Final = frozenset({Anomaly.OVERRUN, Anomaly.GAP})
"""Neither makes a night one of anomalies: a ring promises no more, and what is gone is unknown."""


def verdict(anomalies: Mapping[str, Mapping[str, int]]) -> str:
    """Of all addresses; what is certainly wrong comes before what is unknown."""
    found = {name for anomaly in anomalies.values() for name, count in anomaly.items() if count}
    if found - _ALLOWED:
        return ANOMALIES
    return GAP if Anomaly.GAP in found else CLEAN


def address_counts(
    counts: Mapping[str, int],
    anomalies: Mapping[str, int],
    ring: Mapping[str, int],
    *,
    divert: bool,
    unknown: int = 0,
) -> dict[str, Any]:
    """One address of the document.

    Args:
        counts: input, accepted, diverted, quarantined, unchecked, forwarded, waiting, unmatched, backlog, bridge_diverted,
            bridge_dropped.
        anomalies: Name → count, zeros may be missing.
        ring: Capacity, and what the advisor says.
        divert: Duplicates have a topic. Else what is missing and not lost is a duplicate.
        unknown: Those that are GAP instead of LOST.
    """
    missing = anomalies.get(Anomaly.LOST, 0) + unknown
    by_hop = counts.get("bridge_dropped", 0)
    bridged = counts.get("bridge_diverted", 0) + by_hop
    dropped = 0 if divert else max(0, counts.get("unmatched", 0) - by_hop - missing)
    return {
        "input": counts.get("input", 0),
        "accepted": counts.get("accepted", 0),
        "duplicates": counts.get("diverted", 0) + dropped + bridged,
        BRIDGED: bridged,
        "quarantined": counts.get("quarantined", 0),
        "unchecked": counts.get("unchecked", 0),
        "forwarded": counts.get("forwarded", 0),
        "in_flight": counts.get("waiting", 0) + counts.get("backlog", 0),
        "ring": dict(ring),
        "anomalies": {anomaly.value: anomalies.get(anomaly, 0) for anomaly in Anomaly},
    }


def shown(addresses: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The counts that people are shown: what came over bridges is left out where nothing of the kind was a duplicate."""
    bridged = any(address.get(BRIDGED) for address in addresses.values())
    return [count for count in COUNTS if bridged or count != BRIDGED]


def by_address(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Return messages, accepted and quarantined ones of each address in one line; of many addresses the first."""
    shown = [
        f"{name} {counted(value['input'], 'message')}, {value['accepted']:,} accepted, {value['quarantined']:,} quarantined"
        for name, value in list(counts.items())[:ADDRESSES_MAX]
    ]
    more = len(counts) - len(shown)
    return "; ".join([*shown, f"{counted(more, 'more address', 'more addresses')}"] if more else shown)


def cut_document(addresses: Mapping[str, AddressSettings], cuts: Mapping[str, AddressCut]) -> dict[str, Any]:
    """What was read: address → role → topic and offsets by partition."""
    return {
        name: {
            role: {
                "topic": topic.topic,
                "partitions": {
                    str(number): [span.read_from, span.cut] for number, span in enumerate(topic.spans)
                },
            }
            for role, topic in cuts[name].topics().items()
        }
        for name in addresses
    }

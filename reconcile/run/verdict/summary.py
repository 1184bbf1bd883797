"""Verdict, exit code and ``summary.json`` of a run. Pure."""

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
    "input", "accepted", "duplicates", "conflicts", "bridge_duplicates", "observed_duplicates", "quarantined", "unchecked", "forwarded",
    "in_flight",
)  # fmt: skip
ADDRESSES_MAX: Final = 5  # addresses named in one line
_SELDOM: Final = frozenset({"bridge_duplicates", "observed_duplicates", "conflicts"})
"""Counts that are parts of the duplicates. The terminal shows them only if they are not 0."""
_ALLOWED: Final = frozenset({Anomaly.OVERRUN, Anomaly.GAP})
"""Anomalies without effect on the verdict: OVERRUN is allowed up to ``overrun_max``, GAP means unknown."""


def verdict(addresses: Mapping[str, Mapping[str, Any]], overrun_max: float) -> str:
    """Return the verdict on all addresses of the document: certain anomalies come before gaps."""
    found = {name for item in addresses.values() for name, count in item["anomalies"].items() if count}
    if found - _ALLOWED or any(item["overrun_share"] > overrun_max for item in addresses.values()):
        return ANOMALIES
    return GAP if Anomaly.GAP in found else CLEAN


def address_counts(
    counts: Mapping[str, int],
    anomalies: Mapping[str, int],
    ring: Mapping[str, int | None],
    *,
    divert: bool,
    unknown: int = 0,
    times: tuple[int, int] | None = None,
    conflicts: int = 0,
) -> dict[str, Any]:
    """Return the entry of one address in the document.

    ``divert``: every duplicate has an output; else a missing input that is not lost is one. ``unknown`` is
    the number of GAPs that may be LOST, ``times`` the first and last timestamp of inputs (ms), ``conflicts``
    the number of duplicates whose value differs from their original's.
    """
    missing = anomalies.get(Anomaly.LOST, 0) + unknown
    by_hop = counts.get("bridge_dropped", 0)
    bridged = counts.get("bridge_diverted", 0) + by_hop
    dropped = 0 if divert else max(0, counts.get("unmatched", 0) - by_hop - missing)
    duplicates, overruns = counts.get("diverted", 0) + dropped + bridged, anomalies.get(Anomaly.OVERRUN, 0)
    return {
        "input": counts.get("input", 0),
        "accepted": counts.get("accepted", 0),
        "duplicates": duplicates,
        "conflicts": conflicts,
        "bridge_duplicates": bridged,
        "observed_duplicates": counts.get("observed", 0),
        "quarantined": counts.get("quarantined", 0),
        "unchecked": counts.get("unchecked", 0),
        "forwarded": counts.get("forwarded", 0),
        "in_flight": counts.get("waiting", 0) + counts.get("backlog", 0),
        "times": times,
        "overrun_share": overruns / (duplicates + overruns) if overruns else 0.0,
        "ring": dict(ring),
        "anomalies": {anomaly.value: anomalies.get(anomaly, 0) for anomaly in Anomaly},
    }


def promise_kept(address: AddressSettings, cut: AddressCut, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return an address's promise in time, and IDs that left too early. ``before``: the last run's."""
    if not address.id_min_age:
        return {}
    total = sum(said.broken for said in cut.recorded.values())
    earlier = int(before.get("promise", {}).get("coverage_broken_total", 0))
    return {
        "promise": {
            "id_min_age": address.id_min_age,
            "id_cache_size_max": address.id_cache_size_max,
            "coverage_broken": total - earlier if total >= earlier else total,
            "coverage_broken_total": total,
        }
    }


def shown(addresses: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the counts to show, without those of bridges, conflicts and observed duplicates if they are 0."""
    there = {count for count in _SELDOM if any(address.get(count) for address in addresses.values())}
    return [count for count in COUNTS if count not in _SELDOM - there]


def by_address(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Return messages, accepted and quarantined ones of the first addresses, in one line."""
    shown = [
        f"{name} {counted(value['input'], 'message')}, {value['accepted']:,} accepted, {value['quarantined']:,} quarantined"
        for name, value in list(counts.items())[:ADDRESSES_MAX]
    ]
    more = len(counts) - len(shown)
    return "; ".join([*shown, f"{counted(more, 'more address', 'more addresses')}"] if more else shown)


def cut_document(addresses: Mapping[str, AddressSettings], cuts: Mapping[str, AddressCut]) -> dict[str, Any]:
    """Return the offsets that were read: address → role → topic and partitions."""
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

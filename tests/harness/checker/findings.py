"""Findings of a checker: anomalies by name, each with its places."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tests.harness.history import Place


class Anomaly(StrEnum):
    """Anomalies of the design's table, in the order of a report."""

    LOST = "LOST"
    """An input neither accepted, duplicate nor quarantined; or acknowledged to its producer and not in the input."""
    DOUBLED = "DOUBLED"
    """One input with two fates: accepted twice, say, or accepted and diverted."""
    PHANTOM = "PHANTOM"
    """An output without such an input, or an input that nobody sent."""
    REORDERED = "REORDERED"
    """A group's accepted records not in their order of arrival in one input partition, or that order is not to be
    seen."""
    FORGOTTEN = "FORGOTTEN"
    """Two inputs of one ID accepted in one lane within the ring's promise."""
    OVERRUN = "OVERRUN"
    """The same beyond the promise, or possibly beyond it: allowed."""
    CROSS_LANE = "CROSS-LANE"
    """Two inputs of one ID accepted in two lanes: the resend had another group."""
    WRONG_VERDICT = "WRONG-VERDICT"
    """A record was called duplicate, and no original exists."""
    CORRUPTED = "CORRUPTED"
    """Key, value, timestamp or user headers changed on the way."""
    TORN = "TORN"
    GAP = "GAP"
    """Retention deleted the evidence: unknown."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One anomaly."""

    anomaly: Anomaly
    places: tuple[Place, ...]
    """The input first, if there is one; then the other records that it concerns."""
    text: str

    def __str__(self) -> str:
        return f"{self.anomaly} {self.text}"


def counts(findings: Iterable[Finding]) -> dict[str, int]:
    found = Counter(finding.anomaly for finding in findings)
    return {anomaly.value: found[anomaly] for anomaly in Anomaly}

"""Numbers of the page, from a run or an audit, for :mod:`reconcile.page.document`. Pure.

Their size does not grow with the data: distributions are in bins, and only the first findings and the largest
groups have names.

**Resend distance** of a repeated ID: the smallest ring that would have caught it. It counts the IDs that the
lane accepted from the original (included) up to the resend. It is 1 for two sends in a row (HornetQ 37.2: the
n+1st ID overwrites the 0th).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

FINDINGS_MAX: Final = 100  # findings of each anomaly of an address; the Parquet folder has all
NAME_MAX: Final = 512
"""Length limit of IDs and groups (bytes) and details (characters); the Parquet folder has them whole."""
GROUPS_MAX: Final = 20  # largest groups with names
RUNS_MAX: Final = 30
SECOND_MS: Final = 1_000
DAY_MS: Final = 86_400 * SECOND_MS
MOMENTS_MAX: Final = 200
STEPS_MS: Final = tuple(number * SECOND_MS for number in (1, 10, 60, 300, 900, 3_600, 21_600, 86_400))
"""Possible lengths of a moment, in ms. Longer ones are multiples of a day."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Records of a time interval, by timestamps of inputs."""

    at: int  # start of the interval, ms since the epoch
    records: int
    accepted: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class Bin:
    """Bin of a distribution."""

    upper: float  # highest value of the bin, which begins above the bin before
    count: int


@dataclass(frozen=True, slots=True)
class GroupBin:
    """Groups whose number of records falls into one bin."""

    upper: int
    groups: int
    records: int


@dataclass(frozen=True, slots=True)
class LargeGroup:
    """One of the largest groups."""

    name: str  # as text, with bytes that are not text escaped
    records: int


@dataclass(frozen=True, slots=True)
class Lane:
    """Lane of an address; for an audit, as Ringfence would fill it."""

    lane: int
    records: int
    accepted: int
    duplicates: int
    lag: int  # records that arrived but are not judged yet
    ring_used: int  # IDs in its ring, at most its capacity
    resends: int = 0  # resends that count for Ring
    resend_distance_p99: int = 0
    resend_distance_max: int = 0


@dataclass(frozen=True, slots=True)
class Ring:
    """Present ring, and the ring that the resends need."""

    capacity: int  # id_cache_size, or id_cache_size_max if id_min_age lets the ring grow
    recommended: int | None
    """``needed`` with headroom; the capacity if no resend was seen; None = less than an hour was seen."""
    confidence: float
    resends: int  # repeated IDs that count here, dropped or accepted beyond the promise
    overruns: int
    days: int  # days of evidence
    resend_distance_p50: int
    resend_distance_p99: int
    resend_distance_max: int  # 0 = no resends
    needed: int = 0  # smallest ring that would have caught ``confidence`` of the resends
    span_ms: int = 0  # time from first to last record of the evidence
    overrun_share: float = 0.0  # share of this run's duplicates that were accepted again
    enough: int = 0
    """Smallest ring that would have kept OVERRUN within reconcile.overrun_max; 0 = not measured."""
    overrun: bool = False  # whether overrun_share exceeds reconcile.overrun_max
    grows_from: int = 0  # id_cache_size if id_min_age lets the ring grow; 0 = it does not grow

    @property
    def key(self) -> str:
        """Configuration key of the capacity."""
        return "id_cache_size_max" if self.grows_from else "id_cache_size"

    @property
    def always(self) -> int:
        """IDs that the ring keeps at any age."""
        return self.grows_from or self.capacity


@dataclass(frozen=True, slots=True)
class Finding:
    """One anomaly, with its places."""

    anomaly: str
    topic: str
    partition: int | None
    offset: int | None
    out_topic: str | None
    out_partition: int | None
    out_offset: int | None
    other_partition: int | None
    other_offset: int | None
    id: str | None
    group: str | None
    detail: str
    gone: bool = False  # the record at its first place was deleted
    timestamp: int | None = None  # timestamp of its input, ms


@dataclass(frozen=True, slots=True)
class AddressFigures:
    """Address of a run, or audited topic."""

    name: str
    counts: Mapping[str, int]  # in display order
    ring: Ring
    step_ms: int  # length of the moments
    moments: Sequence[Moment] = ()  # in order, without empty intervals
    distances: Sequence[Bin] = ()  # resend distances, in IDs
    ages: Sequence[Bin] = ()  # seconds between a resend and its original
    group_sizes: Sequence[GroupBin] = ()
    groups_largest: Sequence[LargeGroup] = ()
    lanes: Sequence[Lane] = ()
    anomalies: Mapping[str, int] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    strays: int = 0  # records with timestamps too far from the others for a moment


@dataclass(frozen=True, slots=True)
class PastRun:
    """One of the last runs, over all its addresses."""

    number: int
    began: str  # ISO 8601, UTC; empty = unknown
    verdict: str
    messages: int
    duplicates: int
    anomalies: int
    seconds: float | None = None
    """Time from the cluster's answer to the verdict; None = an earlier version did not measure it."""

    @property
    def duplicates_share(self) -> float:
        """Share of duplicates in the messages."""
        return self.duplicates / self.messages if self.messages else 0.0


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of the report page."""

    title: str
    subtitle: str  # time and range of the run
    verdict: str  # clean, anomalies or gap; empty for an audit
    bootstrap_servers: str  # for the commands that print a record
    addresses: Sequence[AddressFigures]
    advice: Sequence[str] = ()  # whole sentences: meaning of the numbers
    runs: Sequence[PastRun] = ()  # last RUNS_MAX runs in order, with this one; empty for an audit

    def to_json(self) -> str:
        """Return the text of ``figures.json``."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Figures":
        """Parse the text of ``figures.json``."""
        kept: dict[str, Any] = json.loads(text)
        kept["addresses"] = tuple(_address(item) for item in kept["addresses"])
        kept["advice"] = tuple(kept["advice"])
        kept["runs"] = tuple(PastRun(**item) for item in kept.get("runs", ()))
        return cls(**kept)


_PARTS: Final = {
    "moments": Moment,
    "distances": Bin,
    "ages": Bin,
    "group_sizes": GroupBin,
    "groups_largest": LargeGroup,
    "lanes": Lane,
    "findings": Finding,
}


def _address(kept: dict[str, Any]) -> AddressFigures:
    parts = {name: tuple(kind(**item) for item in kept[name]) for name, kind in _PARTS.items()}
    return AddressFigures(**{**kept, **parts, "ring": Ring(**kept["ring"])})


def step_ms(first_ms: int, last_ms: int) -> int:
    """Return the shortest interval with which :data:`MOMENTS_MAX` moments cover these times."""
    for step in STEPS_MS:
        if last_ms // step - first_ms // step < MOMENTS_MAX:
            return step
    return -(-(last_ms - first_ms) // (DAY_MS * (MOMENTS_MAX - 1))) * DAY_MS

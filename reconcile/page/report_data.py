"""Numbers of the page, from a run or an audit, for :mod:`reconcile.page.document`. Pure.

Nothing here grows with the data: distributions are in bins, and only the first findings and the largest
groups are named.

**Resend distance** of a repeated ID: the smallest ring that would have caught it. It counts the IDs that the
lane accepted from the original, included, up to the resend. Sent twice in a row it is 1 (HornetQ 37.2: the
n+1st ID overwrites the 0th).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

FINDINGS_MAX: Final = 100  # of each anomaly of an address; all of them are in the Parquet folder
NAME_MAX: Final = 512
"""Bytes of an ID or a group, and characters of a detail, that are named; the Parquet folder has them whole."""
GROUPS_MAX: Final = 20  # the largest groups are named
RUNS_MAX: Final = 30
SECOND_MS: Final = 1_000
DAY_MS: Final = 86_400 * SECOND_MS
MOMENTS_MAX: Final = 200
STEPS_MS: Final = tuple(number * SECOND_MS for number in (1, 10, 60, 300, 900, 3_600, 21_600, 86_400))
"""How long the stretches of time may be in which records are counted; beyond the last, some days."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A stretch of time, by the timestamps of inputs."""

    at: int  # its beginning, ms since the epoch
    records: int
    accepted: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class Bin:
    """One bin of a distribution."""

    upper: float  # values up to this one, and above the bin before
    count: int


@dataclass(frozen=True, slots=True)
class GroupBin:
    """Groups of up to so many records, and more than the bin before."""

    upper: int
    groups: int
    records: int


@dataclass(frozen=True, slots=True)
class LargeGroup:
    """One of the largest groups."""

    name: str  # as text; what is no text is shown escaped
    records: int


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane; of an audited topic, as Ringfence would fill it."""

    lane: int
    records: int
    accepted: int
    duplicates: int
    lag: int  # records that came in and are not judged yet
    ring_used: int  # IDs that its ring holds; at most its capacity
    resends: int = 0  # those that Ring rests on
    resend_distance_p99: int = 0
    resend_distance_max: int = 0


@dataclass(frozen=True, slots=True)
class Ring:
    """The present ring, and the one that the resends need."""

    capacity: int  # id_cache_size; id_cache_size_max, where id_min_age lets the ring grow
    recommended: int | None
    """``needed`` with headroom; the capacity, where no resend was seen; None = less than an hour was seen."""
    confidence: float
    resends: int  # repeated IDs that this rests on, whether they were dropped or accepted beyond the promise
    overruns: int
    days: int  # of evidence
    resend_distance_p50: int
    resend_distance_p99: int
    resend_distance_max: int  # 0 where none was seen
    needed: int = 0  # the smallest ring that would have caught ``confidence`` of the resends
    span_ms: int = 0  # between the first and the last record of the evidence
    overrun_share: float = 0.0  # of the duplicates of this run: those that were accepted again
    enough: int = 0
    """The smallest ring with which OVERRUN of this run would be within reconcile.overrun_max; 0 = not measured."""
    overrun: bool = False  # more of them than reconcile.overrun_max
    grows_from: int = 0  # id_cache_size, where id_min_age lets the ring grow; 0 = it does not grow

    @property
    def key(self) -> str:
        """The name of the capacity in the configuration."""
        return "id_cache_size_max" if self.grows_from else "id_cache_size"

    @property
    def always(self) -> int:
        """IDs that it knows whatever their age."""
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
    gone: bool = False  # the first place that it names holds nothing any more
    timestamp: int | None = None  # of its input, ms


@dataclass(frozen=True, slots=True)
class AddressFigures:
    """One address of a run, or one audited topic."""

    name: str
    counts: Mapping[str, int]  # in the order in which they are shown
    ring: Ring
    step_ms: int  # of the moments
    moments: Sequence[Moment] = ()  # in order; a stretch in which nothing came is left out
    distances: Sequence[Bin] = ()  # resend distances, in IDs
    ages: Sequence[Bin] = ()  # seconds between a resend and what it repeats
    group_sizes: Sequence[GroupBin] = ()
    groups_largest: Sequence[LargeGroup] = ()
    lanes: Sequence[Lane] = ()
    anomalies: Mapping[str, int] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    strays: int = 0  # records with timestamps so far from those of most that no moment has them


@dataclass(frozen=True, slots=True)
class PastRun:
    """One of the last runs, over all of its addresses."""

    number: int
    began: str  # ISO 8601, UTC; empty where it is not known
    verdict: str
    messages: int
    duplicates: int
    anomalies: int
    seconds: float | None = (
        None  # from the cluster's answer to the verdict; None = a version that did not measure it
    )

    @property
    def duplicates_share(self) -> float:
        """Share of the duplicates among the messages."""
        return self.duplicates / self.messages if self.messages else 0.0


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of the report page."""

    title: str
    subtitle: str  # when, and over what
    verdict: str  # clean, anomalies, gap; empty for an audit
    bootstrap_servers: str  # for the commands that show a record
    addresses: Sequence[AddressFigures]
    advice: Sequence[str] = ()  # whole sentences: what the numbers mean for the reader
    runs: Sequence[PastRun] = ()  # the last RUNS_MAX, this one included, in order; none of an audit

    def to_json(self) -> str:
        """Return the text of ``figures.json``."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Figures":
        """Read the text of ``figures.json``."""
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
    """Return the shortest step with which :data:`MOMENTS_MAX` moments cover these times."""
    for step in STEPS_MS:
        if last_ms // step - first_ms // step < MOMENTS_MAX:
            return step
    return -(-(last_ms - first_ms) // (DAY_MS * (MOMENTS_MAX - 1))) * DAY_MS

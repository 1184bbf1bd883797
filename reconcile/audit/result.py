"""Results of an audit, and the document of ``--json``. Pure. docs/audit.md explains each number."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any, Final

from reconcile.audit.partitioner import chosen
from reconcile.audit.topic import Topic
from reconcile.page import advice
from reconcile.page.advice import SPAN_MIN_MS
from reconcile.page.report_data import DAY_MS, Bin, GroupBin, LargeGroup, Moment
from ringfence_kafka.config.settings import AddressDefaults
from ringfence_kafka.protocol.lane_layout import LaneLayout

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Spread:
    """Distribution of some values."""

    count: int = 0
    p50: float = 0
    p99: float = 0
    max: float = 0
    bins: Sequence[Bin] = ()


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """Counts of one partition."""

    partition: int
    records: int = 0
    with_id: int = 0
    keyed: int = 0
    tombstones: int = 0
    envelopes: int = 0  # records that are transactions
    bridged: int = 0  # records that came over bridges
    resends: int = 0


@dataclass(frozen=True, slots=True)
class LaneCount:
    """Counts of one lane, as Ringfence would fill it."""

    lane: int
    records: int
    ids: int  # distinct IDs
    resends: int  # records that an endless ring would drop
    forwarded: int  # records in a partition of another lane


@dataclass(frozen=True, slots=True)
class Resends:
    """Resends by one kind of ID."""

    id_from: str | tuple[str, ...]  # value of duplicate_id_from
    with_id: int = 0
    resends: int = 0  # records whose ID occurred before
    cross_lane: int = 0
    """Resends with another group whose home lane had not seen the ID yet, so they cannot be recognized."""
    expired: int = 0
    """Resends later than ``id_max_age`` after the first record of their ID."""
    other_partition: int = 0  # in another partition than the first record of the ID
    other_group: int = 0  # with another group than the first record of the ID
    other_value: int = 0  # with another value than the first record of the ID
    distance: Spread = Spread()  # in IDs; like ``messages`` without cross-lane and expired resends
    messages: Spread = Spread()
    seconds: Spread = Spread()
    needed: int = 0  # smallest ring for the wanted confidence; 0 = no resends
    within_needed: int = 0  # resends that a ring of this size would drop
    within_capacity: int = 0  # resends that the configured id_cache_size would drop
    lanes: Sequence[LaneCount] = ()

    @property
    def forwarded(self) -> int:
        """Number of records that Ringfence would forward to another lane."""
        return sum(lane.forwarded for lane in self.lanes)


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of the records."""

    count: int = 0
    records: int = 0  # records with a group
    largest: Sequence[LargeGroup] = ()
    sizes: Sequence[GroupBin] = ()

    def share(self, first: int) -> float:
        """Return the share of records in the ``first`` largest groups."""
        return sum(group.records for group in self.largest[:first]) / self.records if self.records else 0.0


@dataclass(frozen=True, slots=True)
class HeaderSeen:
    """Header found in a sample of the records."""

    name: str
    records: int
    values: int  # approximate number of distinct values


@dataclass(frozen=True, slots=True)
class Transactions:
    """Transactions of the topic."""

    count: int = 0
    malformed: int = 0  # unreadable ones, which Ringfence would refuse
    parts: int = 0
    part_ids: int = 0  # parts with an ID
    without_id: int = 0  # transactions without any ID, also in parts: they would pass unchecked
    largest: int = 0  # highest number of parts in one transaction
    addresses: Mapping[str, int] = field(default_factory=dict)
    """Address → number of parts, for the addresses with most parts."""


@dataclass(frozen=True, slots=True)
class Bridges:
    """Records that came over bridges."""

    records: int = 0
    malformed: int = 0  # records with an unreadable hop, which Ringfence would refuse
    resends: int = 0  # records with a repeated hop, which Ringfence would drop with any ring
    ids_ignored: int = 0  # records whose own ID is not checked
    bridges: Mapping[str, int] = field(default_factory=dict)
    """Bridge → number of records, for the bridges with most records."""


@dataclass(frozen=True, slots=True)
class Audit:
    """Result of an audit."""

    topic: Topic
    bootstrap_servers: str
    settings: AddressDefaults
    """Settings used to read it: those of the address or the defaults, with options of the command line."""
    configured: str  # address whose input the topic is; empty = none
    confidence: Fraction
    partitions: Sequence[PartitionCount] = ()
    first_ms: int = 0
    last_ms: int = 0  # timestamps without far-off ones, ms; 0 = no records
    far_off: int = 0  # records with a timestamp far from nearly all others
    found: Resends = Resends("header")
    others: Sequence[Resends] = ()  # results by key and by value, if no record has an ID
    groups: Groups = Groups()
    sampled_keys: int = 0
    partitioners: Mapping[str, float] | None = None
    """Partitioner → share of the sampled keyed records that it explains; None = unknown."""
    headers: Sequence[HeaderSeen] = ()
    headers_sample: int = 0  # records in the sample for headers
    moments: Sequence[Moment] = ()
    transactions: Transactions = Transactions()
    bridges: Bridges = Bridges()

    @property
    def layout(self) -> LaneLayout:
        """Lanes that the address has, or would have; at most one for each partition."""
        return LaneLayout.from_setting(min(self.settings.lanes, self.topic.partitions), self.topic.partitions)

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(partition.records for partition in self.partitions)

    @property
    def partitioner(self) -> str:
        """Partitioner to configure."""
        return chosen(self.partitioners or {}, self.topic.partitions, self.settings.partitioner)

    @property
    def recommended(self) -> int | None:
        """``id_cache_size`` to configure, see :meth:`size`."""
        return self.size(self.found)

    def size(self, found: Resends) -> int | None:
        """Return the ring size with headroom, without resends the configured; None = too short a time range."""
        return advice.recommended(found.needed, self.settings.id_cache_size, self.span_ms)

    @property
    def span_ms(self) -> int:
        """Time between the first and the last timestamp, in ms."""
        return self.last_ms - self.first_ms

    @property
    def days(self) -> float | None:
        """Days between the first and the last timestamp; None = too short a time."""
        return self.span_ms / DAY_MS if self.span_ms >= SPAN_MIN_MS else None

    def a_day(self, count: int) -> float | None:
        """Return a count for each day; None = too short a time."""
        return None if self.days is None else count / self.days

    @property
    def lane_skew(self) -> float:
        """Records of the busiest lane, divided by the mean of all lanes."""
        loads = [lane.records for lane in self.found.lanes]
        return max(loads) * self.layout.lanes / sum(loads) if sum(loads) else 0.0

    def sum(self, name: str) -> int:
        """Return a count summed over all partitions."""
        return sum(int(getattr(partition, name)) for partition in self.partitions)


def document(audit: Audit, notes: Sequence[str], snippet: str) -> dict[str, Any]:
    """Return the document of ``--json`` and audit.json."""
    part, found = audit.topic.part, audit.found
    return {
        "format": FORMAT,
        "topic": audit.topic.name,
        "address": audit.configured or None,
        "cleanup_policy": audit.topic.cleanup_policy,
        "usable_as_input": not audit.topic.compacted,
        "sample": {
            "asked": part.asked,
            "whole": part.whole,
            "offsets": part.offsets,
            "partitions": {
                str(number): {**audit.topic.extents[number]._asdict(), "read_from": begin, "read_to": end}
                for number, (begin, end) in part.spans.items()
            },
            "first_ms": audit.first_ms,
            "last_ms": audit.last_ms,
            "days": audit.days,
            "far_off": audit.far_off,
        },
        "records": audit.records,
        "with_id": found.with_id,
        "without_id": audit.records - found.with_id,
        "keyed": audit.sum("keyed"),
        "tombstones": audit.sum("tombstones"),
        "partitions": [asdict(partition) for partition in audit.partitions],
        "transactions": asdict(audit.transactions),
        "bridges": asdict(audit.bridges),
        "resends": _resends(audit, found),
        "instead": [_resends(audit, other) for other in audit.others],
        "groups": {
            **asdict(audit.groups), "largest_share": audit.groups.share(1), "top_10_share": audit.groups.share(10),
        },
        "lanes": [asdict(lane) for lane in found.lanes],
        "lane_skew": audit.lane_skew,
        "partitioner": {
            "recommended": audit.partitioner,
            "sampled_keys": audit.sampled_keys,
            "explained": audit.partitioners,
        },
        "headers_seen": {"records": audit.headers_sample, "headers": [asdict(header) for header in audit.headers]},
        "ring": {
            "lanes": audit.layout.lanes,
            "capacity": audit.settings.id_cache_size,
            "needed": found.needed,
            "recommended": audit.recommended,
            "headroom": advice.HEADROOM / 100,
            "confidence": float(audit.confidence),
            "dropped_a_day": audit.a_day(found.within_needed),
            "forwarded_share": found.forwarded / audit.records if audit.records else 0.0,
        },
        "notes": list(notes),
        "toml": snippet,
    }  # fmt: skip


def _resends(audit: Audit, found: Resends) -> dict[str, Any]:
    made = asdict(found)
    del made["lanes"]
    return {
        **made,
        "share": found.resends / audit.records if audit.records else 0.0,
        "a_day": audit.a_day(found.resends),
    }

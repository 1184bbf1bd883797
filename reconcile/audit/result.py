"""Results of an audit: the document of ``--json``. Pure. docs/audit.md explains each number."""

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
    """The spread of some values."""

    count: int = 0
    p50: float = 0
    p99: float = 0
    max: float = 0
    bins: Sequence[Bin] = ()


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """Counts of one partition."""

    partition: int
    records: int
    with_id: int
    keyed: int
    tombstones: int
    envelopes: int = 0  # records that are transactions
    bridged: int = 0  # records that came over bridges
    resends: int = 0


@dataclass(frozen=True, slots=True)
class LaneCount:
    """Counts of one lane, as Ringfence would fill it."""

    lane: int
    records: int
    ids: int  # different ones
    resends: int  # that a ring without end would drop
    forwarded: int  # of the records: found in another partition


@dataclass(frozen=True, slots=True)
class Resends:
    """Resends by one kind of ID."""

    id_from: str | tuple[str, ...]  # as duplicate_id_from
    with_id: int = 0
    resends: int = 0  # records whose ID occurred before
    cross_lane: int = 0
    """Resends of another group whose home is another lane, which had not seen the ID yet: Ringfence cannot recognise them."""
    expired: int = 0
    """Resends later than ``id_max_age`` after the first of their ID, which then no longer counts."""
    other_partition: int = 0  # in another partition than the first of their ID
    other_group: int = 0  # of another group than the first of their ID
    other_value: int = 0  # with another value than the first of their ID
    distance: Spread = Spread()  # in IDs; of all but the cross-lane and the expired ones, as is the next
    messages: Spread = Spread()
    seconds: Spread = Spread()
    needed: int = 0  # the smallest ring for the confidence asked for; 0 where there is nothing to know
    within_needed: int = 0  # resends that a ring of that size would drop
    within_capacity: int = 0  # resends that the present id_cache_size would drop
    lanes: Sequence[LaneCount] = ()

    @property
    def forwarded(self) -> int:
        """Records that Ringfence would forward to another lane."""
        return sum(lane.forwarded for lane in self.lanes)


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of the records."""

    count: int = 0
    records: int = 0  # that have one
    largest: Sequence[LargeGroup] = ()
    sizes: Sequence[GroupBin] = ()

    def share(self, first: int) -> float:
        """Return the share of records in the largest groups."""
        return sum(group.records for group in self.largest[:first]) / self.records if self.records else 0.0


@dataclass(frozen=True, slots=True)
class HeaderSeen:
    """A header of a sample of the records."""

    name: str
    records: int
    values: int  # different ones, roughly


@dataclass(frozen=True, slots=True)
class Transactions:
    """Transactions of the topic."""

    count: int = 0
    malformed: int = 0  # others that cannot be read: Ringfence would refuse them
    parts: int = 0
    part_ids: int = 0  # parts that have an ID
    without_id: int = 0  # transactions that have none, and whose parts have none: they would pass unchecked
    largest: int = 0  # parts of the one that has most
    addresses: Mapping[str, int] = field(default_factory=dict)
    """Parts by their address; of the addresses that have most."""


@dataclass(frozen=True, slots=True)
class Bridges:
    """Records that came over bridges."""

    records: int = 0
    malformed: int = 0  # others, whose hop cannot be read: Ringfence would refuse them
    resends: int = 0  # records whose hop was there already: Ringfence would drop them, whatever ring it has
    ids_ignored: int = 0  # records whose own ID is not to be looked at
    bridges: Mapping[str, int] = field(default_factory=dict)
    """Records by their bridge; of the bridges that have most."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit."""

    topic: Topic
    bootstrap_servers: str
    settings: AddressDefaults
    """As it was read by: those of its address, or the defaults, and what the command line said."""
    configured: str  # the address of which it is the input; empty = none
    confidence: Fraction
    partitions: Sequence[PartitionCount] = ()
    first_ms: int = 0
    last_ms: int = 0  # Timestamps; 0 where there is no record. Those far from nearly all are left out.
    far_off: int = 0  # records with such a timestamp
    found: Resends = Resends("header")
    others: Sequence[Resends] = ()  # by key and by value, where no record has an ID
    groups: Groups = Groups()
    sampled_keys: int = 0
    partitioners: Mapping[str, float] | None = None
    """Share of the sampled keyed records that each explains; None = unknown."""
    headers: Sequence[HeaderSeen] = ()
    headers_sample: int = 0  # so many records were looked at for them
    moments: Sequence[Moment] = ()
    transactions: Transactions = Transactions()
    bridges: Bridges = Bridges()

    @property
    def layout(self) -> LaneLayout:
        """The lanes that its address has, or would have; at most one for each partition."""
        return LaneLayout.of(min(self.settings.lanes, self.topic.partitions), self.topic.partitions)

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(partition.records for partition in self.partitions)

    @property
    def partitioner(self) -> str:
        """The partitioner to configure."""
        return chosen(self.partitioners or {}, self.topic.partitions, self.settings.partitioner)

    @property
    def recommended(self) -> int | None:
        """The ``id_cache_size`` to configure, as :func:`size` says."""
        return self.size(self.found)

    def size(self, found: Resends) -> int | None:
        """Return the ring for these resends with headroom, without any the present one; None = the span is too short."""
        return advice.recommended(found.needed, self.settings.id_cache_size, self.span_ms)

    @property
    def span_ms(self) -> int:
        """Time between the first and the last timestamp."""
        return self.last_ms - self.first_ms

    @property
    def days(self) -> float | None:
        """Days that the timestamps span; None = too short."""
        return self.span_ms / DAY_MS if self.span_ms >= SPAN_MIN_MS else None

    def a_day(self, count: int) -> float | None:
        """Return this count for each day; None = not known."""
        return None if self.days is None else count / self.days

    @property
    def lane_skew(self) -> float:
        """Records of the busiest lane, divided by the mean."""
        loads = [lane.records for lane in self.found.lanes]
        return max(loads) * self.layout.lanes / sum(loads) if sum(loads) else 0.0

    def sum(self, name: str) -> int:
        """Return a count of all partitions."""
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
            "count": audit.groups.count,
            "records": audit.groups.records,
            "largest_share": audit.groups.share(1),
            "top_10_share": audit.groups.share(10),
            "largest": [asdict(group) for group in audit.groups.largest],
            "sizes": [asdict(size) for size in audit.groups.sizes],
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

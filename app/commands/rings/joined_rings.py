"""Ring and hop memory of a lane that gets the IDs and hops of several former lanes. Pure."""

import heapq
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agents.rules.lane_rules import limits_of
from app.commands.rings.regroup_plan import Regrouping
from ringfence_kafka.config.settings import AddressSettings
from tables import codec
from tables.codec import Meta, Origin, Route, next_key
from tables.hops import OFFSETS_MAX, Held
from tables.promise import Promise

Records = dict[bytes, bytes]


class Entry(NamedTuple):
    """Changelog record to write."""

    key: bytes
    value: bytes | None
    """None = tombstone."""
    timestamp: int | None = None
    """Milliseconds since the epoch; None = now."""


@dataclass(frozen=True, slots=True)
class Content:
    """Present content of a changelog partition."""

    meta: Meta | None = None
    slots: Records = field(default_factory=dict)
    """Ring records, key → value."""
    accepted_at: Mapping[bytes, int] = field(default_factory=dict)
    """Key of a ring record → its timestamp."""
    hops: Records = field(default_factory=dict)


class _Known(NamedTuple):
    """ID of a former lane. Tuples compare in the order of acceptance."""

    accepted_at: int
    lane: int
    sequence: int
    id: bytes
    origin: Origin
    digest: int


@dataclass(frozen=True, slots=True)
class NewLane:
    """New content of a lane's changelog partition."""

    meta: Meta
    entries: list[Entry]
    """All records except the meta record, which comes last."""
    ids: int
    capacity_before: int
    """Largest capacity of its former lanes."""


def _known(lane: int, content: Content) -> Iterator[_Known]:
    """Yield a ring's live IDs by sequence. If the clock went back, an ID gets the time of the one before."""
    meta = content.meta
    if meta is None:
        return
    low, latest = max(meta.floor, meta.head - meta.capacity, 0), 0
    slots = {
        slot.sequence: (slot, content.accepted_at.get(key, 0))
        for key, value in content.slots.items()
        if low <= (slot := codec.decode_ring(key, value)).sequence < meta.head
    }
    for sequence in sorted(slots):
        slot, accepted_at = slots[sequence]
        latest = max(latest, accepted_at)
        yield _Known(latest, lane, sequence, slot.id, slot.origin, slot.digest)


def _newest(contents: Mapping[int, Content], capacity: int) -> list[_Known]:
    """Return the newest IDs of several rings, oldest first. An ID counts once, with its last acceptance."""
    found: dict[bytes, _Known] = {}
    for item in heapq.merge(*(_known(lane, content) for lane, content in contents.items())):
        found.pop(item.id, None)
        found[item.id] = item
    return list(found.values())[-capacity:] if capacity else []


def _hops(contents: Iterable[Content], capacity: int) -> Records:
    """Merge the hop memories of several lanes.

    All forwarded records are judged, so each lane has seen everything below the highest floor of a route.
    """
    found: dict[Route, tuple[int, set[int]]] = {}
    for content in contents:
        for record in content.hops.items():
            route, floor, runs = codec.decode_hops(*record)
            known_floor, above = found.get(route, (0, set()))
            above.update(Held.restored(floor, runs, OFFSETS_MAX).above)
            found[route] = (max(floor, known_floor), above)
    most = min(capacity, OFFSETS_MAX) or OFFSETS_MAX
    return {
        codec.hops_key(route): codec.hops_value(
            floor, sorted(item for item in above if item >= floor)[-most:]
        )
        for route, (floor, above) in found.items()
    }


class Forwarded(NamedTuple):
    """Forward topic of an address."""

    topic: str
    topic_id: str
    ends: Mapping[int, int]
    """Ends of its partitions, below which all is judged."""


def new_lane(
    regrouping: Regrouping,
    lane: int,
    contents: Mapping[int, Content],
    own: Content,
    address: AddressSettings,
    forwarded: Forwarded | None,
) -> NewLane:
    """Return the records of a new lane.

    Sequences start above those of all its former lanes, which invalidates everything in its changelog
    partition. ``contents``: former lanes whose IDs it gets; ``own``: present content of its changelog partition.
    """
    capacity, input_topic = address.ring_capacity, address.input_topic
    promise = limits_of(address).promise
    metas = [content.meta for content in contents.values() if content.meta is not None]
    first = metas[0]
    known = _newest(contents, capacity)
    if lane in contents and own.meta is not None and _same(own, own.meta, known, capacity):
        slots: list[Entry] = []
        head, floor, older = own.meta.head, own.meta.floor, own.meta.older
    else:
        heads = [meta.head for meta in (*metas, own.meta) if meta is not None]
        base = max([*heads, *(codec.sequence_of(slot) + 1 for slot in own.slots.values())])
        slots = _slots(known, own, capacity, base)
        head, floor, older = base + len(known), base, []
    hops = _hops(contents.values(), capacity)
    offsets = {}
    for partition in regrouping.wanted.partitions_of(lane):
        meta = contents[regrouping.former.lane_of(partition)].meta
        if meta is not None and (offset := meta.next_of(input_topic, partition)) is not None:
            offsets[next_key(input_topic, partition, regrouping.after)] = offset
    ids = {topic: id_ for meta in metas for topic, id_ in meta.topic_ids.items()}
    if forwarded is not None and lane in forwarded.ends:
        offsets[next_key(forwarded.topic, lane, regrouping.after)] = forwarded.ends[lane]
        ids |= {forwarded.topic: forwarded.topic_id}
    ages = [meta.max_age_ms for meta in metas if meta.rules] or [0]
    meta = first._replace(
        capacity=capacity,
        head=head,
        floor=floor,
        next_offsets=offsets,
        partition_counts={
            **{topic: count for meta in metas for topic, count in meta.partition_counts.items()},
            input_topic: regrouping.partitions,
        },
        incarnation=secrets.token_hex(8),
        older=older,
        persistent=all(meta.persistent for meta in metas),
        topic_ids=ids,
        bridged=any(meta.bridged for meta in metas) or bool(own.meta and own.meta.bridged),
        max_age_ms=max(ages) if all(ages) else 0,
        rules=next((meta.rules for meta in metas if meta.rules), {}),
        lanes=regrouping.after,
        promise=promise and _joined_promise(promise, metas, contents, known),
    )
    entries = [*slots, *_changes(own.hops, hops)]
    return NewLane(meta, entries, len(known), max(meta.capacity for meta in metas))


def _joined_promise(
    promise: Promise, metas: Sequence[Meta], contents: Mapping[int, Content], kept: Sequence[_Known]
) -> Promise:
    """Return the promise of a joined ring. IDs without room in it may be too young to lose."""
    before = [meta.promise for meta in metas if meta.promise is not None]
    times = (item.origin.timestamp for item in kept)
    newest = max([*(former.newest_ms for former in before), *times], default=0)
    ids = {item.id for item in kept}
    lost = {
        item.id
        for lane, content in contents.items()
        for item in _known(lane, content)
        if item.id not in ids and newest - item.origin.timestamp <= promise.min_age_ms
    }
    broken = max((former.broken for former in before), default=0) + len(lost)
    return promise._replace(newest_ms=newest, broken=broken)


def _same(own: Content, meta: Meta, known: Sequence[_Known], capacity: int) -> bool:
    """Return whether a ring stays unchanged."""
    present = [(item.id, item.origin) for item in _known(0, own)]
    return meta.capacity == capacity and present == [(item.id, item.origin) for item in known]


def _slots(known: Sequence[_Known], own: Content, capacity: int, base: int) -> list[Entry]:
    entries = [
        Entry(
            codec.ring_key(capacity, base + place),
            codec.ring_value(base + place, item.id, item.origin, item.digest),
            item.accepted_at,
        )
        for place, item in enumerate(known)
    ]
    written = {entry.key for entry in entries}
    return [*(Entry(key, None) for key in own.slots if key not in written), *entries]


def _changes(present: Records, wanted: Records) -> list[Entry]:
    left = [Entry(key, None) for key in present if key not in wanted]
    return [*left, *(Entry(key, value) for key, value in wanted.items() if present.get(key) != value)]


def meta_entry(meta: Meta) -> Entry:
    """Return the record that ends each transaction."""
    return Entry(codec.META_KEY, codec.encode_meta(meta))


def ended(meta: Meta, lanes: int) -> Meta:
    """Return the meta record of a lane that no longer exists, which invalidates its ring."""
    return meta._replace(
        floor=meta.head, next_offsets={}, older=[], incarnation=secrets.token_hex(8), lanes=lanes
    )

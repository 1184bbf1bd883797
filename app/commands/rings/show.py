"""``ringfence rings show``: the ring of each lane, read from the changelog, which RocksDB only caches."""

import asyncio
import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any, Final

from aiokafka.errors import TopicAuthorizationFailedError
from rich.table import Table

from agents.topic_checks.changelog import newest_metas
from agents.topic_checks.lanes import lane_faults, lanes_before, live
from conf.terminal import print_table
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.durations import duration_text
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import MissingTopicError, RingfenceError
from ringfence_kafka.escaping import moment
from ringfence_kafka.process.step_progress import reading
from ringfence_kafka.protocol import stored_ids, wire_names
from ringfence_kafka.protocol.lane_layout import LaneLayout
from ringfence_kafka.readers.log_reader import LogReader
from ringfence_kafka.wording import counted, first_of
from tables import codec
from tables.codec import Meta, Slot
from tables.promise import coverage
from tables.restore import Restore, require_own

PARALLEL: Final = 8
"""Number of changelog partitions that are read concurrently."""
PARTITIONS_SHOWN_MAX: Final = 8
"""Number of a lane's partitions that the table lists."""


class OtherLanesError(RingfenceError):
    """The lanes of an address differ from the file."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One ID of a ring."""

    id: str
    source: str
    """``<topic>/<partition>/<offset>`` of the accepted original."""
    timestamp: int
    """Timestamp of the original, in milliseconds since the epoch."""
    of: str | None
    """Address of the ID, if it came with a part for another address; None = the ring's own address."""
    parts: list[str]
    """Parts of a composed ID, as ``rings find`` takes them; empty = one part, or only a digest is kept."""


@dataclass(frozen=True, slots=True)
class RingReport:
    """Ring of one lane. ``oldest`` and ``newest`` are None if it is empty."""

    lane: int
    partitions: list[int]
    """Input partitions of the lane."""
    size: int
    capacity: int
    """Capacity at the lane's last transaction; before the first, the configured one."""
    oldest: Entry | None
    newest: Entry | None
    seconds_covered: float | None
    """Time between the records of the oldest and the newest ID."""
    bridged: int
    """Number of routes in its hop memory: pairs of a bridge's source partition and an input partition."""
    promise: dict[str, Any] | None = None
    """``id_min_age``, and whether the ring holds it (:meth:`tables.promise.Coverage.report`); None = none."""


def show(settings: Settings, address: str | None, as_json: bool) -> int:
    """Print the rings of one address, or of all.

    Raises:
        MissingTopicError: A changelog does not exist.
    """
    chosen = settings.addresses if address is None else (settings.configured(address),)

    async def read() -> dict[str, list[RingReport]]:
        async with Cluster(settings.kafka, settings.app.id) as cluster:
            return {
                item.name: [_report(item, *lane) for lane in await snapshots(settings, item, cluster)]
                for item in chosen
            }

    with reading(f"the rings of {address or counted(len(chosen), 'address', 'addresses')}"):
        reports = asyncio.run(read())
    if as_json:
        document = {name: [asdict(lane) for lane in lanes] for name, lanes in reports.items()}
        print(json.dumps({"addresses": document}, indent=2))
    else:
        _print_tables(reports)
        for name, lanes in reports.items():
            if any(lane.bridged for lane in lanes):
                bridged = wire_names.HOP_MEMORY + name
                print(f"{bridged}: what came over bridges: ringfence rings show {bridged}")
    return 0


async def snapshots(
    settings: Settings, address: AddressSettings, cluster: Cluster
) -> list[tuple["LaneView", Restore]]:
    """Return the present content of the changelog of each lane. Raises as :func:`lane_views` does."""
    limit = asyncio.Semaphore(PARALLEL)

    async def read_one(view: LaneView) -> tuple[LaneView, Restore]:
        async with limit:
            return view, await view.read_on()

    return list(await asyncio.gather(*map(read_one, await lane_views(settings, address, cluster))))


def require_own_lanes(address: AddressSettings, metas: Iterable[Meta]) -> None:
    """Raise OtherLanesError if the lanes differ from the file, or are being regrouped.

    A command that writes to a lane must check again once it owns the lane. A later regrouping fences it.
    """
    if faults := lane_faults(address, metas):
        raise OtherLanesError("; ".join(faults))


async def lane_views(
    settings: Settings, address: AddressSettings, cluster: Cluster, *, to_write: bool = False
) -> list["LaneView"]:
    """Return a view of each lane, by the number of lanes that lanes have recorded, else by the file.

    ``to_write``: lanes must be those of the file.

    Raises:
        MissingTopicError: The changelog does not exist.
        OtherLanesError: The lanes differ from the file, or are being regrouped.
    """
    topic = wire_names.changelog_topic(settings.app.id, address.name)
    counts = await cluster.topics.partition_counts([topic])
    if topic not in counts:
        raise MissingTopicError(
            f"topic {topic} does not exist: use the workers' app.id, or run `ringfence topics create`"
        )
    metas = live(await newest_metas(cluster, topic, range(counts[topic])))
    if to_write:
        require_own_lanes(address, metas.values())
    lanes = next(map(lanes_before, metas.values()), address.lanes)
    partitions = await _input_partitions(address, cluster, metas.values()) if lanes else counts[topic]
    layout = LaneLayout.from_setting(lanes, partitions or counts[topic])
    return [
        LaneView(settings, address, cluster, lane, layout.partitions_of(lane))
        for lane in range(min(layout.lanes, counts[topic]))
    ]


async def _input_partitions(address: AddressSettings, cluster: Cluster, metas: Iterable[Meta]) -> int:
    """Return the number of input partitions, or the recorded number if this user may not see the topic."""
    topic = address.input_topic
    recorded = max((meta.partition_counts.get(topic, 0) for meta in metas), default=0)
    try:
        return (await cluster.topics.partition_counts([topic])).get(topic, recorded)
    except TopicAuthorizationFailedError:
        return recorded


class LaneView:
    """View of a lane's changelog."""

    def __init__(
        self,
        settings: Settings,
        address: AddressSettings,
        cluster: Cluster,
        number: int,
        partitions: Sequence[int] = (),
        *,
        dated: bool = False,
    ) -> None:
        """Create a view that has read nothing yet. ``dated``: keep the timestamps of ring records."""
        self.number = number
        self.partitions = partitions
        self.lane = wire_names.lane_name(address.name, number)
        self._dated = dated
        self._kafka = settings.kafka
        self._topic = wire_names.changelog_topic(settings.app.id, address.name)
        self._cluster = cluster

        def check(meta: Meta) -> None:
            require_own(meta, settings.app.id, address.name, f"{self._topic}/{number}")

        self._restore = Restore(None, 0, resident=True, check=check)
        self._timestamps: dict[bytes, tuple[int, int]] = {}
        self._next: int | None = None

    async def read_on(self) -> Restore:
        """Return the present content. It reads only records since the last call.

        Raises:
            LogStalledError: A transaction does not end.
            ForeignChangelogError: The changelog belongs to another address.
        """
        if self._next is None:
            self._next = await self._cluster.offsets.log_start(self._topic, self.number)
        end = await self._cluster.offsets.high_watermark(self._topic, self.number)

        async def consume(records: Sequence[Any]) -> None:
            self._restore.consume(records)
            if self._dated:
                self._note_timestamps(records)

        self._next = await LogReader(self._kafka).read_range(
            self._topic, self.number, self._next, end, consume
        )
        return self._restore

    def _note_timestamps(self, records: Sequence[Any]) -> None:
        for record in records:
            if record.key[:1] == codec.KIND_RING and record.value is not None:
                written = codec.sequence_of(record.value), record.timestamp
                self._timestamps[record.key] = max(written, self._timestamps.get(record.key, written))

    @property
    def accepted_at(self) -> dict[bytes, int]:
        """Key of each ring record read → its timestamp, in milliseconds since the epoch."""
        return {key: timestamp for key, (_, timestamp) in self._timestamps.items()}


def live_slots(restore: Restore) -> list[Slot]:
    """Return the live slots of the ring, unordered."""
    meta = restore.meta
    if meta is None:
        return []
    low = max(meta.floor, meta.head - meta.capacity, 0)
    return [slot for slot in restore.slots() if low <= slot.sequence < meta.head]


def _report(address: AddressSettings, view: LaneView, restore: Restore) -> RingReport:
    number, partitions = view.number, list(view.partitions)
    if restore.meta is None:
        return RingReport(number, partitions, 0, address.ring_capacity, None, None, None, 0)
    slots = live_slots(restore)
    by_sequence = attrgetter("sequence")
    oldest = entry(address, min(slots, key=by_sequence)) if slots else None
    newest = entry(address, max(slots, key=by_sequence)) if slots else None
    # A forwarded message keeps its older timestamp.
    covered = max(0, newest.timestamp - oldest.timestamp) / 1000 if oldest and newest else None
    meta, bridged, promise = restore.meta, len(restore.hops), None
    if meta.promise is not None:
        oldest_ms = oldest.timestamp if oldest else None
        promise = coverage(meta.promise, meta.capacity, meta.head, meta.floor, oldest_ms).report()
    return RingReport(
        number, partitions, len(slots), meta.capacity, oldest, newest, covered, bridged, promise
    )


def entry(address: AddressSettings, slot: Slot) -> Entry:
    """Return a slot for output."""
    source = wire_names.source(address.input_topic, slot.origin.partition).decode() + str(slot.origin.offset)
    of, _ = stored_ids.of_address(slot.id)
    forms = address.duplicate_id_from
    parts = [] if isinstance(forms, str) else stored_ids.display_parts(slot.id, len(forms))
    return Entry(stored_ids.display_id(slot.id), source, slot.origin.timestamp, of, parts)


def _print_tables(reports: dict[str, list[RingReport]]) -> None:
    promised = any(lane.promise for lanes in reports.values() for lane in lanes)
    table = Table(
        "lane",
        "partitions",
        "size",
        "capacity",
        "oldest ID",
        "newest ID",
        "newest at (UTC)",
        "seconds covered",
        *(["promise"] if promised else []),
    )
    for name, lanes in reports.items():
        for lane in lanes:
            table.add_row(
                wire_names.lane_name(name, lane.lane),
                first_of(list(map(str, lane.partitions)), PARTITIONS_SHOWN_MAX),
                f"{lane.size:,}",
                f"{lane.capacity:,}",
                *(_shown(entry) for entry in (lane.oldest, lane.newest)),
                "" if lane.newest is None else moment(lane.newest.timestamp).partition(".")[0],
                "" if lane.seconds_covered is None else f"{lane.seconds_covered:,.1f}",
                *([_promise(lane.promise)] if promised else []),
            )
    print_table(table)


def _promise(promise: dict[str, Any] | None) -> str:
    if promise is None:
        return ""
    age, broken = duration_text(promise["id_min_age"]), promise["coverage_broken"]
    left = f"; {counted(broken, 'ID')} left earlier" if broken else ""
    if promise["holds"]:
        return f"{age}: holds{left}"
    return f"{age}: does not hold{left}; id_cache_size_max = {promise['enough']} would be enough"


def _shown(entry: Entry | None) -> str:
    if entry is None:
        return ""
    shown = shlex.join(entry.parts) or entry.id
    return shown if entry.of is None else f"{shown} (of {entry.of})"

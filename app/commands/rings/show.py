"""``ringfence rings show``: what each lane's ring holds, read from the changelog.

The changelog is the truth and RocksDB a cache of it, so this works beside a running worker, without one, and from
another machine.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.table import Table

from conf.terminal import tell
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import MissingTopicError
from ringfence_kafka.escaping import moment
from ringfence_kafka.process.step_progress import reading
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.readers import log_reader
from ringfence_kafka.wording import counted
from tables import codec
from tables.codec import Meta, Slot
from tables.restore import Restore, require_own

PARALLEL: Final = 8
"""Changelog partitions read at once."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One ID of a ring."""

    id: str
    source: str
    """``<topic>/<partition>/<offset>`` of the accepted original."""
    timestamp: int
    """Of the original's record, milliseconds since the epoch."""
    of: str | None
    """The other address whose ID it is: a transaction had a part for it. None = the ring's own."""


@dataclass(frozen=True, slots=True)
class RingReport:
    """One lane's ring. ``oldest`` and ``newest`` are None when it is empty."""

    partition: int
    size: int
    capacity: int
    """As of the lane's last transaction; the configured one before the first."""
    oldest: Entry | None
    newest: Entry | None
    seconds_covered: float | None
    """Between the records of the oldest and the newest ID."""
    bridged: int
    """What its hop memory holds: pairs of a bridge's source partition and the input partition that it comes into."""


def show(settings: Settings, address: str | None, as_json: bool) -> int:
    """Print the rings of one address, or of all; where something came over bridges, how to see that.

    Raises:
        ConfigurationError: unknown address.
        MissingTopicError: a changelog does not exist.
        BrokerUnavailableError: nobody answers.
    """
    chosen = settings.addresses if address is None else (settings.configured(address),)
    with reading(
        f"the rings of {counted(len(chosen), 'address', 'addresses') if address is None else address}"
    ):
        reports = asyncio.run(read(settings, chosen))
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


async def read(settings: Settings, addresses: tuple[AddressSettings, ...]) -> dict[str, list[RingReport]]:
    """Read the rings of these addresses."""
    reports = {}
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        for address in addresses:
            restored = await snapshots(settings, address, cluster)
            reports[address.name] = [
                _report(address, number, restore) for number, restore in enumerate(restored)
            ]
    return reports


async def snapshots(settings: Settings, address: AddressSettings, cluster: Cluster) -> list[Restore]:
    """What the changelog says of each lane, now.

    Raises:
        MissingTopicError: there is none.
    """
    limit = asyncio.Semaphore(PARALLEL)

    async def one(partition: int) -> Restore:
        async with limit:
            return await LaneView(settings, address, cluster, partition).read_on()

    return list(
        await asyncio.gather(*(one(index) for index in range(await lanes(settings, address, cluster))))
    )


async def lanes(settings: Settings, address: AddressSettings, cluster: Cluster) -> int:
    """How many lanes an address has.

    Raises:
        MissingTopicError: nobody knows.
    """
    topic = wire_names.changelog_topic(settings.app.id, address.name)
    counts = await cluster.topics.partition_counts([topic])
    if topic not in counts:
        raise MissingTopicError(
            f"topic {topic} does not exist: is app.id the workers'? `ringfence topics create` makes it"
        )
    return counts[topic]


class LaneView:
    """What the changelog says of one lane."""

    def __init__(
        self, settings: Settings, address: AddressSettings, cluster: Cluster, partition: int
    ) -> None:
        self.partition = partition
        self._kafka = settings.kafka
        self._topic = wire_names.changelog_topic(settings.app.id, address.name)
        self._cluster = cluster

        def check(meta: Meta) -> None:
            require_own(meta, settings.app.id, address.name, f"{self._topic}/{partition}")

        self._restore = Restore(None, 0, resident=True, check=check)
        self._next: int | None = None

    async def read_on(self) -> Restore:
        """All that it says now; only what came since the last call is read.

        Raises:
            LogStalledError: a transaction does not end.
            ForeignChangelogError: it is another address's.
        """
        if self._next is None:
            self._next = await self._cluster.offsets.log_start(self._topic, self.partition)
        end = await self._cluster.offsets.high_watermark(self._topic, self.partition)

        async def consume(records: Sequence[Any]) -> None:
            self._restore.consume(records)

        self._next = await log_reader.read(self._kafka, self._topic, self.partition, self._next, end, consume)
        return self._restore


def live_slots(restore: Restore) -> list[Slot]:
    """The slots that count, in no order."""
    meta = restore.meta
    if meta is None:
        return []
    low = max(meta.floor, meta.head - meta.capacity, 0)
    return [slot for slot in restore.slots() if low <= slot.sequence < meta.head]


def _report(address: AddressSettings, partition: int, restore: Restore) -> RingReport:
    if restore.meta is None:
        return RingReport(partition, 0, address.id_cache_size, None, None, None, 0)
    live = live_slots(restore)
    oldest = entry(address, min(live, key=_sequence, default=None))
    newest = entry(address, max(live, key=_sequence, default=None))
    covered = (newest.timestamp - oldest.timestamp) / 1000 if oldest and newest else None
    capacity, bridged = restore.meta.capacity, len(restore.hops)
    return RingReport(partition, len(live), capacity, oldest, newest, covered, bridged)


def _sequence(slot: Slot) -> int:
    return slot.sequence


def entry(address: AddressSettings, slot: Slot | None) -> Entry | None:
    """A slot as it is shown."""
    if slot is None:
        return None
    source = wire_names.source(address.input_topic, slot.origin.partition).decode() + str(slot.origin.offset)
    of, _ = codec.of_address(slot.id)
    return Entry(codec.display_id(slot.id), source, slot.origin.timestamp, of)


def _print_tables(reports: dict[str, list[RingReport]]) -> None:
    table = Table("lane", "size", "capacity", "oldest ID", "newest ID", "newest at (UTC)", "seconds covered")
    for name, lanes in reports.items():
        for lane in lanes:
            table.add_row(
                wire_names.lane_name(name, lane.partition),
                f"{lane.size:,}",
                f"{lane.capacity:,}",
                *(_shown(entry) for entry in (lane.oldest, lane.newest)),
                _moment(lane.newest),
                "" if lane.seconds_covered is None else f"{lane.seconds_covered:,.1f}",
            )
    tell(table)


def _shown(entry: Entry | None) -> str:
    if entry is None:
        return ""
    return entry.id if entry.of is None else f"{entry.id} (of {entry.of})"


def _moment(entry: Any) -> str:
    if entry is None:
        return ""
    return moment(entry.timestamp).partition(".")[0]

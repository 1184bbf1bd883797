"""Restores the IDs of a lane whose changelog was deleted: writes the IDs in its RocksDB into the new changelog.

IDs of messages that the lane is going to read again are left out, because the outputs of these messages may be lost as well.
"""

import asyncio
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from agents.lane.assignment import Partition
from agents.output.changelog import batches_of
from ringfence_kafka.producer.transactional import TransactionalProducer
from ringfence_kafka.readers.log_reader import LogReader
from tables import codec
from tables.codec import META_KEY, Meta
from tables.restore import ChangelogBounds
from tables.rocksdb.store import StoredState
from tables.table import LaneTable

log: Final = logging.getLogger("ringfence.lane")

SLOTS_PER_TRANSACTION: Final = 20_000
"""IDs in one transaction: about 2 MB if an ID has 60 bytes."""
SORTED_MAX: Final = 1_000_000
"""Up to this many IDs are written in ring order, which the native core can restore from. Sorting more takes too much memory."""
WRITE_LIMIT_S: Final = 30.0
"""Limit of one of these transactions, in seconds."""

Entries = Iterable[tuple[bytes, bytes | None]]


class Changelog(NamedTuple):
    """Changelog partition of a lane."""

    topic: str
    partition: int
    topic_id: str
    bounds: ChangelogBounds


class Lost(NamedTuple):
    """State of a RocksDB whose records are missing in the changelog."""

    stored: StoredState
    meta: Meta | None
    """Newest meta record of the changelog; None = it has none."""

    @property
    def usable(self) -> bool:
        """Whether no other worker has started a new ring in the changelog."""
        return self.meta is None or self.meta.incarnation == self.stored.meta.incarnation


async def find_lost(
    table: LaneTable, changelog: Changelog, reader: LogReader, app: str, address: str
) -> Lost | None:
    """Return the state that RocksDB has and the changelog lacks; None if RocksDB is empty or follows this changelog.

    Call it after the fence: no other worker may write to the changelog.
    """
    stored = table.store.stored()
    if stored is None or not stored.meta.persistent:
        return None
    if (stored.meta.app, stored.meta.address) != (app, address):
        return None
    known_id = stored.meta.topic_ids.get(changelog.topic)
    recreated = known_id not in {None, changelog.topic_id}
    if not recreated and _reaches(stored, changelog.bounds):
        return None
    meta = await _newest_meta(changelog, reader)
    if meta is not None and (not recreated or meta.topic_ids.get(changelog.topic) == changelog.topic_id):
        # The changelog lost its end, or this worker was away for long, or another owner has restored the IDs already.
        return Lost(stored, meta) if recreated and meta.incarnation != stored.meta.incarnation else None
    return Lost(stored, meta)


def _reaches(stored: StoredState, bounds: ChangelogBounds) -> bool:
    """Return whether the changelog still has a record at or after the position of RocksDB."""
    return stored.position <= bounds.high_watermark and bounds.start < bounds.high_watermark


async def _newest_meta(changelog: Changelog, reader: LogReader) -> Meta | None:
    found: list[Meta] = []

    async def consume(records: Iterable[Any]) -> None:
        await asyncio.sleep(0)
        for record in records:
            if record.key == META_KEY and record.offset < changelog.bounds.high_watermark:
                found[:] = [codec.decode_meta(record.value)]

    start, end = changelog.bounds.start, changelog.bounds.high_watermark
    await reader.read_range(changelog.topic, changelog.partition, start, end, consume)
    return found[0] if found else None


def offsets_read_again(
    meta: Meta, nexts: Mapping[Partition, int], topic_ids: Mapping[str, str]
) -> dict[Partition, range]:
    """Return the offsets of each input that the lane has processed and is going to read again.

    An ID with a larger offset came from an earlier topic of this name. If the topic was created again since the meta record of RocksDB, the
    range is empty. ``nexts``: the first offset that the lane is going to read, by input; ``topic_ids``: Kafka's IDs of the inputs.
    """
    ends = {
        (topic, partition): meta.next_of(topic, partition) or 0
        for topic, partition in nexts
        if not meta.is_recreated(topic, topic_ids[topic])
    }
    return {place: range(following, ends.get(place, 0)) for place, following in nexts.items()}


def messages_behind(meta: Meta, nexts: Mapping[Partition, int], topic_ids: Mapping[str, str]) -> int:
    """Return how many messages other workers judged after the state of RocksDB. RocksDB does not have their IDs.

    The arguments are those of :func:`offsets_read_again`.
    """
    reached = {
        place: meta.next_of(*place) for place in nexts if meta.topic_ids.get(place[0]) == topic_ids[place[0]]
    }
    return sum(max(0, nexts[place] - offset) for place, offset in reached.items() if offset is not None)


class Recovered(NamedTuple):
    """Numbers of restored and of lost IDs."""

    kept: int
    forgotten: int


async def write_back(
    table: LaneTable, lost: Lost, changelog: Changelog, producer: TransactionalProducer, next_offsets: Mapping[str, int],
    topic_ids: Mapping[str, str], topic: str, rereads: Mapping[Partition, range], group: str,
) -> Recovered:  # fmt: skip
    """Write the IDs of RocksDB into the new changelog, and its meta record last. RocksDB is empty afterwards.

    A crash before the meta record leaves RocksDB unchanged: the next opening writes the IDs again.

    ``lost``: result of :func:`find_lost`, which must be usable; ``next_offsets``: first offset of each input that the lane is going to read, in
    the form of the meta record; ``topic_ids``: Kafka's IDs of inputs and changelog; ``topic``: the input topic; ``rereads``: result of
    :func:`offsets_read_again`; ``group``: ID of the workers' group.
    """
    stored = lost.stored.meta
    whole = not any(rereads.values())
    inputs = {partition: reread for (name, partition), reread in rereads.items() if name == topic}
    choice = _Choice(stored, inputs, forwarded=whole)
    kept = 0

    async def write(entries: Entries) -> None:
        batches = batches_of(changelog.topic, changelog.partition, entries, producer.builder)
        async with asyncio.timeout(WRITE_LIMIT_S):
            await producer.transact(batches, {}, group)

    entries = choice.kept(table.store.opened().slots())
    while some := list(itertools.islice(entries, SLOTS_PER_TRANSACTION)):
        await write(some)
        kept += len(some)
    newest = lost.meta or stored
    meta = newest._replace(next_offsets=dict(next_offsets), topic_ids={**newest.topic_ids, **topic_ids})
    hops = table.store.opened().hops() if whole else iter(())
    await write([*hops, (META_KEY, codec.encode_meta(meta))])
    table.store.renew()
    return Recovered(kept, choice.forgotten)


class _Choice:
    """Selects the slots for the new changelog, and counts the others."""

    def __init__(self, meta: Meta, rereads: Mapping[int, range], *, forwarded: bool) -> None:
        """Create a selection. ``rereads``: offsets by input partition; ``forwarded``: whether IDs of forwarded messages are kept."""
        self.forgotten = 0
        self._low = max(meta.floor, meta.head - meta.capacity)
        self._head = meta.head
        self._capacity = meta.capacity
        self._rereads = rereads
        self._forwarded = forwarded

    def kept(self, slots: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        """Return the live slots to keep. With an earlier capacity, only the newest slot of each key is kept."""
        found = self._kept(slots)
        if self._head - self._low > SORTED_MAX:
            return found
        return iter(sorted(found, key=lambda slot: codec.sequence_of(slot[1])))

    def _kept(self, slots: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        older: dict[bytes, bytes] = {}
        for key, value in slots:
            slot = codec.decode_ring(key, value)
            if not self._low <= slot.sequence < self._head:
                continue
            if not self._is_processed(slot.origin):
                self.forgotten += 1
            elif slot.capacity == self._capacity:
                yield key, value
            elif key not in older or codec.is_newer(value, older[key]):
                older[key] = value
        yield from older.items()

    def _is_processed(self, origin: codec.Origin) -> bool:
        reread = self._rereads.get(origin.partition)
        return self._forwarded if reread is None else origin.offset not in reread


def describe(lane: str, changelog: Changelog, found: Recovered, behind: int) -> str:
    """Return a text about the recovery, for the log and status. ``behind``: result of :func:`messages_behind`."""
    place = f"{changelog.topic}/{changelog.partition}"
    text = f"its changelog {place} was deleted, or its records were. {found.kept:,} IDs are kept: RocksDB had them, and they are in the new changelog"
    if found.forgotten:
        text += f". {found.forgotten:,} IDs of messages that are read again are forgotten"
    if behind:
        text += (
            f". RocksDB was up to {behind:,} messages behind: another worker had the lane later, or this one died in a transaction. The IDs "
            "of these messages are lost: their duplicates are accepted"
        )
    log.error("lane %s: %s", lane, text)
    return text


def describe_unusable(lane: str, changelog: Changelog, lost: Lost) -> str:
    """Return and log the loss if another worker started a new ring in the meantime."""
    count = min(lost.stored.meta.head - lost.stored.meta.floor, lost.stored.meta.capacity)
    text = (
        f"its changelog {changelog.topic}/{changelog.partition} was deleted, and another worker began a new "
        f"ring in it. Up to {count:,} earlier IDs are forgotten: their duplicates are accepted"
    )
    log.error("lane %s: %s", lane, text)
    return text


def describe_unlike(changelog: Changelog, folder: Path, error: Exception) -> str:
    """Return why the IDs of RocksDB are not restored: their lane had other partitions."""
    return (
        f"its changelog {changelog.topic}/{changelog.partition} was deleted, and its folder {folder} is older than a change of lanes or "
        f"partitions: {error}. If these are right now, stop this worker, and start the one that had the lane last. If there is none, delete the "
        "folder: all earlier IDs are lost then"
    )

"""A common memory limit for fetched and unfinished messages of all lanes of a process.

A batch counts from its fetch to the end of its transaction, including the outputs that it will produce. Each
lane that may start a batch must be able to finish it. Each batch has a :class:`Held`. It frees its bytes when
the lane has finished the batch, or when the batch is garbage, because a rebalance or a rewind simply discards
batches. Batches of the native core may share the bytes of a fetch, which count once.

:mod:`ringfence_client.window.memory_budget` divides the memory. A partition without room is not fetched, and
its fetched records stay in the fetcher. A partition that holds no memory may always go on, however large its
message is.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from aiokafka import TopicPartition

from agents.batch import native_records
from agents.batch.batch import BATCH_RECORDS_MAX, Record
from agents.batch.batch import Held as AnyHeld
from app.worker.fetch import raw_fetch
from app.worker.fetch.raw_fetch import Limits
from ringfence_client.window.memory_budget import FETCHING_PART, MemoryBudget
from ringfence_kafka.aiokafka_patches import fetch_buffer
from ringfence_kafka.aiokafka_patches.batch_parts import HEADER_BYTES
from ringfence_kafka.aiokafka_patches.lenient_records import LenientRecords
from ringfence_kafka.process import gc_settings

RECORD_BYTES: Final = 900
"""Memory of a record beside its contents: verdict, slot and outputs, in bytes. Measured with CPython 3.11."""
COPIES: Final = 4
"""Copies of key, value and headers: as fetched, in the batch, in the request, and to a slow broker."""
RAW_RECORD_BYTES: Final = 600
"""Memory of a record that stays in the bytes of its fetch, beside its contents. Measured with two copies."""
RAW_COPIES: Final = 3
"""Copies for such a record: one less, because the fetch counts its own bytes."""
BATCH_BYTES_MAX: Final = 8 * 2**20
"""Size limit of one batch in bytes; a single larger record is allowed."""
BATCH_BYTES_MIN: Final = 2**16
"""Minimum of that limit even if less room is left, so that a batch is worth its transaction."""
LARGE_RECORD_BYTES: Final = 2**18
"""Memory of a record above which it is returned to the system at once, in bytes."""
FIRST_RECORDS: Final = 50
"""Records of the first read of a partition, whose record size is unknown."""
STEP_RECORDS: Final = 250
"""Limit of records in one read: later ones may be larger; a compressed fetch does not show it."""
AHEAD_PART: Final = 4
"""Divisor of the fetch memory. Above this part, partitions that no lane waits for are not fetched."""
MOVING_S: Final = 1.0


class _Share:
    """Memory of one partition."""

    __slots__ = ("batches", "bytes", "joined", "record_bytes", "unpacked")

    def __init__(self) -> None:
        self.bytes = 0
        self.batches = 0
        """Number of unfinished batches with memory of the partition."""
        self.unpacked = False
        """Whether records of the core's last batch were converted into objects."""
        self.joined = True
        self.record_bytes = 0.0
        """Memory of a record, estimated from the last read, in bytes."""


class Held:
    """Counted bytes of one batch, or of the fetch that contains batches."""

    __slots__ = ("_batches", "_buffers", "_left", "_objects", "_parts", "_share", "_unpacked", "bytes")

    def __init__(
        self,
        buffers: "Buffers",
        share: _Share,
        count: int,
        *,
        batches: int = 1,
        objects: int = 0,
        parts: Sequence[AnyHeld] = (),
    ) -> None:
        """Count bytes that ``buffers`` already counted.

        ``share`` is the partition's memory; ``batches`` is 1 for a batch, 0 for a fetch; ``objects`` are
        additional bytes if records become objects; ``parts`` are fetches that contain the batch.
        """
        self._buffers = buffers
        self._share = share
        self._batches = batches
        self._objects = objects
        self._parts: Sequence[AnyHeld] = parts
        self._unpacked = False
        self._left = count
        self.bytes: int = count + sum(part.bytes for part in parts)

    def free(self) -> None:
        """Free the bytes. Thread-safe and idempotent."""
        count, self._left, self._objects, self._parts = self._left, 0, 0, ()
        if count:
            if self._batches:
                self._share.unpacked = self._unpacked
            self._buffers.record_change(self._share, -count, -self._batches)

    def unpack(self) -> None:
        """Count records that become objects. Thread-safe; must come before :meth:`free`."""
        more, self._objects, self._unpacked = self._objects, 0, True
        if more:
            self._left += more
            self._buffers.record_change(self._share, more, 0)

    def __del__(self) -> None:
        self.free()


class Buffers:
    """Memory of one worker. Methods run in the consumer's thread unless they say otherwise."""

    def __init__(
        self,
        bytes_max: int,
        clock: Callable[[], float] = time.monotonic,
        large: Callable[[], None] = gc_settings.give_back_large,
    ) -> None:
        """Take the limit ``bytes_max``, and ``large``, a function called after reads of large records."""
        self.bytes_max: Final = bytes_max
        self.memory = MemoryBudget(bytes_max)
        self._large = large
        self._has_changed: Callable[[], None] = lambda: None
        self._clock = clock
        self._shares: dict[TopicPartition, _Share] = {}
        self._noted: deque[tuple[_Share, int, int]] = deque()
        self._awaited = False
        self._moved = 0.0
        self._used = 0

    @property
    def used(self) -> int:
        """Approximate bytes of fetched unread messages, and of messages that lanes hold. Thread-safe."""
        return self._used + self.memory.fetched

    @property
    def moving(self) -> bool:
        """Whether lanes have finished a batch within the last second."""
        return self._clock() - self._moved < MOVING_S

    def batch_bytes_max(self, tp: TopicPartition) -> int:
        """Return the next batch's limit, in bytes: a quarter of its partition's, at most the room left."""
        share = self._shares.get(tp)
        used = 0 if share is None else share.bytes
        most = self.memory.limit(used)
        return min(BATCH_BYTES_MAX, max(BATCH_BYTES_MIN, min(most // 4, most - used)))

    def assign(self, tps: Collection[TopicPartition]) -> None:
        """Divide the memory among these partitions from now on."""
        if self._shares.keys() == set(tps):
            return
        gone = [self._shares.pop(tp) for tp in self._shares.keys() - set(tps)]
        for share in gone:
            share.joined = False
        self.memory.leave(*gone)
        new = {tp: _Share() for tp in set(tps) - self._shares.keys()}
        self._shares |= new
        self.memory.join(*new.values())

    def hold(self, tp: TopicPartition, count: int) -> Held:
        """Count bytes of a partition until the returned object is freed."""
        share = self._share(tp)
        self._use(share, count, 1)
        return Held(self, share, count)

    def record_change(self, share: _Share, more: int, batches: int) -> None:
        """Record a change, counted later. Thread-safe, even during garbage collection."""
        self._noted.append((share, more, batches))
        if more < 0 and self._awaited:
            self._awaited = False
            self._has_changed()

    def when_room(self, call: Callable[[], None]) -> None:
        """Set a function to call, in any thread, when a partition that waits for room may continue."""
        self._has_changed = call

    def has_room(self, tp: TopicPartition) -> bool:
        """Return whether more of the partition may be read. If not, :meth:`when_room` reports the change."""
        if self._has_room(tp):
            return True
        self._awaited = True
        return self._has_room(tp)  # bytes freed between the two checks did not trigger a call

    def may_fetch(self, tp: TopicPartition, *, wanted: bool) -> bool:
        """Return whether to fetch more. ``wanted``: a lane will read the partition's fetched records soon."""
        if not self.has_room(tp):
            return False
        share = self._shares.get(tp)
        if share is None or not share.batches:
            return True
        fetching = self.bytes_max // FETCHING_PART
        return not self.memory.crowded and (wanted or self.memory.fetched < fetching // AHEAD_PART)

    async def read(self, fetcher: Any, tp: TopicPartition) -> tuple[Sequence[Record], Held | None]:
        """Return at most a batch of fetched records. Raises errors of the fetch or its records."""
        share = self._share(tp)
        records, held = self._read_raw(fetcher, tp, share) or await self._read_objects(fetcher, tp, share)
        if held is not None and held.bytes >= LARGE_RECORD_BYTES * len(records):
            self._large()
        return records, held

    def _read_raw(
        self, fetcher: Any, tp: TopicPartition, share: _Share
    ) -> tuple[Sequence[Record], Held | None] | None:
        """Read records with the native core; None = only aiokafka can read them."""
        records: Sequence[Record] | None = None
        count = content = headers = 0
        left = self.batch_bytes_max(tp)
        record_bytes, copies = (RECORD_BYTES, COPIES) if share.unpacked else (RAW_RECORD_BYTES, RAW_COPIES)
        parts: dict[int, AnyHeld] = {}

        def hold(size: int) -> Held:
            self._use(share, size, 0)
            return Held(self, share, size, batches=0)

        while left > 0 and count < BATCH_RECORDS_MAX:
            limits = Limits(BATCH_RECORDS_MAX - count, left, record_bytes, copies)
            taken = raw_fetch.take_records(fetcher, tp, limits, hold)
            if taken is None:
                break
            records = taken.records if records is None else native_records.joined(records, taken.records)
            count += len(taken.records)
            content += taken.content
            headers += taken.headers
            left -= record_bytes * len(taken.records) + copies * taken.content
            if taken.records:
                parts[id(taken.part)] = taken.part
        if not records:
            return None if records is None else ([], None)
        used = count * RAW_RECORD_BYTES + content * RAW_COPIES
        objects = count * RECORD_BYTES + headers * HEADER_BYTES + content * COPIES - used
        if share.unpacked:
            used, objects = used + objects, 0
        self._use(share, used, 1)
        return records, Held(self, share, used, objects=objects, parts=tuple(parts.values()))

    async def _read_objects(
        self, fetcher: Any, tp: TopicPartition, share: _Share
    ) -> tuple[Sequence[Record], Held | None]:
        """Read records with aiokafka."""
        records: list[Any] = []
        total, left = 0, self.batch_bytes_max(tp)
        count = round(left / share.record_bytes) if share.record_bytes else FIRST_RECORDS
        while left > 0 and len(records) < BATCH_RECORDS_MAX:
            count = min(max(1, count), STEP_RECORDS, BATCH_RECORDS_MAX - len(records))
            parsed = fetch_buffer.parsed(fetcher, tp)
            if isinstance(parsed, LenientRecords):
                parsed.bytes_max = max(1, left // COPIES)
            more = (await fetcher.fetched_records({tp}, timeout=0, max_records=count)).get(tp, [])
            if not more:
                break
            used = cost(more)
            records += more
            total += used
            left -= used
            share.record_bytes = used / len(more)
            if len(more) < count:
                break
            count = int(left / share.record_bytes)
        return records, self.hold(tp, total) if records else None

    def count_unread(self, fetcher: Any) -> None:
        """Count the fetched records that are not read yet."""
        self.memory.set_fetched(sum(fetch_buffer.sizes(fetcher).values()))

    def apply_changes(self) -> None:
        """Count the recorded changes."""
        while self._noted:
            share, more, batches = self._noted.popleft()
            self._use(share, more, batches)
            if more < 0:
                self._moved = self._clock()

    def _has_room(self, tp: TopicPartition) -> bool:
        self.apply_changes()
        share = self._shares.get(tp)
        return share is None or not share.batches or share.bytes < self.memory.limit(share.bytes)

    def _share(self, tp: TopicPartition) -> _Share:
        share = self._shares.get(tp)
        if share is None:
            share = self._shares[tp] = _Share()
            self.memory.join(share)
        return share

    def _use(self, share: _Share, more: int, batches: int) -> None:
        before = share.bytes
        share.bytes += more
        share.batches += batches
        self._used += more
        if share.joined:
            self.memory.use(before, share.bytes)


def cost(records: Iterable[Any]) -> int:
    """Return the memory of these records from the fetch to the end of their transaction, in bytes."""
    fixed = content = 0
    for record in records:
        fixed += RECORD_BYTES
        key, value, headers = record.key, record.value, record.headers
        if value is not None:
            content += len(value)
        if key is not None:
            content += len(key)
        for name, text in headers:
            fixed += HEADER_BYTES
            content += len(name) + (0 if text is None else len(text))
    return fixed + COPIES * content

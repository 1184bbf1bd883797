"""A lane: one or more partitions of an address; the unit of ownership, state and transaction.

*A lane never skips a record.* It discards records below its next offset and refuses a batch that begins above it. After a
failure it keeps the failed batch, reopens, reads the batch again from the log and trims it. Otherwise a later batch would commit past it.

States are in :mod:`ringfence_kafka.ownership.partition_state`. A rebalance suspends a lane. If the lane is assigned again, it
resumes without a new opening.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final

from aiokafka.errors import KafkaTimeoutError

from agents.batch.batch import FetchedBatch
from agents.batch.inbox import Inbox
from agents.lane.assignment import LaneKey, Ownership, Partition
from agents.lane.cursor import ClusterWentBackError, Cursor, described, read_again
from agents.lane.errors import (
    ChangelogRecreatedError,
    LaneRefusedError,
    LimitsAgreedError,
    TopicChangedError,
    require_sizes,
)
from agents.lane.failure_log import Failures
from agents.lane.open import Opened, Opening
from agents.lane.outcome_counts import Observe
from agents.lane.state_folder import FolderUsableError
from agents.lane.transactions import Took, Transactions
from ringfence_kafka.concurrency.timeouts import back_off, cancelled, set_within
from ringfence_kafka.ownership.partition_state import Action, NotOwnerError
from ringfence_kafka.ownership.partition_task import PartitionTask
from ringfence_kafka.producer.transactional import FencedError
from tables.promise import Coverage
from tables.rocksdb.errors import StateFolderError

log: Final = logging.getLogger("ringfence.lane")

DRAIN_LIMIT_S: Final = 8.0
"""Time that a close waits for the running transaction, in seconds."""
BACKOFF_FIRST_S: Final = 0.1
BACKOFF_MAX_S: Final = 5.0
REFUSED_AGAIN_S: Final = 10.0
"""Time until a refused lane checks again whether it may run, in seconds."""


class LaneState(StrEnum):
    """State of a lane, as health reports it."""

    CLOSED = "closed"
    OPENING = "opening"
    SUSPENDED = "suspended"
    """A rebalance is in progress: the lane starts no transaction and stays open."""
    OPEN = "open"
    RETRYING = "retrying"
    """A request was refused or the cluster is not reachable; the lane keeps its batch and tries again."""
    REFUSED = "refused"
    """The lane must not run until a person acts; the reason says how. It checks again every :data:`REFUSED_AGAIN_S` seconds."""


class Lane(PartitionTask[Ownership, Opened]):
    """One lane in its own task, because Faust may cancel its actors at any await."""

    def __init__(
        self,
        opening: Opening,
        changed: Callable[[], None] = lambda: None,
        observe: Observe = lambda _seconds, _parts: None,
        took: Took = lambda _seconds: None,
    ) -> None:
        """Prepare a lane. It calls ``changed`` after a change of state or reason, ``observe`` and ``took`` after each transaction."""
        super().__init__(f"lane {opening.name}")
        self.name = opening.name
        self.state = LaneState.CLOSED
        self.reason = ""
        """Reason for which the lane is not open, for logs and health."""
        self.folder_fault = False
        """Whether the reason is that its folder cannot be written."""
        self.counts: Counter[str] = Counter()
        self.transactions = Transactions(opening, self.counts, observe, took)
        self.opening = opening
        self._changed = changed
        self._mail = Inbox()
        self._kept: list[FetchedBatch] = []
        """Batches in progress: from one topic, each from a different partition."""
        self._given: Collection[Partition] | None = None
        self._room = asyncio.Event()
        self.cursors: dict[Partition, Cursor] = {}
        """Position in each input; empty before the first opening."""
        self._busy = False
        self._failures = Failures(opening)

    @property
    def key(self) -> LaneKey:
        """Input topic and lane number."""
        return self.opening.address.input_topic, self.opening.number

    @property
    def next(self) -> int:
        """Sum of the first unprocessed offsets of the input partitions; 0 before the first opening."""
        return sum(self.next_by_partition.values())

    @property
    def next_by_partition(self) -> dict[int, int]:
        """First unprocessed offset of each partition of the input topic; empty before the first opening."""
        topic = self.opening.address.input_topic
        return {partition: cursor.next for (name, partition), cursor in self.cursors.items() if name == topic}

    def seconds_covered(self) -> float | None:
        """Return the seconds between the oldest and the newest ID of the ring; None if the lane is closed or has fewer than two."""
        return self.opening.table.seconds_covered() if self._opened is not None else None

    def coverage(self) -> Coverage | None:
        """Return whether the ring keeps its promise in time; None if the lane is closed or has no such promise."""
        return self.opening.table.coverage() if self._opened is not None else None

    @property
    def idle(self) -> bool:
        """Whether the lane is open and has no batch."""
        return self._opened is not None and self.state is LaneState.OPEN and not (self._kept or self._mail)

    def fits(
        self, ends: Mapping[tuple[str, int], int], committed: Mapping[tuple[str, int], int | None]
    ) -> bool:
        """Return whether these offsets show no loss. Otherwise call :meth:`compare`, which queries the cluster."""
        return all(cursor.fits(ends, committed) for cursor in self.cursors.values())

    async def compare(self) -> None:
        """Compare an idle lane with the cluster, and reopen it if the cluster lost data. A busy lane notices this itself."""
        opened = self._opened
        if opened is None or not self.idle:
            return
        try:
            for cursor in opened.cursors.values():
                await cursor.compare(opened.cluster)
        except ClusterWentBackError as error:
            if self._opened is opened and not self._busy:
                self._doubt(error)

    def refuse(self, faults: Iterable[str]) -> None:
        """Stop an open lane whose topics have these problems."""
        if self._opened is not None:
            self._doubt(LaneRefusedError("; ".join(faults)))

    def apply_sizes(self, bytes_max: Mapping[str, int]) -> None:
        """Compare the ``max.message.bytes`` of topics with the values at the opening; reopen the lane after a change."""
        if self._opened is None:
            return
        try:
            require_sizes(self._opened.outputs.bytes_max, bytes_max)
        except TopicChangedError as error:
            self._doubt(error)

    def apply_changelog(self, topic_id: str | None) -> None:
        """Reopen the lane if the changelog's Kafka ID differs from the one at the opening. None = the topic does not exist now."""
        topic = self.opening.changelog
        if self._opened is not None and topic_id not in {None, self._opened.topic_ids[topic]}:
            self._doubt(
                ChangelogRecreatedError(
                    f"{topic} was deleted and created again: the lane reopens and writes its IDs into it"
                )
            )

    def apply_agreement(self) -> None:
        """Apply the limits that all live workers state now: a lane that keeps other limits reopens."""
        if self._opened is not None and self.opening.keeps_limits:
            self._doubt(LimitsAgreedError("all live workers state the same limits now: the ring adopts them"))

    def apply_usable_folder(self) -> None:
        """Reopen a lane that keeps its files in memory, because its folder is writable again."""
        if self._opened is not None and self.opening.table.store.in_memory:
            self._doubt(FolderUsableError("its folder is writable again, and its state moves back there"))

    def _doubt(self, error: Exception) -> None:
        """Record a problem found between batches: the lane must reopen, or must stop."""
        self._failed(error)
        self._wake.set()  # also if the task pauses and must keep pausing

    # -- called by the owner of the lane ---------------------------------------------------------------------

    def start(self, ownership: Ownership, given: Collection[Partition] | None = None) -> None:
        """Open the assigned lane, or resume it, until :meth:`suspend` or :meth:`close`. ``given``: assigned inputs; None = all."""
        if not self._standing.is_set():
            raise AssertionError(f"lane {self.name} is started while it runs")
        self._mail.clear()
        self._kept = []
        self._given = given
        self._failures.waited()
        self._tenure.assigned(ownership)
        self._set(LaneState.OPENING)
        self._disturb()

    async def suspend(self) -> None:
        """Finish the running transaction because a rebalance began. Start no other until :meth:`start`."""
        if self._task is None:
            return
        self._tenure.revoked()
        self._disturb()
        await self._still(self._task)
        self._set(LaneState.CLOSED if self._opened is None else LaneState.SUSPENDED)

    async def close(self) -> None:
        """Finish the running transaction, then stop. RocksDB stays open for the next :meth:`start`."""
        if self._task is None or self._task.done():
            return
        self._tenure.ended()
        self._disturb()
        await self._still(self._task)
        self._set(LaneState.CLOSED)
        log.info("lane %s closed at %s", self.name, self._shown_offsets())

    async def dispose(self) -> None:
        """Close the lane and its RocksDB."""
        await self.close()
        self.opening.table.close()

    async def offer(self, batch: FetchedBatch) -> None:
        """Hand over a batch; wait while the lane is busy. A lane that may not start work discards it: it will be fetched again."""
        while self._tenure.right is not None:
            if self._mail.add(batch):
                self._wake.set()
                return
            self._room.clear()
            await self._room.wait()

    def _disturb(self) -> None:
        self._room.set()
        super()._disturb()

    async def _still(self, task: "asyncio.Task[None]") -> None:
        if not await set_within(self._standing, DRAIN_LIMIT_S):
            log.warning("lane %s: its transaction did not end in time; the next owner aborts it", self.name)
            await cancelled(task)

    # -- the task ------------------------------------------------------------------------------------------

    async def _open(self, right: Ownership) -> Opened:
        opened = await self.opening.open(right, self._given)
        self.cursors = opened.cursors
        self._failures.waited()
        async with opened.producer.kept():
            await self._read_held_again(opened)
        if not self._kept:
            self._set(LaneState.OPEN)
        return opened

    def _shown_offsets(self) -> str:
        return described(self.cursors, self.opening.address.input_topic)

    async def _resume(self, right: Ownership, opened: Opened) -> None:
        await self.opening.resume(right, opened, self._given)
        self._failures.waited()
        self._set(LaneState.OPEN)
        log.info("lane %s resumes at %s", self.name, self._shown_offsets())

    async def _work(self, right: Ownership, opened: Opened) -> None:
        while batches := await self._take():
            self._busy = True
            try:
                self._kept = await self.transactions.process(batches, opened, right)
            finally:
                self._busy = False
            left = {batch.partition for batch in self._kept}
            for batch in batches:
                if batch.partition not in left:
                    batch.free()
            del batch, batches  # frees their memory while the lane waits for the next batches
            self._tenure.succeeded()
            self._failures.succeeded()
            if self._step() is Action.WORK:
                self._set(LaneState.OPEN)

    def _set(self, state: LaneState, reason: str = "", *, folder_fault: bool = False) -> None:
        self.folder_fault = folder_fault
        if (state, reason) != (self.state, self.reason):
            self.state, self.reason = state, reason
            self._changed()

    async def _drop(self, opened: Opened) -> None:
        await opened.producer.discard()

    def _failed(self, error: BaseException) -> None:
        """Give up the opening and reopen. This happens at once, because an open transaction blocks readers of the outputs."""
        if isinstance(error, LaneRefusedError):
            if (self.state, self.reason) != (LaneState.REFUSED, str(error)):
                log.error("lane %s stopped: %s", self.name, error)
            self._set(LaneState.REFUSED, str(error))
            self._tenure.failed(time.monotonic() + REFUSED_AGAIN_S)
            return
        keeps = isinstance(error, NotOwnerError) and self._opened is not None
        if not keeps:
            self.counts["fenced" if isinstance(error, FencedError) else "retries"] += 1
        delay = back_off(self._tenure.attempts + 1, BACKOFF_FIRST_S, BACKOFF_MAX_S)
        self._tenure.failed(time.monotonic() + delay, keeps=keeps)
        folder_fault = isinstance(error, StateFolderError)
        state = LaneState.OPENING if self._failures.reopens(error) else LaneState.RETRYING
        self._set(state, self._failures.reason(error), folder_fault=folder_fault)
        self._failures.say(error, delay, self._tenure.attempts)

    async def _read_held_again(self, opened: Opened) -> None:
        """Read the failed batches again from the log. The consumer fetches the batches behind them again."""
        found = await asyncio.gather(*(self._read_again(batch, opened) for batch in self._kept))
        self._kept = list(filter(None, found))

    async def _read_again(self, kept: FetchedBatch, opened: Opened) -> FetchedBatch | None:
        """Read a failed batch again from the log; None = the consumer fetches it again."""
        cursor = opened.cursors.get((kept.topic, kept.partition))
        if cursor is None or kept.begin > cursor.next:
            return None  # records before it were discarded in the meantime
        try:
            again = await read_again(opened.cluster, kept)
        except (TimeoutError, KafkaTimeoutError):  # the partition may have no leader
            return None
        return again and cursor.renew(again)

    async def _take(self) -> list[FetchedBatch]:
        """Return the kept batches, or else the next ones; empty when another step is due."""
        while self._step() is Action.WORK:
            if self._kept:
                return self._kept
            self._kept = self._mail.pop_batches()
            if self._kept:
                self._room.set()
                return self._kept
            await self._await_wake()
        return []

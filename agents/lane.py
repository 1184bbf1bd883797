"""A lane: one partition of an address; the unit of ownership, order, state and transaction.

Two promises live here.

*No record is ever stepped over.* Each batch says where its fetch began. A lane drops what lies below the offset
that comes next and refuses a batch that begins above it. On any failure it keeps the batch, discards its
producer, opens again, trims the batch to the new offset and runs it again: later batches, already queued, would
otherwise commit over the failed one.

*State follows the commit.* Ring and RocksDB change after the transaction was committed, under the epoch of the
opening that it was made in.
"""

import asyncio
import contextlib
import logging
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from agents.batch import FetchedBatch, Record
from agents.emitter import changelog_batches
from agents.opening import LaneRefusedError, NotOwnerError, Opened, Opening, Ownership, TopicMissingError
from agents.verdict import identify
from conf.errors import RingfenceError
from tables.changelog import ChangelogStalledError
from tables.codec import Origin
from tables.failpoints import reach
from tables.producer import FencedError
from tables.ring import Verdict

log: Final = logging.getLogger("ringfence.lane")

MAIL_MAX: Final = 2
"""Batches waiting in the lane; more wait in Faust's buffer and then in the broker."""
TRANSACTION_LIMIT_S: Final = 15.0
"""For one transaction: longer than any healthy one, and shorter than the broker's time-out of 60 s."""
DRAIN_LIMIT_S: Final = 8.0
"""How long closing waits for the transaction under way."""
BACKOFF_FIRST_S: Final = 0.1
BACKOFF_MAX_S: Final = 5.0
_EXPECTED: Final = (
    KafkaError,
    OSError,
    TimeoutError,
    TopicMissingError,
    ChangelogStalledError,
    RingfenceError,
)
"""What a cluster and a disk do; anything else shows its trace once."""


class LaneState(StrEnum):
    """What health shows."""

    CLOSED = "closed"
    OPENING = "opening"
    OPEN = "open"
    RETRYING = "retrying"
    """Something is refused or away; the lane keeps its batch and tries again."""
    REFUSED = "refused"
    """The lane must not run until a person has acted; the reason says how."""


class Lane:
    """Runs one lane in a task of its own, so that Faust may cancel its actors at any await."""

    def __init__(self, opening: Opening, changed: Callable[[], None] = lambda: None) -> None:
        """``changed`` is called whenever the state may have changed."""
        self.name = opening.name
        self.state = LaneState.CLOSED
        self.reason = ""
        """Why the lane is not open, for logs and health."""
        self.counts: Counter[str] = Counter()
        self.next = 0
        """First input offset that is not yet processed; known once the lane is open."""
        self._opening = opening
        self._changed = changed
        self._mail: deque[FetchedBatch] = deque()
        self._kept: FetchedBatch | None = None
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._opened: Opened | None = None
        self._seek = 0
        self._busy = False
        """A batch is being processed."""

    # -- what its owner calls ------------------------------------------------------------------------------

    def start(self, ownership: Ownership) -> None:
        """Open and work until :meth:`close`. The predecessor must be closed."""
        if self._task is not None:
            raise AssertionError(f"lane {self.name} is started while it runs")
        self._closing.clear()
        self._mail.clear()
        self._kept = None
        self._seek = 0
        self._set(LaneState.OPENING)
        self._task = asyncio.create_task(self._run(ownership), name=f"lane {self.name}")

    async def close(self) -> None:
        """Finish the transaction under way, then stop. RocksDB stays open for the next :meth:`start`."""
        task, self._task = self._task, None
        if task is None:
            return
        self._closing.set()
        self._wake.set()
        self._room.set()
        if not self._busy:
            task.cancel()  # opening or waiting: nothing is half-done that the next fence does not end
        done, _ = await asyncio.wait([task], timeout=DRAIN_LIMIT_S)
        if not done:
            log.warning("lane %s: its transaction does not end; left to the next owner's fence", self.name)
            task.cancel()
            await asyncio.wait([task])
        self._set(LaneState.CLOSED)
        log.info("lane %s closed at offset %d", self.name, self.next)

    async def dispose(self) -> None:
        """Close for good, RocksDB included."""
        await self.close()
        self._opening.table.close()

    async def offer(self, batch: FetchedBatch) -> None:
        """Hand over a batch; waits while the lane is busy. A closed lane drops it: it will be fetched again."""
        while len(self._mail) >= MAIL_MAX and not self._closing.is_set():
            self._room.clear()
            await self._room.wait()
        if self._task is not None and not self._closing.is_set():
            self._mail.append(batch)
            self._wake.set()

    # -- the task ------------------------------------------------------------------------------------------

    async def _run(self, ownership: Ownership) -> None:
        """Open, work; on any failure begin again. Nothing but cancellation leaves here."""
        attempt = 0
        while not self._closing.is_set():
            try:
                self._opened = await self._opening.open(ownership)
                self.next = self._opened.next
                if self._kept is None:
                    self._set(LaneState.OPEN)
                while (batch := await self._take()) is not None:
                    self._busy = True
                    await self._process(batch, self._opened, ownership)
                    self._busy, self._kept = False, None
                    attempt = 0
                    self._set(LaneState.OPEN)
            except LaneRefusedError as error:
                self._set(LaneState.REFUSED, str(error))
                log.error("lane %s stopped: %s", self.name, error)
                await self._closing.wait()
            except Exception as error:  # noqa: BLE001 - a lane that dies loses its partition in silence
                attempt += 1
                await (
                    self._discard()
                )  # before the wait: an open transaction holds back readers of the outputs
                await self._retry_later(error, attempt)
            finally:
                self._busy = False
                await self._discard()

    def _set(self, state: LaneState, reason: str = "") -> None:
        if (state, reason) != (self.state, self.reason):
            self.state, self.reason = state, reason
            self._changed()

    async def _discard(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.producer.discard()

    async def _retry_later(self, error: Exception, attempt: int) -> None:
        delay = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(attempt - 1, 10)) * random.uniform(0.8, 1.2)  # noqa: S311
        self._set(
            LaneState.RETRYING, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        )
        self.counts["fenced" if isinstance(error, FencedError) else "retries"] += 1
        if isinstance(error, FencedError):
            log.warning("lane %s fenced: %s; opening again in %.1f s", self.name, error, delay)
        elif isinstance(error, NotOwnerError):
            log.warning("lane %s waits: %s", self.name, error)
        else:
            log.warning("lane %s retrying in %.1f s (attempt %d): %s", self.name, delay, attempt, self.reason)
            if attempt == 1 and not isinstance(error, _EXPECTED):
                log.error("lane %s: this should not happen", self.name, exc_info=error)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), delay)

    async def _take(self) -> FetchedBatch | None:
        """The kept batch, else the next one; None when the lane is to close."""
        while not self._closing.is_set():
            if self._kept is not None:
                return self._kept
            if self._mail:
                self._kept = self._mail.popleft()
                self._room.set()
                return self._kept
            self._wake.clear()
            await self._wake.wait()
        return None

    # -- one batch -----------------------------------------------------------------------------------------

    async def _process(self, batch: FetchedBatch, opened: Opened, ownership: Ownership) -> None:
        """Verdicts, one transaction, then the state."""
        records = await self._admit(batch, opened, ownership)
        if records is None:
            return
        table, producer, opening = opened.table, opened.producer, self._opening
        checked = table.check(identify(records, opening.address.duplicate_id_headers))
        origins = [
            Origin(batch.partition, record.offset, record.timestamp)
            for record, verdict in zip(records, checked.verdicts, strict=True)
            if verdict is Verdict.ACCEPTED
        ]
        change = table.record(checked, origins, {batch.topic: batch.end}, opened.partition_counts)
        outputs = opened.emitter.emit(batch, records, checked.verdicts, producer.builder)
        state = changelog_batches(opening.changelog, opening.partition, change, producer.builder)
        async with asyncio.timeout(TRANSACTION_LIMIT_S):
            bases = await producer.transact(
                [*outputs, *state],
                {TopicPartition(batch.topic, batch.partition): batch.end},
                opening.group_id,
            )
        await reach("after-commit", self.name)
        position = bases[-1] + state[-1].builder.record_count() if bases[-1] >= 0 else 0
        await reach("before-store", self.name)
        table.apply(opened.epoch, change, position)
        await reach("after-store", self.name)
        self.next = batch.end
        self._count(checked.verdicts)

    async def _admit(
        self, batch: FetchedBatch, opened: Opened, ownership: Ownership
    ) -> Sequence[Record] | None:
        """The records that are due: what is below ``next`` was processed, what begins above it is refused."""
        if batch.end <= self.next:
            return None
        if batch.begin > self.next:
            if batch.seek < self._seek:
                return None  # fetched before the rewind that is already under way
            start = await opened.cluster.log_start(batch.topic, batch.partition)
            if start > self.next:
                self.counts["gap_records"] += start - self.next
                log.error(
                    "lane %s GAP: offsets %d to %d of %s/%d were deleted by retention before they were processed; "
                    "going on at %d",
                    self.name, self.next, start - 1, batch.topic, batch.partition, start,
                )  # fmt: skip
                self.next = start
            if batch.begin > self.next:
                log.info(
                    "lane %s: batch begins at %d, %d is next: reading again",
                    self.name,
                    batch.begin,
                    self.next,
                )
                self._seek = await ownership.rewind(batch.topic, batch.partition, self.next)
                return None
        if batch.begin >= self.next:
            return batch.records
        return [record for record in batch.records if record.offset >= self.next]

    def _count(self, verdicts: Sequence[Verdict]) -> None:
        self.counts["accepted"] += verdicts.count(Verdict.ACCEPTED)
        self.counts["duplicates"] += verdicts.count(Verdict.DUPLICATE)
        self.counts["unchecked"] += verdicts.count(Verdict.UNCHECKED)
        self.counts["batches"] += 1

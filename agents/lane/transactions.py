"""Turns batches of a lane into one transaction: outputs, changelog and input offsets are written together or not at all.

*State changes after the commit.* A restore repairs a crash between the two. In the other order, the ring would reject messages
that were never accepted.
"""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from aiokafka import TopicPartition

from agents.batch import native_records
from agents.batch.batch import DueRecords, FetchedBatch, Record
from agents.decision.decide import Outcome
from agents.decision.item import Place
from agents.lane.assignment import Ownership
from agents.lane.batch_split import BatchSplit
from agents.lane.cursor import next_offsets
from agents.lane.errors import QUESTION_LIMIT_S, TopicChangedError, require_sizes
from agents.lane.open import Opened, Opening
from agents.lane.outcome_counts import CoverageLog, Observe, OutcomeCounts
from agents.lane.tracing import batch_span
from agents.output.changelog import changelog_batches, position_behind
from agents.output.topic_batches import TooLargeError
from ringfence_kafka.ownership.partition_state import NotOwnerError
from ringfence_kafka.process.failpoints import reach
from ringfence_kafka.producer.transactional import FencedError, Outgoing
from tables.change import Change
from tables.codec import Meta, next_key

log: Final = logging.getLogger("ringfence.lane")

Took = Callable[[float], None]
"""Called after each transaction with its latency in seconds: from the fetch request of the first batch until readers can see the outputs."""

TRANSACTION_LIMIT_S: Final = 15.0
"""Limit of one transaction, in seconds: longer than a healthy one takes, shorter than the broker's time-out of 60 s."""

PRIME_LIMIT_S: Final = TRANSACTION_LIMIT_S
"""Limit of the transaction that precedes old records, in seconds."""
SAY_REFUSED_S: Final = 5.0
"""Minimum time between two log lines about quarantine, in seconds."""
_Plan = tuple[Outcome, list[Outgoing], Change, list[Outgoing]]
"""Outcome of a batch, its output batches, the change of the table, and the batches of the changelog."""


class Transactions:
    """Transactions of one lane, over all its openings."""

    def __init__(
        self,
        opening: Opening,
        counts: Counter[str],
        observe: Observe = lambda _seconds, _parts: None,
        took: Took = lambda _seconds: None,
    ) -> None:
        """Create the transactions. ``counts``: counter of the lane, which this object adds to."""
        self._took = took
        self._name = opening.name
        self._opening = opening
        self._counts = counts
        self.outcomes = OutcomeCounts(opening, counts, observe)
        self._coverage = CoverageLog(opening.name, counts)
        self._marked: dict[tuple[str, int], float] = {}
        """Monotonic time of this opening's last write to each output partition, in seconds."""
        self._marked_by: Opened | None = None
        self._divided = BatchSplit()
        self._unsaid = 0
        """Number of quarantined records that are not logged yet."""
        self._say_refused_at = 0.0

    async def process(
        self, batches: Sequence[FetchedBatch], opened: Opened, ownership: Ownership
    ) -> list[FetchedBatch]:
        """Decide about batches of one topic, commit one transaction, then change the state. Each batch is from a different partition.

        Return the remaining parts of the batches, for the next transaction. After an error the outcome of the transaction is unknown: discard the
        opening and process the batches again.
        """
        await reach("after-fetch", self._name)
        due = [
            DueRecords(batch, records)
            for batch in batches
            if (records := await self._admit(batch, opened, ownership)) is not None
        ]
        if not due:
            return []
        part = self._part(due)
        count = sum(len(records) for _, records in part)
        try:
            with batch_span(self._name, part):
                done = await self._transact(part, opened)
        except (FencedError, NotOwnerError, TopicChangedError):
            raise
        except Exception:
            if self._divided.failed(count):
                batch, records = next(each for each in part if each.records)
                log.info(
                    "lane %s: a transaction failed at %s/%d offset %d: at most %d records a transaction "
                    "until one succeeds",
                    self._name, batch.topic, batch.partition, records[0].offset, self._divided.records_max,
                )  # fmt: skip
            raise
        self._divided.succeeded()
        return [rest for batch, _ in due if (rest := _rest(batch, done.get(batch.partition, batch.begin)))]

    async def _admit(
        self, batch: FetchedBatch, opened: Opened, ownership: Ownership
    ) -> Sequence[Record] | None:
        """Return the records of a batch that are to be processed; None if it has none."""
        cursor = opened.cursors.get((batch.topic, batch.partition))
        if cursor is None:
            return None
        before = cursor.gap_records
        async with asyncio.timeout(QUESTION_LIMIT_S):
            records = await cursor.admit(batch, opened.cluster, ownership)
        self._counts["gap_records"] += cursor.gap_records - before
        return records

    def _part(self, due: Sequence[DueRecords]) -> list[DueRecords]:
        left, part = self._divided.records_max, []
        for batch, records in due:
            if len(records) > left:
                if left:
                    part.append(DueRecords(replace(batch, end=records[left].offset), records[:left]))
                break
            part.append(DueRecords(batch, records))
            left -= len(records)
        return part

    async def _transact(self, due: Sequence[DueRecords], opened: Opened) -> dict[int, int]:
        """Process the records in one transaction. Return the offset up to which each partition is processed."""
        table, producer, opening = opened.table, opened.producer, self._opening
        began, written_at = time.perf_counter(), time.monotonic()
        outcome, outputs, change, state = await self._plan(due, opened)
        topic = due[0].batch.topic
        ends = {batch.partition: end for (batch, _), end in zip(due, outcome.ends, strict=True)}

        async def approve(bases: list[int]) -> None:
            nonlocal written_at
            written_at = time.monotonic()
            for point in _points(outcome, change.meta.capacity, table.meta):
                await reach(point, self._name)
            if 0 <= bases[-1] < table.position:
                await self._behind(opened)

        await self._prime(outputs, opened)
        async with asyncio.timeout(TRANSACTION_LIMIT_S):
            bases = await producer.transact(
                [*outputs, *state],
                {TopicPartition(topic, partition): end for partition, end in ends.items()},
                opening.group_id,
                approve,
            )
        # Readers see the outputs when the commit marker is written. The coordinator answers first and then writes the marker
        # with one more request (KIP-98), so the same time is added again.
        marker_s = time.monotonic() - written_at
        self._marked |= dict.fromkeys(
            ((output.topic, output.partition) for output in outputs), time.monotonic()
        )
        await reach("after-commit", self._name)
        await reach("before-store", self._name)
        promise = table.ring.promise
        table.apply(opened.epoch, change, position_behind(state, bases))
        self._coverage.count(promise, table)
        await reach("after-store", self._name)
        for partition, end in ends.items():
            opened.cursors[topic, partition].done(end)
        if any(batch.records for batch, _ in due):  # a batch without records only has markers
            self.outcomes.count(outcome, due, time.perf_counter() - began, opened.layout.partitions)
            asked_at = min(
                (batch.asked_at for batch, _ in due if batch.records and batch.asked_at), default=0.0
            )
            if asked_at:
                self._took(time.monotonic() - asked_at + marker_s)
        return ends

    async def _prime(self, outputs: Sequence[Outgoing], opened: Opened) -> None:
        """Write a current timestamp to the output partitions of old records, so that retention does not delete these too soon."""
        if self._marked_by is not opened:
            self._marked, self._marked_by = {}, opened
        aged = {(output.topic, output.partition) for output in outputs if output.aged}
        now_s, aged_ms = time.monotonic(), opened.outputs.aged_ms
        due = [
            place
            for place in aged
            if (now_s - self._marked.get(place, -math.inf)) * 1000 >= aged_ms[place[0]]
        ]
        if not due:
            return
        async with asyncio.timeout(PRIME_LIMIT_S):
            await opened.producer.prime(due)
        self._marked |= dict.fromkeys(due, time.monotonic())

    async def _behind(self, opened: Opened) -> None:
        """Find out whether only the changelog lost its end, below this lane's last write. Raises as :meth:`Cursor.compare`."""
        for cursor in opened.cursors.values():
            await cursor.compare(opened.cluster)
        log.error(
            "lane %s: %s/%d lost its last records and the input did not; the lane continues with the IDs "
            "in RocksDB and memory. Another worker, or this one without its data_dir, would accept "
            "duplicates of them",
            self._name, self._opening.changelog, self._opening.number,
        )  # fmt: skip

    async def _plan(self, due: Sequence[DueRecords], opened: Opened) -> _Plan:
        """Decide and build the batches: in the native core if possible, else in Python."""
        opening, table = self._opening, opened.table
        given = opened.partition_counts, opened.topic_ids
        plan = opened.native_path.plan(due, table)
        if plan is not None:
            nexts = self._next_offsets(due, plan.outcome, opened)
            change = table.record_slots(plan.outcome.checked, plan.slots, nexts, *given)
            state = opened.native_path.closed_by_meta(plan.state, change)
            return plan.outcome, plan.outputs, change, state
        for batch, _ in due:
            batch.unpack()
        outcome, outputs = await self._plan_in_python(due, opened)
        nexts = self._next_offsets(due, outcome, opened)
        change = table.record(outcome.checked, outcome.new_origins, nexts, *given, outcome.judged)
        state = changelog_batches(opening.changelog, opening.number, table, change, opened.producer.builder)
        return outcome, outputs, change, state

    def _next_offsets(self, due: Sequence[DueRecords], outcome: Outcome, opened: Opened) -> dict[str, int]:
        """Return the next offset of each input after a transaction, for the meta record."""
        lanes = self._opening.address.lanes
        nexts = next_offsets(opened.cursors, lanes)
        for (batch, _), end in zip(due, outcome.ends, strict=True):
            nexts[next_key(batch.topic, batch.partition, lanes)] = end
        return nexts

    async def _plan_in_python(
        self, due: Sequence[DueRecords], opened: Opened
    ) -> tuple[Outcome, list[Outgoing]]:
        """Decide and build the batches in Python. Repeat without the records that are too large for an output.

        Raises TopicChangedError if a size limit changed since the opening: the lane reopens instead of rejecting records.
        """
        # A native record is created at each access, and this code accesses records several times.
        due = [DueRecords(batch, list(records)) for batch, records in due]
        refused = {
            (batch.partition, record.offset): batch.malformed[record.offset]
            for batch, records in due
            if batch.malformed
            for record in records
            if record.offset in batch.malformed
        }
        confirmed = False
        while True:
            outcome = opened.path.decide(due, opened.table, refused)
            try:
                outputs = opened.emitter.emit(outcome, opened.producer.builder, sizes_confirmed=confirmed)
            except TooLargeError as error:
                if not confirmed:
                    await _confirm_sizes(opened)
                    confirmed = True
                refused |= error.reasons
                continue
            reasons = {item.place: item.reason for item in outcome.quarantined}
            self._say_refused(due[0].batch.topic, reasons)
            return outcome, outputs

    def _say_refused(self, topic: str, reasons: dict[Place, str]) -> None:
        """Log quarantined records, but not each one: an output limit that was lowered may affect all records."""
        if not reasons:
            return
        self._unsaid += len(reasons)
        if time.monotonic() < self._say_refused_at:
            return
        (partition, offset), reason = next(iter(reasons.items()))
        rest = f", and so did {self._unsaid - 1} more since the last such line" if self._unsaid > 1 else ""
        log.warning(
            "lane %s: %s/%d/%d goes to quarantine: %s%s",
            self._name, topic, partition, offset, reason, rest,
        )  # fmt: skip
        self._say_refused_at, self._unsaid = time.monotonic() + SAY_REFUSED_S, 0


def _rest(batch: FetchedBatch, done: int) -> FetchedBatch | None:
    """Return the part of a batch from the offset ``done`` on; None if the whole batch is processed."""
    if done >= batch.end:
        return None
    return replace(batch, begin=done, records=native_records.since(batch.records, done), asked_at=0.0)


async def _confirm_sizes(opened: Opened) -> None:
    """Query the size limits of the outputs again, because one may have been raised. Raises as :func:`require_sizes`."""
    async with asyncio.timeout(QUESTION_LIMIT_S):
        described = (await opened.cluster.topics.describe(opened.outputs.bytes_max)).topics
    sizes = {name: topic.message_bytes_max for name, topic in described.items() if topic.config is not None}
    require_sizes(opened.outputs.bytes_max, sizes)


def _points(outcome: Outcome, capacity: int, last: Meta | None) -> list[str]:
    """Return the fail points of a transaction with forwarded records or a changed capacity."""
    points = ["forwarding"] if outcome.forwarded else []
    return [*points, "re-slotting"] if last is not None and last.capacity != capacity else points

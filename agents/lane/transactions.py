"""A batch of a lane becomes a transaction: outputs, changelog and input offset, all or none.

*State follows the commit.* The restore heals a crash between the two; the other way round the ring would reject what was never accepted.
"""

import asyncio
import dataclasses
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from aiokafka import TopicPartition

from agents.batch import native_records
from agents.batch.batch import FetchedBatch, Record
from agents.decision.decide import Outcome
from agents.decision.ids_and_groups import is_envelope
from agents.lane.assignment import Ownership
from agents.lane.batch_split import BatchSplit
from agents.lane.cursor import Cursor
from agents.lane.errors import QUESTION_LIMIT_S, TopicChangedError, require_sizes
from agents.lane.forwarding_hint import ForwardingHint
from agents.lane.open import Opened, Opening
from agents.lane.tracing import batch_span
from agents.output.build import TooLargeError
from agents.output.changelog import changelog_batches
from ringfence_kafka.ownership.partition_state import NotOwnerError
from ringfence_kafka.process.failpoints import reach
from ringfence_kafka.producer.transactional import FencedError, Outgoing
from tables.change import Change
from tables.codec import Meta
from tables.ring import Verdict

log: Final = logging.getLogger("ringfence.lane")

Observe = Callable[[float, Sequence[int]], None]
"""Told of each batch how many seconds it took, and how many parts each envelope had that was accepted in it."""
Took = Callable[[float], None]
"""Told of each batch how many seconds passed from asking for it until readers could have what came of it."""

TRANSACTION_LIMIT_S: Final = 15.0
"""For one transaction: longer than any healthy one, and shorter than the broker's time-out of 60 s."""

PRIME_LIMIT_S: Final = TRANSACTION_LIMIT_S
"""For the transaction that goes before old records."""
SAY_REFUSED_S: Final = 5.0
"""Between two lines about quarantine."""
_COUNTED_AS: Final = {
    Verdict.ACCEPTED: "transactions_accepted",
    Verdict.DUPLICATE: "transactions_duplicates",
    Verdict.UNCHECKED: "transactions_unchecked",
}


_Plan = tuple[Outcome, list[Outgoing], Change, list[Outgoing]]
"""What becomes of a batch, its output batches, what it does to the table, and the changelog's batches."""


class Transactions:
    """Those of one lane, over all its openings."""

    def __init__(
        self,
        opening: Opening,
        counts: Counter[str],
        observe: Observe = lambda _seconds, _parts: None,
        took: Took = lambda _seconds: None,
    ) -> None:
        """``counts`` is the lane's and is counted on."""
        self._observe = observe
        self._took = took
        self._name = opening.name
        self._opening = opening
        self._counts = counts
        self.parts: Counter[str] = Counter()
        """Parts of envelopes that were accepted, by the address that they were accepted for."""
        self._forwarding = ForwardingHint(opening.address, chained=opening.chained)
        self._marked: dict[tuple[str, int], float] = {}
        """Output partitions that this opening wrote to: when last, by the monotonic clock."""
        self._marked_by: Opened | None = None
        self._divided = BatchSplit()
        self._unsaid = 0
        """Records that went to quarantine without a line."""
        self._say_refused_at = 0.0

    async def run(self, batch: FetchedBatch, opened: Opened, ownership: Ownership) -> FetchedBatch | None:
        """Decide, one transaction, then the state.

        Returns:
            What is left of the batch, for a transaction of its own; None = nothing.

        Raises:
            Exception: nothing is known of the outcome; the opening is to be discarded and the batch to be run again.
        """
        cursor = opened.cursors.get(batch.topic)
        if cursor is None:
            return None
        await reach("after-fetch", self._name)
        before = cursor.gap_records
        async with asyncio.timeout(QUESTION_LIMIT_S):
            records = await cursor.admit(batch, opened.cluster, ownership)
        self._counts["gap_records"] += cursor.gap_records - before
        if records is None:
            return None
        part, records = self._part(batch, records)
        try:
            with batch_span(self._name, batch.topic, batch.partition, records):
                done = await self._transact(part, records, opened, cursor)
        except (FencedError, NotOwnerError, TopicChangedError):
            raise
        except Exception:
            if self._divided.failed(len(records)):
                log.info(
                    "lane %s: %s/%d from offset %d on: at most %d at a time, until that goes well",
                    self._name, batch.topic, batch.partition, records[0].offset, self._divided.records_max,
                )  # fmt: skip
            raise
        self._divided.succeeded()
        if done == batch.end:
            return None
        return dataclasses.replace(
            batch, begin=done, records=native_records.since(batch.records, done), asked_at=0.0
        )

    def _part(self, batch: FetchedBatch, records: Sequence[Record]) -> tuple[FetchedBatch, Sequence[Record]]:
        """What goes into one transaction, of what is due."""
        count = self._divided.records_max
        if len(records) <= count:
            return batch, records
        return dataclasses.replace(batch, end=records[count].offset), records[:count]

    async def _transact(
        self, batch: FetchedBatch, records: Sequence[Record], opened: Opened, cursor: Cursor
    ) -> int:
        """Returns up to where it is done."""
        table, producer, opening = opened.table, opened.producer, self._opening
        began, written_at = time.perf_counter(), time.monotonic()
        outcome, outputs, change, state = await self._plan(batch, records, opened)

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
                {TopicPartition(batch.topic, batch.partition): outcome.end},
                opening.group_id,
                approve,
            )
        # Readers get it with its marker. The coordinator writes that behind its answer, by a request of its own (KIP-98): as long again.
        marker_s = time.monotonic() - written_at
        self._marked |= dict.fromkeys(
            ((output.topic, output.partition) for output in outputs), time.monotonic()
        )
        await reach("after-commit", self._name)
        position = bases[-1] + state[-1].builder.record_count() if bases[-1] >= 0 else 0
        await reach("before-store", self._name)
        table.apply(opened.epoch, change, position)
        await reach("after-store", self._name)
        cursor.done(outcome.end)
        if batch.records:  # else it was passed over markers
            lanes = opened.partition_counts[self._opening.address.input_topic]
            self._count(outcome, time.perf_counter() - began, lanes)
            if batch.asked_at:
                self._took(time.monotonic() - batch.asked_at + marker_s)
        return outcome.end

    async def _prime(self, outputs: Sequence[Outgoing], opened: Opened) -> None:
        """Before what is old is written: see that retention does not take it for what it has kept long enough."""
        if self._marked_by is not opened:
            self._marked, self._marked_by = {}, opened
        aged = {(output.topic, output.partition) for output in outputs if output.aged}
        due = [place for place in aged if not self._marked_lately(place, opened)]
        if not due:
            return
        async with asyncio.timeout(PRIME_LIMIT_S):
            await opened.producer.prime(due)
        self._marked |= dict.fromkeys(due, time.monotonic())

    def _marked_lately(self, place: tuple[str, int], opened: Opened) -> bool:
        at = self._marked.get(place)
        return at is not None and (time.monotonic() - at) * 1000 < opened.outputs.aged_ms[place[0]]

    async def _behind(self, opened: Opened) -> None:
        """The changelog ends below what this lane has written there: is it alone in that?

        Raises:
            ClusterWentBackError: the group's offset went back too: memory knows what the cluster no longer does.
        """
        for cursor in opened.cursors.values():
            await cursor.compare(opened.cluster)
        log.error(
            "lane %s: %s/%d lost its tail and the input did not; going on with what RocksDB and memory know: "
            "another worker, or this one without its data_dir, would accept resends of what was lost",
            self._name, self._opening.changelog, self._opening.partition,
        )  # fmt: skip

    async def _plan(self, batch: FetchedBatch, records: Sequence[Record], opened: Opened) -> _Plan:
        """Decide and build: by the core, or else in Python."""
        opening, table = self._opening, opened.table
        nexts = {cursor.topic: cursor.next for cursor in opened.cursors.values()}
        given = opened.partition_counts, opened.topic_ids
        plan = opened.native_path.plan(batch, records, table)
        if plan is not None:
            nexts[batch.topic] = batch.end
            change = table.record_slots(plan.outcome.checked, plan.slots, nexts, *given)
            state = opened.native_path.closed_by_meta(plan.state, change)
            return plan.outcome, plan.outputs, change, state
        batch.unpack()
        outcome, outputs = await self._plan_in_python(batch, records, opened)
        nexts[batch.topic] = outcome.end
        change = table.record(outcome.checked, outcome.new_origins, nexts, *given, outcome.judged)
        state = changelog_batches(
            opening.changelog, opening.partition, table, change, opened.producer.builder
        )
        return outcome, outputs, change, state

    async def _plan_in_python(
        self, batch: FetchedBatch, records: Sequence[Record], opened: Opened
    ) -> tuple[Outcome, list[Outgoing]]:
        """Decide and build; again without the records that turn out to fit nowhere.

        Raises:
            TopicChangedError: a topic takes another size than at the opening, so the lane opens again instead of refusing records.
        """
        records = list(records)  # each is made once, and looked at several times
        refused = {
            record.offset: batch.malformed[record.offset]
            for record in (records if batch.malformed else ())
            if record.offset in batch.malformed
        }
        confirmed = False
        while True:
            outcome = opened.path.decide(batch, records, opened.table, refused)
            try:
                outputs = opened.emitter.emit(outcome, opened.producer.builder, sizes_confirmed=confirmed)
            except TooLargeError as error:
                if not confirmed:
                    await _confirm_sizes(opened)
                    confirmed = True
                refused |= error.reasons
                continue
            self._say_refused(batch, {item.record.offset: item.reason for item in outcome.quarantined})
            return outcome, outputs

    def _say_refused(self, batch: FetchedBatch, reasons: dict[int, str]) -> None:
        """Not of each: all of them may be too large for an output that somebody made smaller."""
        if not reasons:
            return
        self._unsaid += len(reasons)
        if time.monotonic() < self._say_refused_at:
            return
        offset, reason = next(iter(reasons.items()))
        rest = f", and so did {self._unsaid - 1} more since the last such line" if self._unsaid > 1 else ""
        log.warning(
            "lane %s: %s/%d/%d goes to quarantine: %s%s",
            self._name, batch.topic, batch.partition, offset, reason, rest,
        )  # fmt: skip
        self._say_refused_at, self._unsaid = time.monotonic() + SAY_REFUSED_S, 0

    def _count(self, outcome: Outcome, seconds: float, lanes: int) -> None:
        """``lanes``: how many the address has."""
        verdicts = outcome.checked.verdicts
        self._counts["accepted"] += verdicts.count(Verdict.ACCEPTED)
        self._counts["duplicates"] += verdicts.count(Verdict.DUPLICATE)
        self._counts["unchecked"] += verdicts.count(Verdict.UNCHECKED)
        self._counts["bridge_duplicates"] += sum(outcome.judged.known)
        self._counts["forwarded"] += len(outcome.forwarded)
        self._counts["quarantined"] += len(outcome.quarantined)
        self._counts["batches"] += 1
        self._observe(seconds, self._count_envelopes(outcome))
        self._forwarding.note(
            self._name,
            len(outcome.forwarded),
            len(verdicts),
            (item.home for item in outcome.forwarded),
            (self._opening.partition, lanes),
        )

    def _count_envelopes(self, outcome: Outcome) -> list[int]:
        """Each is counted as a message besides. How many parts those have that were accepted."""
        found: Counter[str] = Counter()
        sizes: list[int] = []
        found["transactions_quarantined"] = sum(is_envelope(item.record) for item in outcome.quarantined)
        for item, verdict in zip(outcome.here, outcome.checked.verdicts, strict=False):
            if item.unit is None:
                continue
            found[_COUNTED_AS[verdict]] += 1
            if verdict is not Verdict.DUPLICATE:
                self.parts.update(item.unit.addresses)
                sizes.append(len(item.unit.addresses))
        self._counts.update(+found)
        return sizes


async def _confirm_sizes(opened: Opened) -> None:
    """Ask again what the topics take: somebody may have raised a limit since the opening. Raises as :func:`require_sizes`."""
    async with asyncio.timeout(QUESTION_LIMIT_S):
        described = (await opened.cluster.topics.describe(opened.outputs.bytes_max)).topics
    sizes = {name: topic.message_bytes_max for name, topic in described.items() if topic.config is not None}
    require_sizes(opened.outputs.bytes_max, sizes)


def _points(outcome: Outcome, capacity: int, last: Meta | None) -> list[str]:
    """Fail points of a transaction that is not like the others."""
    points = ["forwarding"] if outcome.forwarded else []
    return [*points, "re-slotting"] if last is not None and last.capacity != capacity else points

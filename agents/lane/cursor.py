"""Position of a lane in one of its input partitions. Offsets below it are processed; no offset above it is skipped."""

import asyncio
import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agents.batch import native_records
from agents.batch.batch import FetchedBatch, Record
from agents.lane.assignment import Ownership, Partition
from agents.lane.errors import QUESTION_LIMIT_S
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.errors import require
from ringfence_kafka.producer.transactional import FencedError
from ringfence_kafka.readers.log_reader import LogReader
from ringfence_kafka.wording import first_of
from tables.codec import next_key

log: Final = logging.getLogger("ringfence.lane")

COMMIT_SHOWS_S: Final = 3.0
"""Time for the group's offset to show an acknowledged commit, in seconds. Healthy clusters write commit markers faster."""
COMMIT_ASKED_S: Final = 0.1
PARTITIONS_SHOWN: Final = 16
"""Maximum number of partitions of a lane that one log line names."""


class TopicRecreatedError(Exception):
    """An input was deleted and created again while the lane was open: the lane must open again."""


class ClusterWentBackError(Exception):
    """The cluster has less than the lane processed: it was restored from a backup or lost the end of a log. The lane must reopen."""


class Cursor:
    """First offset of one topic partition that is not processed yet."""

    def __init__(
        self,
        lane: str,
        topic: str,
        partition: int,
        next_offset: int,
        topic_id: str,
        committed: int | None,
        *,
        distrusts: bool = False,
    ) -> None:
        """Create the cursor at an opening. ``topic_id`` is Kafka's ID of the topic then, ``committed`` the group's offset."""
        self.topic = topic
        self.partition = partition
        self.next = next_offset
        self.gap_records = 0
        """Number of offsets that retention deleted before they were processed."""
        self.committed = -1 if committed is None else committed
        """Last known offset of the group. The cluster has a lower one only if it lost data."""
        self.distrusts = distrusts
        """Whether the group has an offset that the lane does not trust."""
        self._lane = lane
        self._topic_id = topic_id
        self._seek = 0

    async def restart(self, ownership: Ownership) -> None:
        """Fetch everything from ``next`` on again, whatever was fetched before.

        While the lane is closed it discards batches, and the consumer's position moves past them. Without this rewind, these
        records would wait until a later record shows the gap.
        """
        self._seek = await ownership.rewind(self.topic, self.partition, self.next)

    async def admit(
        self, batch: FetchedBatch, cluster: Cluster, ownership: Ownership
    ) -> Sequence[Record] | None:
        """Return the records to process; None if the batch has none.

        Records below ``next`` were processed. The lane refuses a batch that begins above ``next``, and fetches the missing
        records again. If retention deleted them, the lane logs GAP and continues.

        Raises:
            TopicRecreatedError: the topic was created again, so its offsets started again; this is not a replay.
            ClusterWentBackError: the cluster lost offsets that the lane processed; new records may have these offsets now.
            FencedError: another owner processed the missing records in between.
        """
        if batch.seek < self._seek:
            return None  # The batch was fetched before the latest rewind. Its records are fetched again.
        if batch.begin < self.next:
            self.require_topic(await cluster.topics.ids([self.topic]))
            await self.compare(cluster)
        if batch.end <= self.next:
            return None
        if batch.begin > self.next:
            start = await cluster.offsets.log_start(self.topic, self.partition)
            if start > self.next:
                await self._require_own(cluster)
                self._say_gap(start)
                self.next = start
            if batch.begin > self.next:
                log.info(
                    "lane %s: a batch of %s begins at %d instead of %d: reading again",
                    self._lane, self.topic, batch.begin, self.next,
                )  # fmt: skip
                self._seek = await ownership.rewind(self.topic, self.partition, self.next)
                return None
        if batch.begin >= self.next:
            return batch.records
        return native_records.since(batch.records, self.next)

    def require_topic(self, topic_ids: Mapping[str, str]) -> None:
        """Raise TopicRecreatedError if the topic has another Kafka ID than at the opening."""
        if topic_ids[self.topic] != self._topic_id:
            raise TopicRecreatedError(f"{self.topic} was deleted and created again")

    def renew(self, batch: FetchedBatch) -> FetchedBatch:
        """Return a batch that was read again, marked as fetched after the opening."""
        return dataclasses.replace(batch, seek=self._seek)

    def done(self, end: int) -> None:
        """Advance to ``end``: everything below it is processed and committed. The position never decreases."""
        require(
            end >= self.next, self.topic, self.partition, "is done up to", end, "and was up to", self.next
        )
        self.next = self.committed = end

    def fits(
        self, ends: Mapping[tuple[str, int], int], committed: Mapping[tuple[str, int], int | None]
    ) -> bool:
        """Return whether the given log end and committed offset are not below the known ones. Both may be out of date."""
        place = (self.topic, self.partition)
        if place not in ends or place not in committed:
            return False
        offset = committed[place]
        return ends[place] >= self.next and (-1 if offset is None else offset) >= self.committed

    async def compare(self, cluster: Cluster) -> None:
        """Raise ClusterWentBackError if the log end or the group's offset has decreased."""
        done, known = self.next, self.committed  # both can advance while the cluster is queried
        end = await cluster.offsets.high_watermark(self.topic, self.partition)
        if end < done:
            raise ClusterWentBackError(
                f"{self.topic}/{self.partition} ends at {end}, but was processed up to {done}: it lost its "
                "last records; reopening with the rest"
            )
        now = await self._committed_now(cluster)
        # A commit is acknowledged before the group's offset shows it.
        deadline = time.monotonic() + COMMIT_SHOWS_S
        while now < known and time.monotonic() < deadline:
            await asyncio.sleep(COMMIT_ASKED_S)
            now = await self._committed_now(cluster)
        if now < known:
            raise ClusterWentBackError(
                f"{self.topic}/{self.partition}: the group had committed {known}, and the cluster now has "
                f"{now}: an older state was restored; reopening from it"
            )

    async def _committed_now(self, cluster: Cluster) -> int:
        now = await cluster.groups.committed_offset(self.topic, self.partition)
        return -1 if now is None else now

    async def _require_own(self, cluster: Cluster) -> None:
        now = await self._committed_now(cluster)
        if now > self.next:
            raise FencedError(
                f"{self.topic}/{self.partition} was processed up to {now} by another owner, and here up to {self.next}"
            )

    def _say_gap(self, start: int) -> None:
        self.gap_records += start - self.next
        log.error(
            "lane %s GAP: offsets %d to %d of %s/%d were deleted by retention before they were processed; "
            "continuing at %d",
            self._lane, self.next, start - 1, self.topic, self.partition, start,
        )  # fmt: skip


def next_offsets(cursors: Mapping[Partition, Cursor], lanes: int) -> dict[str, int]:
    """Return the first unprocessed offset of each input, in the form of the meta record. ``lanes``: value of the address's setting."""
    return {next_key(topic, partition, lanes): cursor.next for (topic, partition), cursor in cursors.items()}


def described(cursors: Mapping[Partition, Cursor], topic: str) -> str:
    """Return the next offsets of a topic as text for a log line."""
    nexts = {partition: cursor.next for (name, partition), cursor in cursors.items() if name == topic}
    if len(nexts) < 2:
        return f"offset {next(iter(nexts.values()), 0)}"
    return f"offsets {first_of([f'{offset} of partition {number}' for number, offset in nexts.items()], PARTITIONS_SHOWN)}"


async def read_again(cluster: Cluster, held: FetchedBatch) -> FetchedBatch | None:
    """Read a kept batch again from the log.

    A broker that lost the end of its log reuses the lost offsets for other records, and one fetch may contain old and new records.
    Records that retention deleted in the meantime cannot be read, and no other record can have their offsets: they stay as they were fetched.

    Returns:
        The batch; None = the rewound consumer must fetch it, because only the consumer finds the problem of a malformed record.
    """
    if held.malformed:
        return None
    async with asyncio.timeout(QUESTION_LIMIT_S):
        start = max(held.begin, await cluster.offsets.log_start(held.topic, held.partition))
        end = min(held.end, await cluster.offsets.high_watermark(held.topic, held.partition))
        records: list[Any] = [record for record in held.records if record.offset < start]

        async def consume(found: Sequence[Any]) -> None:
            records.extend(item for item in found if item.offset < end)

        await LogReader(cluster.kafka).read_range(held.topic, held.partition, start, end, consume)
    return dataclasses.replace(held, end=end, records=records) if records else None

"""How far a lane is in one of its inputs: nothing below is processed again, nothing above is stepped to."""

import asyncio
import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final

from agents.batch import native_records
from agents.batch.batch import FetchedBatch, Record
from agents.lane.assignment import Ownership, Partition
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.errors import require
from ringfence_kafka.producer.transactional import FencedError
from ringfence_kafka.wording import first_of
from tables.codec import next_key

log: Final = logging.getLogger("ringfence.lane")

COMMIT_SHOWS_S: Final = 3.0
"""Longer than the markers of a commit take on a cluster that is well."""
COMMIT_ASKED_S: Final = 0.1
PARTITIONS_SHOWN: Final = 16
"""A line of the log names so many partitions of a lane."""


class TopicRecreatedError(Exception):
    """An input was deleted and created again while the lane was open: the lane must open again."""


class ClusterWentBackError(Exception):
    """The cluster knows less than the lane: it was restored from a backup, or lost its tail. The lane must open again."""


class Cursor:
    """The first offset of one topic partition that is not yet processed."""

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
        """``topic_id`` is Kafka's own, ``committed`` the group's offset, both of when the lane was opened."""
        self.topic = topic
        self.partition = partition
        self.next = next_offset
        self.gap_records = 0
        """Records that retention deleted before they were processed."""
        self.committed = -1 if committed is None else committed
        """The group's offset as we know it; the cluster's own can be lower only if it lost something."""
        self.distrusts = distrusts
        """Whether the group has another offset, which is not followed."""
        self._lane = lane
        self._topic_id = topic_id
        self._seek = 0

    async def begin(self, ownership: Ownership) -> None:
        """Have everything fetched from ``next`` on, whatever was fetched before.

        The lane discards a batch that comes between two openings, and the consumer is past it. Without this call, its records would wait
        until a later record shows that they are missing.
        """
        self._seek = await ownership.rewind(self.topic, self.partition, self.next)

    async def admit(
        self, batch: FetchedBatch, cluster: Cluster, ownership: Ownership
    ) -> Sequence[Record] | None:
        """Return the records that are due; None = none.

        Records below ``next`` were processed. The lane refuses a batch that begins above it, and fetches the missing records again. If
        retention deleted them, the lane logs GAP and continues.

        Raises:
            TopicRecreatedError: offsets went back because it is another topic of that name: not a replay.
            ClusterWentBackError: they did because the cluster lost them: what comes there now may be new.
            FencedError: what is missing was processed, by another owner that the lane had in between.
        """
        if batch.seek < self._seek:
            return None  # fetched before the rewind that is under way, and so fetched again
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
        """Whether it is still the topic that the lane was opened for, by Kafka's ID.

        Raises:
            TopicRecreatedError: it is another one of that name.
        """
        if topic_ids[self.topic] != self._topic_id:
            raise TopicRecreatedError(f"{self.topic} was deleted and created again")

    def renew(self, batch: FetchedBatch) -> FetchedBatch:
        """Return the batch as one that was fetched after the opening: it has been read again."""
        return dataclasses.replace(batch, seek=self._seek)

    def done(self, end: int) -> None:
        """Everything below ``end`` is processed and committed. It never goes back."""
        require(
            end >= self.next, self.topic, self.partition, "is done up to", end, "and was up to", self.next
        )
        self.next = self.committed = end

    def fits(
        self, ends: Mapping[tuple[str, int], int], committed: Mapping[tuple[str, int], int | None]
    ) -> bool:
        """Whether neither the log nor the group's offset has gone back, by what the cluster has said; it may be old by now."""
        place = (self.topic, self.partition)
        if place not in ends or place not in committed:
            return False
        offset = committed[place]
        return ends[place] >= self.next and (-1 if offset is None else offset) >= self.committed

    async def compare(self, cluster: Cluster) -> None:
        """Make sure that neither the log nor the group's offset has gone back.

        Raises:
            ClusterWentBackError: one has.
        """
        done, known = self.next, self.committed  # they may go on while the cluster is asked
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
    """Return the first offset of each input that is not processed, as the meta record has it. ``lanes`` is the address's."""
    return {next_key(topic, partition, lanes): cursor.next for (topic, partition), cursor in cursors.items()}


def described(cursors: Mapping[Partition, Cursor], topic: str) -> str:
    """Return the next offsets of a topic for a line of the log."""
    nexts = {partition: cursor.next for (name, partition), cursor in cursors.items() if name == topic}
    if len(nexts) < 2:
        return f"offset {next(iter(nexts.values()), 0)}"
    return f"offsets {first_of([f'{offset} of partition {number}' for number, offset in nexts.items()], PARTITIONS_SHOWN)}"

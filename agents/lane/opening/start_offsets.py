"""First offsets of a lane, from the group's offset, the changelog and the log. All are read after the fence."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaTimeoutError

from agents.lane.assignment import Partition
from agents.lane.cursor import Cursor
from agents.lane.errors import QUESTION_LIMIT_S, LaneRefusedError
from agents.lane.opening.changelog_recovery import Lost
from agents.lane.opening.identity import LaneIdentity
from agents.lane.opening.lane_checks import TopicFacts
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_watch import GroupWatch
from ringfence_kafka.groups.committed_offsets import Committed
from ringfence_kafka.producer.transactional import TransactionalProducer
from tables.codec import Meta, next_key

log: Final = logging.getLogger("ringfence.lane")


class StartOffsets:
    """Finds the first offsets of one lane."""

    def __init__(
        self,
        lane: LaneIdentity,
        cluster: Cluster,
        group_watch: GroupWatch | None,
        is_persistent: Callable[[], bool],
        note: Callable[[str], None],
    ) -> None:
        """Create the search. ``group_watch``: decides which offsets are trusted, None = all; ``note``: receives texts for status."""
        self._lane = lane
        self._cluster = cluster
        self._group_watch = group_watch
        self._is_persistent = is_persistent
        self._note = note
        self._held: Mapping[Partition, Cursor] = {}
        self._leaderless: dict[Partition, KafkaTimeoutError] = {}
        """Partitions of the current opening that did not report their first and next offset."""
        self._short: dict[Partition, int] = {}
        """Ends of logs that were below the lane's position, while the lane waits for a person."""

    async def cursors(
        self, facts: TopicFacts, meta: Meta | None, lost: Lost | None = None
    ) -> dict[Partition, Cursor]:
        """Return the position in each input from which the lane continues.

        ``meta``: newest meta record in the lane's table; ``lost``: state of RocksDB if the changelog was deleted, None = it was not.
        """
        inputs = self._lane.inputs(facts.counts[self._lane.address.input_topic])
        self._leaderless = {}
        found = await asyncio.gather(*(self._cursor(place, facts, meta, lost) for place in inputs))
        own = [place for place in inputs if place[0] == self._lane.address.input_topic]
        if self._leaderless.keys() >= set(own):
            raise self._leaderless[own[0]]
        cursors = dict(zip(inputs, found, strict=True))
        for topic, partition in self._leaderless:
            log.warning(
                "lane %s: %s/%d does not report its offsets, perhaps because it has no leader. The lane "
                "continues with its other partitions, and with this one at %d when it has a leader again",
                self._lane.name, topic, partition, cursors[topic, partition].next,
            )  # fmt: skip
        return cursors

    def hold(self, cursors: Mapping[Partition, Cursor]) -> None:
        """Keep the cursors of an opening: they have the offsets that this process commits."""
        self._held = cursors

    async def _cursor(
        self, place: Partition, facts: TopicFacts, meta: Meta | None, lost: Lost | None
    ) -> Cursor:
        meta = meta if lost is None else lost.stored.meta
        async with asyncio.timeout(QUESTION_LIMIT_S):
            noted = await self._cluster.groups.committed(*place)
            if (
                lost is not None
                and noted is not None
                and noted.offset <= (lost.stored.meta.next_of(*place) or 0)
            ):
                # RocksDB may be ahead of a cluster that was restored from a backup. Only the committed offset says which outputs exist.
                committed: int | None = noted.offset
            else:
                committed = await self._trusted(place, noted, meta)
        if lost is not None:
            own = {} if committed is None else {next_key(*place, lost.stored.meta.lanes): committed}
            meta = lost.stored.meta._replace(
                next_offsets=own if lost.meta is None else lost.meta.next_offsets
            )
        next_offset = await self._next(place, committed, facts, meta)
        distrusts = noted is not None and committed != noted.offset
        return Cursor(
            self._lane.name,
            *place,
            next_offset,
            facts.topic_ids[place[0]],
            next_offset if distrusts else committed,
            distrusts=distrusts,
        )

    async def _trusted(self, place: Partition, noted: Committed | None, meta: Meta | None) -> int | None:
        """Return the group's offset, or the changelog's if a foreign consumer committed the group's."""
        recorded = meta.next_of(*place) if meta else None
        if noted is None or self._group_watch is None:
            return None if noted is None else noted.offset
        held = self._held.get(place)
        if held is not None and noted.offset == held.next:
            return noted.offset  # this process committed it; it counts even if the changelog lost its end
        why = await self._group_watch.distrust(*place, noted, recorded)
        if not why:
            return noted.offset
        before = self._group_watch.before(*place) if recorded is None else None
        log.error(
            "lane %s: the offset %d of the group %s for %s/%d is not followed: %s; the lane continues at %s",
            self._lane.name, noted.offset, self._lane.app_id, *place, why,
            f"{recorded}, the position in its changelog" if recorded is not None
            else "the start of the log" if before is None else before.offset,
        )  # fmt: skip
        return recorded if before is None else before.offset

    async def set_back(self, producer: TransactionalProducer, cursors: Mapping[Partition, Cursor]) -> None:
        """Commit the lane's position for inputs with a distrusted offset: lag metrics and later comparisons use the committed offset."""
        offsets = {
            TopicPartition(*place): cursor.next for place, cursor in cursors.items() if cursor.distrusts
        }
        if offsets:
            async with asyncio.timeout(QUESTION_LIMIT_S):
                await producer.transact([], offsets, self._lane.app_id)

    def _note_behind(self, place: Partition, committed: int, recorded: int, meta: Meta | None) -> None:
        """Report in log and status that the committed offset is above the changelog's."""
        lane, (topic, partition) = self._lane, place
        log.warning(
            "lane %s: the group has committed %s/%d up to %d, but %s has it only up to %d. If it lost its last records, duplicates of the "
            "messages between are accepted. If somebody moved the group's offset, these messages are skipped",
            lane.name, topic, partition, committed, lane.changelog, recorded,
        )  # fmt: skip
        if topic == lane.address.input_topic and self._is_persistent():
            self._note(
                f"its changelog {lane.changelog}/{lane.number} is empty, and the lane has processed {topic}/{partition} up to {committed}. The "
                "earlier IDs are lost: their duplicates are accepted"
                if meta is None
                else f"the group has committed {topic}/{partition} up to {committed}, its changelog only up to {recorded}. If the changelog lost "
                "its last records, duplicates of the messages between are accepted. If somebody moved the group's offset, these messages are "
                "skipped"
            )

    def _report_skipped(self, place: Partition, end: int, following: int) -> None:
        """Report that a shortened log has grown past the lane's position. New messages below the position look like processed ones."""
        topic, partition = place
        log.error(
            "lane %s: %s/%d ended at %d, and the lane continues at %d: new messages between them are not judged",
            self._lane.name, topic, partition, end, following,
        )  # fmt: skip
        self._note(
            f"{topic}/{partition} ended at {end}, and the lane continues at {following}: it does not judge new messages between them. "
            "Send them again"
        )

    def _beyond_the_end(self, at: Partition, end: int, committed: int | None, recorded: int | None) -> str:
        """Return why the lane does not open and what to do: the topic lost its end, or a person set the group's offset too high."""
        topic, partition = at
        place = f"{topic}/{partition}"
        if committed is not None and committed > end and recorded is not None and recorded <= end:
            return (
                f"{place} ends at {end}, but the offset of group {self._lane.app_id} is {committed}; the lane has processed up to {recorded}. "
                "Somebody moved the offset. Nothing is lost: stop all workers, run 'kafka-consumer-groups.sh --reset-offsets --group "
                f"{self._lane.app_id} --topic {topic}:{partition} --to-offset {recorded} --execute', and start them"
            )
        return (
            f"{place} ends at {end}, but this lane has processed up to "
            f"{max(committed or 0, recorded or 0)}: it lost its last records. Stop its producers: new messages at those offsets "
            f"would count as processed. Restore the newest copy; or delete {topic}, run 'ringfence topics create', and have the lost "
            "messages sent again: the lane begins at the start, and known IDs stay known"
        )

    async def _next(
        self, place: Partition, committed: int | None, facts: TopicFacts, meta: Meta | None
    ) -> int:
        """Return the first offset to process: the larger of the group's and the changelog's; without both, the start of the log."""
        topic, partition = place
        recorded = meta.next_of(topic, partition) if meta else None
        async with asyncio.timeout(QUESTION_LIMIT_S):
            known = [item for item in (committed, recorded) if item is not None]
            recreated = meta is not None and meta.is_recreated(topic, facts.topic_ids[topic])
            try:
                start, end = await asyncio.gather(
                    self._cluster.offsets.log_start(topic, partition),
                    self._cluster.offsets.high_watermark(topic, partition),
                )
            except KafkaTimeoutError as error:
                if not known or recreated or topic != self._lane.address.input_topic:
                    raise
                # The other partitions continue. A batch that begins below this offset is compared with the cluster.
                self._leaderless[place] = error
                return max(known)
            if recreated:
                self._short.pop(place, None)
                log.warning(
                    "lane %s: %s was deleted and created again: beginning at its start, %d; known IDs stay known",
                    self._lane.name, topic, start,
                )  # fmt: skip
                if topic == self._lane.address.input_topic:
                    self._note(
                        f"{topic} was deleted and created again: messages of the old one that were not processed are lost"
                    )
                return start
            if not known:
                return start
            next_offset = max(known)
            if next_offset > end:
                self._short[place] = min(end, self._short.get(place, end))
                raise LaneRefusedError(self._beyond_the_end(place, end, committed, recorded))
            if place in self._short:
                self._report_skipped(place, self._short.pop(place), next_offset)
            if committed is not None and committed > (recorded or 0):
                self._note_behind(place, committed, recorded or 0, meta)
            if committed is None and next_offset:
                # Committed offsets expire; offsets in the changelog do not.
                log.info(
                    "lane %s: the group has no offset for %s; the changelog has %d",
                    self._lane.name,
                    topic,
                    next_offset,
                )
        return next_offset

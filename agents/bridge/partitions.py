"""Source partitions that the group assigned to a bridge. Each is opened separately, and again if the topic was created again."""

import asyncio
import contextlib
import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from aiokafka.errors import KafkaError

from agents.bridge.flow import Flow
from agents.bridge.offset_commits import Committer
from agents.bridge.offsets import (
    Beginning,
    Map,
    Missing,
    OffsetMetadata,
    SourceLog,
    decode,
    lost_end,
    start_position,
    unknown_place,
)
from agents.bridge.plan import AGAIN_FIRST_S, AGAIN_MOST_S
from agents.bridge.source import SourceConsumer
from agents.bridge.state import LOST, REFUSED, UNREADABLE, PartitionState
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_watch import GroupWatch
from ringfence_kafka.admin.topic_ids import TopicIdentity
from ringfence_kafka.concurrency.coalesce import StoppedError
from ringfence_kafka.concurrency.timeouts import back_off
from ringfence_kafka.errors import RingfenceError, said, unforeseen
from ringfence_kafka.groups.committed_offsets import Committed
from ringfence_kafka.protocol.hop import as_printed

log: Final = logging.getLogger("ringfence.bridge")

LOOK_AGAIN_S: Final = 3.0
"""Interval of checks whether a person set the offset of a paused partition, in seconds."""


OUTDATED: Final = "the members of the cluster connection were changed meanwhile"
UNLIKE: Final = "other processes of the bridge run with another configuration"


class UnknownPlaceError(RingfenceError):
    """A foreign consumer committed the offset of a partition, and the bridge's own position is not known."""


@dataclass(frozen=True, slots=True)
class _Look:
    found: Beginning
    committed: Committed | None
    known: OffsetMetadata | None
    log: SourceLog


class Partitions:
    """Source partitions of one bridge in this process."""

    def __init__(
        self,
        flow: Flow,
        cluster: Cluster,
        committer: Committer,
        shared: Map | None,
        group_watch: GroupWatch,
        stood: dict[int, Committed],
    ) -> None:
        """Create the set, without assigned partitions.

        ``shared``: members of a strict connection, for the commit metadata; ``group_watch`` decides which committed offsets are trusted;
        ``stood``: last position of this process in each partition that it had.
        """
        self.epoch = 0
        """Number that increases when records that were read may belong to an earlier opening."""
        self.doubted = False
        """Whether the topic may have changed and must be checked: nothing is read meanwhile."""
        self.handing_over = False
        """Whether the partitions are being revoked: nothing is read meanwhile."""
        self.outdated = False
        """Whether other processes changed the members of the connection: this one may open nothing with its own."""
        self.refused = False
        """Whether processes with another configuration have the bridge: this one must check before it joins again."""
        self.consumer: SourceConsumer
        self._committer = committer
        self._plan = flow.plan
        self._cluster = cluster
        self._window = flow.window
        self._state = flow.state
        self._map = shared
        self._ends = flow.ends
        self._group_watch = group_watch
        self._stood = stood
        self._openings: dict[int, asyncio.Task[None]] = {}

    def refuse(self) -> None:
        """Record that the group has another configuration than this process."""
        self.refused = True

    def assigned(self, numbers: Collection[int]) -> None:
        """Open the partitions that the group assigned."""
        self.epoch += 1
        self.handing_over = False
        self._state.assigned = set(numbers)
        log.info("bridge %s: %d partitions of %s", self._plan.name, len(numbers), self._plan.source_topic)
        for number in numbers:
            self._begin(number, "opening")
        self._group_watch.hurry()

    def drop(self) -> None:
        """Close all partitions: they were revoked."""
        self.epoch += 1
        for task in self._openings.values():
            task.cancel()
        self._openings.clear()
        for number in self._window.places:
            self._remember(number)
        self._window.reset()
        self._window.close(list(self._window.places))
        self._state.close()

    def _remember(self, number: int) -> None:
        if (now := self._committer.current_commit(number)) is not None:
            self._stood[number] = now

    async def stop(self) -> None:
        """Close all partitions and wait for cancelled openings."""
        tasks = list(self._openings.values())
        self.drop()
        if tasks:
            await asyncio.wait(tasks)

    def reopen(self, number: int, why: str, missing: int | None = None) -> None:
        """Open a partition again, from commit and log. ``missing``: its next offset, if the log does not have it."""
        place = self._window.places.get(number)
        self._remember(number)
        self.epoch += 1
        self._window.close([number])
        self.consumer.pause(number)
        self._begin(number, why, None if missing is None or place is None else Missing(place, missing))

    def compare(self, identity: TopicIdentity) -> None:
        """Reopen partitions of an earlier topic with this name."""
        present = as_printed(identity.topic_id)
        old = [place.partition for place in self._window.places.values() if place.topic_id != present]
        if old:
            log.warning(
                "bridge %s: %s was deleted and created again: forwarding restarts at its start, and the "
                "target accepts its messages as new",
                self._plan.name, self._plan.source_topic,
            )  # fmt: skip
        for number in old:
            self.reopen(number, "opening: the topic is another one")

    def _begin(self, number: int, why: str, missing: Missing | None = None) -> None:
        former = self._openings.pop(number, None)
        if former is not None:
            former.cancel()
        self._state.waiting[number] = why
        self._state.partitions.pop(number, None)
        self._state.lags.pop(number, None)
        for kind in (REFUSED, UNREADABLE):
            self._state.go_on(kind, number)
        self._openings[number] = asyncio.create_task(
            self._open(number, missing), name=f"opening of {self._plan.source_topic}/{number}"
        )

    async def _open(self, number: int, missing: Missing | None) -> None:
        stands: _Look | None = None
        while True:
            seen = await self._seen(number, missing)
            if seen.found.beyond:
                stands, missing = seen, None
            elif stands is None or seen.found.recreated or seen.committed != stands.committed:
                break
            await self._stand_still(number, stands)
            await asyncio.sleep(LOOK_AGAIN_S)
        found = seen.found
        known, ours = found.note.map, self._map
        if ours is not None and known is not None and known.number >= ours.number and known != ours:
            self._state.waiting[number] = OUTDATED
            self.outdated = True
            return
        self._say(number, found)
        self._state.waiting.pop(number, None)
        self._state.go_on(LOST, number)
        self._state.partitions[number] = PartitionState(replace(found.note, map=ours))
        self._state.count(number, "gap_records", found.gap)
        sent = 0 if found.note.still else seen.log.stable
        if self._ends is not None:
            # The ends were queried when no other process ran the bridge.
            sent = min(sent, self._ends.get(number, 0))
        self._window.open(number, seen.log.topic_id, found.offset, sent)
        self.consumer.go_on(number, found.offset)
        self._openings.pop(number, None)

    async def _seen(self, number: int, missing: Missing | None) -> "_Look":
        """Query a partition until there is an answer."""
        attempt = 0
        while True:
            try:
                return await self._inspect(number, missing)
            except (KafkaError, OSError, TimeoutError, StoppedError, UnknownPlaceError) as error:
                text = said(error)
                if isinstance(error, UnknownPlaceError) and not attempt:
                    log.error("bridge %s: %s", self._plan.name, text)
            except Exception as error:
                text = unforeseen(error)
                log.exception("bridge %s: %s/%d: %s", self._plan.name, self._plan.source_topic, number, text)
            self._state.waiting[number] = f"opening: {text}"
            attempt += 1
            await asyncio.sleep(back_off(attempt, AGAIN_FIRST_S, AGAIN_MOST_S))

    async def _inspect(self, number: int, missing: Missing | None) -> "_Look":
        topic, start = self._plan.source_topic, self._plan.start
        identity = await self._cluster.topics.identity(topic)  # must precede the other queries
        committed = await self._trusted(number)
        first, stable, end = await asyncio.gather(
            self._cluster.offsets.log_start(topic, number),
            self._cluster.offsets.stable_end(topic, number),
            self._cluster.offsets.high_watermark(topic, number),
        )
        present = as_printed(identity.topic_id)
        self._state.first_topic_id = self._state.first_topic_id or present
        if present != self._state.first_topic_id:
            start = "earliest"  # the topic was created after the bridge started, so all its messages are new
        others: list[OffsetMetadata] = []
        if committed is None and start == "latest":
            asked = await asyncio.gather(
                *(self._cluster.groups.committed(topic, index) for index in range(identity.partitions))
            )
            others = [note for item in asked if item is not None and (note := decode(item.note)) is not None]
        topic_log = SourceLog(present, identity.partitions, first, stable, end)
        known = None if committed is None else decode(committed.note)
        offset = None if committed is None else committed.offset
        found = start_position(number, topic_log, offset, known, others, start, missing)
        return _Look(found, committed, known, topic_log)

    async def _trusted(self, number: int) -> Committed | None:
        """Return the committed offset and its metadata, or the best known one in place of a foreign consumer's. Raises UnknownPlaceError."""
        plan = self._plan
        committed = await self._cluster.groups.committed(plan.source_topic, number)
        if committed is None or decode(committed.note) is not None:
            return committed
        stood = self._stood.get(number)
        known = None if stood is None else stood.offset
        why = await self._group_watch.distrust(plan.source_topic, number, committed, known)
        if not why:
            return committed if stood is None or committed.offset != stood.offset else stood
        found = stood or self._group_watch.before(plan.source_topic, number)
        if found is None and not (plan.detection and plan.start == "earliest"):
            raise UnknownPlaceError(unknown_place(plan, number, committed.offset))
        log.error(
            "bridge %s: the offset %d of the group %s for %s/%d is not followed: %s; forwarding continues at %s",
            plan.name, committed.offset, plan.group, plan.source_topic, number, why,
            "the start of the log, and the target discards what it already has" if found is None else found.offset,
        )  # fmt: skip
        return found

    async def _stand_still(self, number: int, seen: "_Look") -> None:
        """Pause a partition whose log ends below the forwarded offset, and commit the reason.

        New records at these offsets are not the forwarded ones. The commit stops other processes from continuing when the log has grown.
        """
        found, known = seen.found, seen.known
        if known is not None and known.lost_end:
            self._state.stop(LOST, number, known.error)
            return
        reached = 0 if known is None else found.note.lost_end
        text = lost_end(self._plan, number, seen.log.end, found.offset, reached)
        self._state.stop(LOST, number, text)
        since_ms = self._state.stops[number].since_ms
        with contextlib.suppress(KafkaError, OSError, TimeoutError):  # the next check tries again
            await self._committer.stand(
                self.consumer, number, found.offset, replace(found.note, error=text, since_ms=since_ms)
            )

    def _say(self, number: int, found: Beginning) -> None:
        place = f"bridge {self._plan.name}: {self._plan.source_topic}/{number}"
        if found.recreated:
            log.warning(
                "%s was deleted and created again while the bridge did not run: forwarding begins at its start, %d",
                place, found.offset,
            )  # fmt: skip
        if found.skipped:
            log.warning(
                "%s has no committed offset, so forwarding begins at its end, %d (start = 'latest'). The "
                "%d messages before it are never forwarded under this name. If this bridge ran before, "
                "somebody deleted its group's offsets: give the bridge another name and start = 'earliest' "
                "to forward them",
                place, found.offset, found.skipped,
            )  # fmt: skip
        if found.gap:
            log.error(
                "%s: GAP: retention deleted %d offsets before they were forwarded, and they never reach "
                "the target. Forwarding continues at %d. Give the topic a longer retention than the "
                "largest lag of the bridge",
                place, found.gap, found.offset,
            )  # fmt: skip

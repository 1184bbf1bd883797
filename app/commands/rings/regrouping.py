"""The steps of a regrouping, over any changelogs. Each may be the last one: run again, it ends in the same state.

1. The records of all lanes are marked, those of new lanes first. From then on no worker opens a lane, and what lanes know stays as it is.
2. Rings of new changelog partitions are written. No lane goes by them.
3. One transaction writes all other rings, the records of all lanes, and the journal. Before it the old lanes hold, behind it the new ones.
"""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from agents.lane.journal import RingEvent
from agents.rules.lane_rules import limits_of
from agents.topic_checks.lanes import is_marked, lanes_before, live, shown_lanes
from app.commands.rings.joined_rings import Content, Entry, NewLane, ended, new_lane
from app.commands.rings.regroup_plan import RegroupError, Regrouping, marked, unmarked
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.process.step_progress import Progress
from ringfence_kafka.wording import counted
from tables import codec
from tables.codec import Meta

RECORDS_A_TRANSACTION: Final = 100_000
"""Records in one transaction while new rings are written that no lane uses yet."""


class Change(NamedTuple):
    """Records for one changelog partition."""

    number: int
    entries: Sequence[Entry]


class Event(NamedTuple):
    """A journal record of a new lane."""

    event: RingEvent
    lane: int
    before: int
    after: int
    meta: Meta


class Changelogs(Protocol):
    """The changelog partitions of one address."""

    async def fence(self, lanes: Sequence[int]) -> None:
        """End what former owners of these lanes have under way."""

    async def content(self, number: int) -> Content:
        """Return the present content of a partition."""

    async def rewrite(self, number: int, meta: Meta, former: Meta | None) -> None:
        """Fence the owner of a lane and write its meta record, if that is still ``former``."""

    def writing(self) -> AbstractAsyncContextManager[None]:
        """Keep all others from writing rings; if somebody takes over, :meth:`write` raises."""

    async def write(self, changes: Sequence[Change], events: Sequence[Event] = ()) -> None:
        """Write all of it in one transaction."""


class Forwarded(NamedTuple):
    """The forward topic of an address."""

    topic: str
    topic_id: str
    ends: Mapping[int, int]
    """Ends of its partitions; all below is judged."""


@dataclass(frozen=True, slots=True)
class Regroup:
    """A regrouping of one address."""

    address: AddressSettings
    app_id: str
    regrouping: Regrouping
    changelogs: Changelogs
    progress: Progress

    async def mark(self) -> None:
        """Keep workers from opening any lane, before or after the regrouping."""
        plan, done = self.regrouping, 0
        self.progress.begin(f"closing lanes of {self.address.name}")
        await self.changelogs.fence(plan.touched)
        self.progress.count(lambda: f"{done:,} of {counted(len(plan.touched), 'lane')}")
        for lane in plan.touched:
            former = (await self.changelogs.content(lane)).meta
            self._require_as_planned(lane, former)
            meta = former or self._empty()
            if not is_marked(meta):
                await self.changelogs.rewrite(lane, marked(meta, lane, plan.before or 0), former)
            done += 1

    def _require_as_planned(self, lane: int, meta: Meta | None) -> None:
        """Raise RegroupError if another regrouping has ended since this one was planned."""
        counts = lane in self.regrouping.former_lanes or (meta is not None and live({lane: meta}))
        if meta is not None and counts and lanes_before(meta) != (self.regrouping.before or 0):
            raise RegroupError(
                f"another regrouping has ended meanwhile: {self.address.name} has {shown_lanes(lanes_before(meta))} now. This one has written "
                "no ring. Run it again if these lanes are not the ones you want"
            )

    def _empty(self) -> Meta:
        """Return the record of a lane that has judged nothing."""
        return Meta(
            self.address.ring_capacity, 0, 0, {}, {}, secrets.token_hex(8),
            app=self.app_id, address=self.address.name, lanes=self.regrouping.before or 0,
        )  # fmt: skip

    async def unmark(self) -> None:
        """Let workers open the lanes as they were."""
        self.progress.begin(f"opening lanes of {self.address.name} again")
        await self.changelogs.fence(self.regrouping.touched)
        for lane in reversed(self.regrouping.touched):
            meta = (await self.changelogs.content(lane)).meta
            if meta is not None and is_marked(meta):
                await self.changelogs.rewrite(lane, unmarked(meta), meta)

    async def write(self, partitions: int, forwarded: Forwarded | None) -> dict[int, int]:
        """Write the new rings. All lanes are marked, and all that was forwarded is judged.

        Args:
            partitions: Partitions of the changelog.
            forwarded: The forward topic, as far as it exists.

        Returns:
            IDs of each ring.

        Raises:
            RegroupError: another regrouping has ended meanwhile.
        """
        async with self.changelogs.writing():
            return await self._write(partitions, forwarded)

    async def _write(self, partitions: int, forwarded: Forwarded | None) -> dict[int, int]:
        plan, sizes, done = self.regrouping, {}, 0
        lanes, former = plan.wanted.lanes, plan.former.lanes
        self.progress.begin(f"reading the rings of {self.address.name}")
        contents = {lane: await self.changelogs.content(lane) for lane in plan.former_lanes}
        for lane, content in contents.items():
            self._require_as_planned(lane, content.meta)
        self.progress.count(counted(former, "lane"))
        self.progress.begin(f"writing the rings of {self.address.name}")
        self.progress.count(lambda: f"{done:,} of {counted(lanes, 'lane')}")
        changes: list[Change] = []
        events: list[Event] = []
        for lane in range(lanes):
            own = contents[lane] if lane < former else await self.changelogs.content(lane)
            ring = self._ring(lane, contents, own, forwarded)
            entries = ring.entries
            if lane >= former:
                for begin in range(0, len(entries), RECORDS_A_TRANSACTION):
                    some = entries[begin : begin + RECORDS_A_TRANSACTION]
                    await self.changelogs.write([Change(lane, some)])
                entries = []
            changes.append(Change(lane, [*entries, _meta_entry(ring.meta)]))
            events += self._events(lane, ring)
            sizes[lane] = ring.ids
            done += 1
        for number in range(lanes, partitions):
            content = contents[number] if number < former else await self.changelogs.content(number)
            meta = content.meta
            if meta is not None and (is_marked(meta) or not lanes_before(meta)):
                changes.append(Change(number, [_meta_entry(ended(meta, plan.after))]))
        await self.changelogs.write(changes, events)
        return sizes

    def _ring(
        self, lane: int, contents: Mapping[int, Content], own: Content, forwarded: Forwarded | None
    ) -> NewLane:
        ends = None if forwarded is None else forwarded.ends.get(lane)
        return new_lane(
            self.regrouping,
            lane,
            {source: contents[source] for source in self.regrouping.sources(lane)},
            own,
            capacity=self.address.ring_capacity,
            promise=limits_of(self.address).promise,
            input_topic=self.address.input_topic,
            forwarded=None if forwarded is None or ends is None else (forwarded.topic, ends),
            topic_ids={} if forwarded is None else {forwarded.topic: forwarded.topic_id},
        )

    def _events(self, lane: int, ring: NewLane) -> list[Event]:
        plan = self.regrouping
        events = [Event(RingEvent.REGROUPED, lane, plan.former.lanes, plan.wanted.lanes, ring.meta)]
        if ring.capacity_before != ring.meta.capacity:
            sizes = ring.capacity_before, ring.meta.capacity
            events.append(Event(RingEvent.RESIZED, lane, *sizes, ring.meta))
        return events


def _meta_entry(meta: Meta) -> Entry:
    return Entry(codec.META_KEY, codec.encode_meta(meta))

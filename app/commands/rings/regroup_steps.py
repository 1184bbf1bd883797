"""Steps of a regrouping, over any changelogs.

After an interruption at any point, a new run reaches the same result.

1. The records of all lanes are marked, those of new lanes first. From then on no worker opens a lane, and
   lanes keep their content.
2. Rings in new changelog partitions are written. No lane uses them yet.
3. One transaction writes all other rings, the records of all lanes, and the journal. It switches from the old
   lanes to the new ones.
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
"""Maximum number of records in one transaction of step 2."""


class Change(NamedTuple):
    """Records for one changelog partition."""

    number: int
    entries: Sequence[Entry]


class Event(NamedTuple):
    """Journal record of a new lane."""

    event: RingEvent
    lane: int
    before: int
    after: int
    meta: Meta


class Changelogs(Protocol):
    """Changelog partitions of one address."""

    async def fence(self, lanes: Sequence[int]) -> None:
        """End open transactions of these lanes' former owners."""

    async def content(self, number: int) -> Content:
        """Return the present content of a partition."""

    async def rewrite(self, number: int, meta: Meta, former: Meta | None) -> None:
        """Fence the owner of a lane, and write its meta record if the present one is ``former``."""

    def writing(self) -> AbstractAsyncContextManager[None]:
        """Own the rings within the context. If another process takes over, :meth:`write` raises."""

    async def write(self, changes: Sequence[Change], events: Sequence[Event] = ()) -> None:
        """Write everything in one transaction."""


class Forwarded(NamedTuple):
    """Forward topic of an address."""

    topic: str
    topic_id: str
    ends: Mapping[int, int]
    """Ends of its partitions, below which all is judged."""


@dataclass(frozen=True, slots=True)
class Regroup:
    """Regrouping of one address."""

    address: AddressSettings
    app_id: str
    regrouping: Regrouping
    changelogs: Changelogs
    progress: Progress

    async def mark(self) -> None:
        """Mark all lanes, old and new, so that no worker opens them."""
        plan, done = self.regrouping, 0
        self.progress.start_step(f"closing lanes of {self.address.name}")
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
        """Unmark the lanes, so that workers open them as before."""
        self.progress.start_step(f"opening lanes of {self.address.name} again")
        await self.changelogs.fence(self.regrouping.touched)
        for lane in reversed(self.regrouping.touched):
            meta = (await self.changelogs.content(lane)).meta
            if meta is not None and is_marked(meta):
                await self.changelogs.rewrite(lane, unmarked(meta), meta)

    async def write(self, partitions: int, forwarded: Forwarded | None) -> dict[int, int]:
        """Write the new rings. All lanes must be marked, and all forwarded records judged.

        Args:
            partitions: Number of changelog partitions.
            forwarded: Forward topic, if it exists.

        Returns:
            Lane → number of IDs in its ring.

        Raises:
            RegroupError: Another regrouping has ended meanwhile.
        """
        async with self.changelogs.writing():
            return await self._write(partitions, forwarded)

    async def _write(self, partitions: int, forwarded: Forwarded | None) -> dict[int, int]:
        plan, sizes, done = self.regrouping, {}, 0
        lanes, former = plan.wanted.lanes, plan.former.lanes
        self.progress.start_step(f"reading the rings of {self.address.name}")
        contents = {lane: await self.changelogs.content(lane) for lane in plan.former_lanes}
        for lane, content in contents.items():
            self._require_as_planned(lane, content.meta)
        self.progress.count(counted(former, "lane"))
        self.progress.start_step(f"writing the rings of {self.address.name}")
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

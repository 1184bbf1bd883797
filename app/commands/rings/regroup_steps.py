"""Steps of a regrouping, and the changelogs that they read and write.

After an interruption at any point, a new run reaches the same result.

1. The records of all lanes are marked, those of new lanes first. From then on no worker opens a lane, and
   lanes keep their content.
2. Rings in new changelog partitions are written. No lane uses them yet.
3. One transaction writes all other rings, the records of all lanes, and the journal. It switches from the old
   lanes to the new ones.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from agents.lane.journal import RingEvent
from agents.topic_checks.lanes import is_marked, lanes_before, live, shown_lanes
from app.commands.rings.changelog_writer import Change, Event, OwnedLane, oldest_taken_ms
from app.commands.rings.joined_rings import Content, Forwarded, NewLane, ended, meta_entry, new_lane
from app.commands.rings.offline_change import worker_came
from app.commands.rings.regroup_plan import RegroupError, Regrouping, marked, unmarked
from app.commands.rings.show import PARALLEL, LaneView
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.process.step_progress import Progress
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.wording import counted
from tables.codec import Meta

RECORDS_A_TRANSACTION: Final = 100_000
"""Maximum number of records in one transaction of step 2."""
WRITE_LIMIT_S: Final = 55.0
"""Time limit of the transaction with all rings; brokers abort a transaction after a minute."""


class LaneChangelogs:
    """Changelog of an address on a cluster."""

    def __init__(self, settings: Settings, address: AddressSettings, cluster: Cluster) -> None:
        self._settings = settings
        self._address = address
        self._cluster = cluster
        self._topic = wire_names.changelog_topic(settings.app.id, address.name)
        self._views: dict[int, LaneView] = {}
        self._writer: OwnedLane | None = None

    async def fence(self, lanes: Sequence[int]) -> None:
        """End open transactions of these lanes' former owners, for which a read would wait."""
        limit = asyncio.Semaphore(PARALLEL)

        async def fence_one(lane: int) -> None:
            async with limit, OwnedLane(self._settings, self._address, lane):
                pass

        await asyncio.gather(*map(fence_one, lanes))

    async def content(self, number: int) -> Content:
        """Return the present content of a partition. It reads only records since the last call."""
        view = self._views.get(number)
        if view is None:
            view = self._views[number] = LaneView(
                self._settings, self._address, self._cluster, number, dated=True
            )
        restore = await view.read_on()
        return Content(restore.meta, restore.occupants, view.accepted_at, restore.hops)

    async def rewrite(self, number: int, meta: Meta, former: Meta | None) -> None:
        """Write a meta record as the lane itself; RegroupError if the present one is not ``former``."""
        async with OwnedLane(self._settings, self._address, number) as owned:
            if (await self.content(number)).meta != former:
                raise worker_came(self._settings, RegroupError)
            await owned.write([Change(number, [meta_entry(meta)])])

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Own lane 0 within the context. A worker that opens it, or another regrouping, fences this one."""
        async with OwnedLane(self._settings, self._address, 0) as self._writer:
            yield

    async def write(self, changes: Sequence[Change], events: Sequence[Event] = ()) -> None:
        """Write all in one transaction; FencedError if lane 0 changed its owner since :meth:`writing` began."""
        owned = self._writer
        assert owned is not None  # noqa: S101 - a regrouping reads and writes inside of writing()
        oldest_ms = await oldest_taken_ms(self._cluster, self._topic)
        await owned.write(changes, events, oldest_ms=oldest_ms, limit_s=WRITE_LIMIT_S)


@dataclass(frozen=True, slots=True)
class Regroup:
    """Regrouping of one address."""

    address: AddressSettings
    app_id: str
    regrouping: Regrouping
    changelogs: LaneChangelogs
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
        """Write the new rings in as many changelog partitions; return the number of IDs by lane.

        All lanes must be marked, and all forwarded records judged.

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
            sources = {source: contents[source] for source in plan.sources(lane)}
            ring = new_lane(plan, lane, sources, own, self.address, forwarded)
            entries = ring.entries
            if lane >= former:
                for begin in range(0, len(entries), RECORDS_A_TRANSACTION):
                    some = entries[begin : begin + RECORDS_A_TRANSACTION]
                    await self.changelogs.write([Change(lane, some)])
                entries = []
            changes.append(Change(lane, [*entries, meta_entry(ring.meta)]))
            events += self._events(lane, ring)
            sizes[lane] = ring.ids
            done += 1
        for number in range(lanes, partitions):
            content = contents[number] if number < former else await self.changelogs.content(number)
            meta = content.meta
            if meta is not None and (is_marked(meta) or not lanes_before(meta)):
                changes.append(Change(number, [meta_entry(ended(meta, plan.after))]))
        await self.changelogs.write(changes, events)
        return sizes

    def _events(self, lane: int, ring: NewLane) -> list[Event]:
        plan = self.regrouping
        events = [Event(RingEvent.REGROUPED, lane, plan.former.lanes, plan.wanted.lanes, ring.meta)]
        if ring.capacity_before != ring.meta.capacity:
            sizes = ring.capacity_before, ring.meta.capacity
            events.append(Event(RingEvent.RESIZED, lane, *sizes, ring.meta))
        return events

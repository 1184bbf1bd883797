"""Changelog partitions of an address, as a regrouping reads and writes them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Final

from app.commands.rings.changelog_writer import OwnedLane, dated_batches, journal_record, oldest_taken_ms
from app.commands.rings.joined_rings import Content
from app.commands.rings.offline_change import worker_came
from app.commands.rings.regroup_plan import RegroupError
from app.commands.rings.regroup_steps import Change, Event
from app.commands.rings.show import PARALLEL, LaneView
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.protocol import wire_names
from tables.codec import META_KEY, Meta, encode_meta

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
            await owned.write([(META_KEY, encode_meta(meta))])

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
        app_id, name = self._settings.app.id, self._address.name
        batches = [
            batch
            for number, entries in changes
            for batch in dated_batches(self._topic, number, entries, owned.builder, oldest_ms)
        ]
        batches += [
            journal_record(owned.builder(), app_id, event, name, lane, (before, after), meta)
            for event, lane, before, after, meta in events
        ]
        await owned.write_batches(batches, WRITE_LIMIT_S)

"""Makes the lanes of a worker, with their shared connections and limits."""

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from agents.lane.assignment import LaneKey, Partition
from agents.lane.lane import Lane
from agents.lane.open import Opening
from agents.lane.opening.table_opening import SharedParts
from agents.lane.state_folder import StateFolder
from agents.lane.transactions import Took
from agents.rules.agreement import Agreement
from agents.topic_checks.addresses import AddressFaults
from agents.worker.lane_map import LaneMap, listed
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_watch import GroupWatch
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.producer.shared_clients import ProducerClients
from ringfence_kafka.readers.log_reader import RESTING_MAX, LogReader
from tables.table import LaneTable

log: Final = logging.getLogger("ringfence.worker")

SLOWLY_S: Final = 60.0
"""Time of restoring at half speed before a worker joins, in seconds; that is half of its time before it joins."""
CLIENTS_MAX: Final = 64
"""Maximum number of shared clients. A broker processes the requests of one connection one at a time."""

ObserveAddress = Callable[[str, float, Sequence[int]], None]
"""Called with the address of each batch and the arguments of :data:`agents.lane.transactions.Observe`."""
KEPT_S: Final = 600.0
"""Time that a table is kept, in seconds: longer than the restart of the worker that has the lane."""


class TableCache:
    """Cached tables of one worker, by lane."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tables: dict[LaneKey, tuple[float, LaneTable]] = {}

    def keep(self, place: LaneKey, table: LaneTable) -> None:
        """Keep a table for :data:`KEPT_S` from now on."""
        self._tables[place] = (self._clock() + KEPT_S, table)

    def pop(self, place: LaneKey) -> LaneTable | None:
        """Remove and return a table; None if it is not cached."""
        return self._tables.pop(place, (0.0, None))[1]

    async def forget(self) -> None:
        """Dispose of expired tables without blocking other tasks."""
        now = self._clock()
        for item in [item for item, (until, _) in self._tables.items() if until <= now]:
            # a lane that returns meanwhile has taken its table
            if (table := self.pop(item)) is not None:
                await table.dispose()

    def close(self) -> None:
        """Close the RocksDB of all tables."""
        for _, table in self._tables.values():
            table.close()
        self._tables.clear()


class LaneFactory:
    """Maker of the lanes of one worker."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        lanes: LaneMap,
        faults: AddressFaults,
        agreement: Agreement,
        group_watch: GroupWatch | None,
        state_folder: StateFolder,
        observe: ObserveAddress,
        took: Took,
    ) -> None:
        self.lanes = lanes
        self.tables = TableCache()
        self._faults = faults
        self._observe = observe
        self._took = took
        self._clients = ProducerClients(settings.kafka, CLIENTS_MAX)
        self.shared = SharedParts(
            settings=settings,
            cluster=cluster,
            agreement=agreement,
            reader=LogReader(settings.kafka, RESTING_MAX),
            clients=self._clients,
            group_watch=group_watch,
            state_folder=state_folder,
        )

    def lane(self, key: LaneKey, changed: Callable[[], None]) -> Lane:
        """Return a new lane. ``changed``: called when its state may have changed."""
        observe = functools.partial(self._observe, self.lanes.address(key).name)
        return Lane(self.opening(key), changed, observe, self._took)

    def opening(self, key: LaneKey) -> Opening:
        """Return the opening of a lane, with its cached table if there is one."""
        address = self.lanes.address(key)
        return Opening(
            self.shared,
            address,
            key[1],
            doubtful=address.name in self._faults.by_address,
            denied=lambda: self._faults.denied.get(address.name, ()),
            table=self.tables.pop(key),
        )

    async def warm_up(self, partitions: Iterable[Partition]) -> None:
        """Restore lanes of other workers before the group assigns them to this worker. Never fails: each lane is restored when it opens.

        It is slow at first: the restore is not urgent, and the owners may need the same cores.
        """
        mine = self.lanes.lanes_of(partitions)
        if mine:
            names = listed(map(self.lanes.name, mine))
            log.info("restoring %d lanes ahead of their assignment: %s", len(mine), names)
        self.shared.slices.rest(SLOWLY_S)
        try:
            await asyncio.gather(*map(self._warm_up, mine))
        finally:
            self.shared.slices.rest(0)

    async def _warm_up(self, key: LaneKey) -> None:
        opening = self.opening(key)
        try:
            await opening.warm_up()
        except BaseException as error:
            opening.table.close()  # the opening continues from the part that is written
            if not isinstance(error, Exception):
                raise
            # The opening meets the same problem and reports it.
            log.info("lane %s cannot be restored ahead of its assignment: %r", opening.name, error)
        else:
            self.tables.keep(key, opening.table)

    async def stop(self) -> None:
        """Close cached tables and connections."""
        self.tables.close()
        await self._clients.stop()
        await self.shared.reader.stop()

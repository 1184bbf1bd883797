"""Makes the lanes of a worker, with their shared connections and limits."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from agents.lane.assignment import LaneKey
from agents.lane.lane import Lane
from agents.lane.open import Opening
from agents.lane.opening_limiter import OpeningLimiter
from agents.lane.state_folder import StateFolder
from agents.lane.transactions import Took
from agents.rules.agreement import Agreement
from agents.topic_checks.addresses import AddressFaults
from agents.worker.lane_map import LaneMap
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_watch import GroupWatch
from ringfence_kafka.concurrency.cooperative import TimeSlices
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.producer.shared_clients import ProducerClients
from ringfence_kafka.readers.log_reader import RESTING_MAX, LogReader
from tables.table import LaneTable

CLIENTS_MAX: Final = 64
"""Maximum number of shared clients. A broker processes the requests of one connection one at a time."""

ObserveAddress = Callable[[str, float, Sequence[int]], None]
"""Called with the address of each batch and the arguments of :data:`agents.lane.transactions.Observe`."""
KEPT_S: Final = 600.0
"""Time that a table is kept, in seconds: longer than the restart of the worker that has the lane."""

Place = TypeVar("Place")


class TableCache(Generic[Place]):
    """Cached tables of one worker, by lane."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tables: dict[Place, tuple[float, LaneTable]] = {}
        """Expiry time and table."""

    def keep(self, place: Place, table: LaneTable) -> None:
        """Keep a table for :data:`KEPT_S` from now on."""
        self._tables[place] = (self._clock() + KEPT_S, table)

    def pop(self, place: Place) -> LaneTable | None:
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
        self.tables: TableCache[LaneKey] = TableCache()
        self.slices = TimeSlices()
        self._settings = settings
        self._cluster = cluster
        self._faults = faults
        self._agreement = agreement
        self._group_watch = group_watch
        self._state_folder = state_folder
        self._observe = observe
        self._took = took
        self._places = OpeningLimiter()
        self._clients = ProducerClients(settings.kafka, CLIENTS_MAX)
        self._reader = LogReader(settings.kafka, RESTING_MAX)

    def lane(self, key: LaneKey, changed: Callable[[], None]) -> Lane:
        """Return a new lane. ``changed``: called when its state may have changed."""
        observe = functools.partial(self._observe, self.lanes.address(key).name)
        return Lane(self.opening(key), changed, observe, self._took)

    def opening(self, key: LaneKey) -> Opening:
        """Return the opening of a lane, with its cached table if there is one."""
        address = self.lanes.address(key)
        return Opening(
            self._settings,
            address,
            key[1],
            self._cluster,
            doubtful=address.name in self._faults.by_address,
            denied=lambda: self._faults.denied.get(address.name, ()),
            slices=self.slices,
            table=self.tables.pop(key),
            places=self._places,
            clients=self._clients,
            reader=self._reader,
            agreement=self._agreement,
            group_watch=self._group_watch,
            state_folder=self._state_folder,
        )

    async def stop(self) -> None:
        """Close cached tables and connections."""
        self.tables.close()
        await self._clients.stop()
        await self._reader.stop()

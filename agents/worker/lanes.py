"""The lanes of a worker: opened and closed as the consumer group assigns partitions."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Final

from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from agents.batch.batch import FetchedBatch
from agents.lane.assignment import LaneKey, Ownership, Partition
from agents.lane.errors import QUESTION_LIMIT_S
from agents.lane.lane import Lane
from agents.lane.state_folder import StateFolder
from agents.lane.transactions import Took
from agents.rules.agreement import Agreement
from agents.topic_checks.addresses import AddressFaults
from agents.worker.health import WorkerHealth
from agents.worker.lag import LaneLags
from agents.worker.lane_factory import LaneFactory, ObserveAddress
from agents.worker.lane_map import LaneMap, listed
from agents.worker.totals import Totals
from agents.worker.warm_up import WarmUp
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_watch import GroupWatch
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import RingfenceError
from tables.codec import Meta

log: Final = logging.getLogger("ringfence.worker")


class Lanes:
    """A rebalance suspends all lanes. The assignment that follows resumes the lanes that it names, and closes the others."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        faults: AddressFaults | None = None,
        observe: ObserveAddress = lambda _address, _seconds, _parts: None,
        took: Took = lambda _seconds: None,
        agreement: Agreement | None = None,
        group_watch: GroupWatch | None = None,
        tell_group: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Nothing is opened yet.

        Args:
            settings: The addresses.
            cluster: Is asked.
            faults: Problems of addresses that are known before anything is opened.
            observe: Called after each batch.
            took: :data:`agents.lane.transactions.Took`.
            agreement: Statements of live workers; None = this worker is alone.
            group_watch: Foreign members of the workers' group, and which of its offsets are followed; None = there are none.
            tell_group: As :class:`agents.lane.state_folder.StateFolder` has it.
        """
        self.agreement = agreement or Agreement(settings)
        self.group_watch = group_watch
        self.state_folder = StateFolder(self.agreement.others_can_hold, tell_group, self._ids_in_memory)
        self.faults = faults or AddressFaults(settings, cluster)
        self.lags = LaneLags(cluster)
        self._lanes: dict[LaneKey, Lane] = {}
        self._map = LaneMap(settings)
        self._factory = LaneFactory(
            settings, cluster, self._map, self.faults, self.agreement, group_watch, self.state_folder, observe, took
        )  # fmt: skip
        self.tables = self._factory.tables
        """Tables of lanes that are not here now, and may come."""
        self.warm_up = WarmUp(self._factory)
        self.health = WorkerHealth(
            settings, self._map, self._lanes, self.faults, self.lags, self.state_folder, group_watch
        )
        self.totals = Totals(self.health.addresses)
        self._cluster = cluster
        self._explaining: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    @property
    def lanes(self) -> list[Lane]:
        """The lanes of this worker, open or not; without those of which it has one half."""
        return list(self._lanes.values())

    async def assigned(self, partitions: Iterable[Partition], ownership: Ownership) -> None:
        """Open these lanes and no others. Returns at once; opening goes on in the lanes' own tasks."""
        async with self._lock:
            mine = self._map.assign(set(partitions))
            if self._explaining is not None:
                self._explaining.cancel()
            self._explaining = asyncio.create_task(self._explain_halves()) if self._map.halves else None
            await self._suspend()  # a lost generation may bring an assignment that no revocation went before
            stay = self._lanes.keys() & mine
            for key in sorted(stay):
                self._lanes[key].start(ownership, self._map.given[key])
            await asyncio.gather(*(self._dismiss(key) for key in sorted(self._lanes.keys() - mine)))
            for key in sorted(mine - stay):
                lane = self._lanes[key] = self._factory.lane(key, self.health.state_changed)
                lane.start(ownership, self._map.given[key])
            self._map.set_assigned(True)
            self.health.state_changed()
            log.info("assigned %d lanes: %s", len(mine), listed(sorted(lane.name for lane in self.lanes)))

    async def revoked(self) -> None:
        """Suspend all lanes, their transactions finished; a new assignment follows."""
        async with self._lock:
            if self._lanes:
                log.info("rebalance: %d lanes pause", len(self._lanes))
            await self._suspend()

    async def _suspend(self) -> None:
        await asyncio.gather(*(lane.suspend() for lane in self._lanes.values()))

    async def _dismiss(self, key: LaneKey) -> None:
        """Close a lane that went to another worker. Its counts stay, and its ring, should it come back soon."""
        lane = self._lanes.pop(key)
        await lane.close()
        self.tables.keep(key, lane.opening.table)
        self.totals.keep(lane)

    async def stop(self) -> None:
        """Close all lanes for good."""
        async with self._lock:
            self._map.set_assigned(False)
            self.health.stopped()
            if self._explaining is not None:
                self._explaining.cancel()
            await asyncio.gather(*(lane.dispose() for lane in self._lanes.values()))
            self._lanes.clear()
            await self._factory.stop()
            await self.agreement.stop()

    async def offer(self, batch: FetchedBatch) -> None:
        """Hand a batch to its lane; without such a lane it is dropped, and its owner will fetch it."""
        lane = self._lanes.get(self._map.find(batch.topic, batch.partition))
        if lane is not None:
            await lane.offer(batch)

    async def measure_lag(self) -> None:
        """Ask how far each lane is behind, and whether the cluster still fits it."""
        await self.lags.measure(self._lanes, self._map.inputs())

    async def look_at_topics(self) -> None:
        """Ask whether the topics of all addresses are as they must be; open lanes of one whose are not stop."""
        metas: dict[str, list[Meta]] = {}
        for lane in self.lanes:
            if (meta := lane.opening.table.meta) is not None:
                metas.setdefault(lane.opening.address.name, []).append(meta)
        with contextlib.suppress(KafkaError, OSError, TimeoutError, RingfenceError):
            async with asyncio.timeout(QUESTION_LIMIT_S):
                wrong = await self.faults.ask(metas)
                topic_ids = await self._changelog_ids()
            for lane in self.lanes:
                if faults := wrong.get(lane.opening.address.name):
                    lane.refuse(faults)
                else:
                    lane.note_sizes(self.faults.bytes_max)
                    lane.note_changelog(topic_ids.get(lane.opening.changelog))
        self.health.state_changed()

    async def _changelog_ids(self) -> dict[str, str]:
        """Return Kafka's own IDs of the changelogs that are there."""
        found = {}
        for topic in {lane.opening.changelog for lane in self.lanes}:
            with contextlib.suppress(UnknownTopicOrPartitionError):
                found[topic] = (await self._cluster.topics.identity(topic)).topic_id
        return found

    async def look_at_state_folder(self) -> None:
        """Ask whether lanes can write their folders; those that could not open again when they can."""
        if await self.state_folder.look():
            for lane in self.lanes:
                lane.note_usable_folder()
        self.health.state_changed()

    def _ids_in_memory(self) -> int:
        """Return the capacity of all rings whose files are in memory."""
        openings = (lane.opening for lane in self._lanes.values())
        return sum(opening.limits.capacity for opening in openings if opening.table.in_memory)

    async def look_at_limits(self) -> None:
        """Ask whether live workers agree; rings that keep recorded limits take over what all state."""
        await self.agreement.look()
        for lane in self.lanes:
            if lane.opening.address.name not in self.agreement.by_address:
                lane.note_agreement()

    def note_unassigned(self, partitions: Iterable[Partition]) -> None:
        """Note the partitions of input and forward topics that no worker has, of all there are."""
        self._map.note_unassigned(partitions)
        self.health.state_changed()

    async def _explain_halves(self) -> None:
        await self.look_at_topics()
        for key, reason in self.health.halves.items():
            log.error("lane %s is not opened: %s", self._map.name(key), reason)

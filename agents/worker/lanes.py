"""Lanes of a worker, opened and closed by the assignments of the consumer group."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
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
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_watch import GroupWatch
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import RingfenceError
from tables.codec import Meta

log: Final = logging.getLogger("ringfence.worker")


class Lanes:
    """Lanes of one worker. A rebalance suspends all of them. The next assignment resumes its lanes and closes the others."""

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
        """Create the lanes' owner, without open lanes.

        ``faults``: problems of addresses that are known already; ``observe``: called after each batch; ``agreement``: statements of live workers,
        None = this worker is the only one; ``group_watch``: decides which offsets are trusted, None = trust all; ``tell_group``: see
        :class:`agents.lane.state_folder.StateFolder`.
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
        """Tables of lanes that this worker may get soon."""
        self.warm_up = self._factory.warm_up
        self.health = WorkerHealth(
            settings, self._map, self._lanes, self.faults, self.lags, self.state_folder, group_watch
        )
        self._former_counts: dict[str, Counter[str]] = {name: Counter() for name in self.health.addresses}
        self._former_parts: dict[str, Counter[str]] = {name: Counter() for name in self.health.addresses}
        self._cluster = cluster
        self._explaining: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._stopped = False

    @property
    def lanes(self) -> list[Lane]:
        """Lanes of this worker, open or not, without half-assigned ones."""
        return list(self._lanes.values())

    def counts(self) -> dict[str, Counter[str]]:
        """Return the counts of present and former lanes by address."""
        return _sums(self._former_counts, ((lane, lane.counts) for lane in self.lanes))

    def parts(self) -> dict[str, Counter[str]]:
        """Return accepted parts of envelopes by the envelopes' address, then by the address that accepted them."""
        return _sums(self._former_parts, ((lane, lane.transactions.outcomes.parts) for lane in self.lanes))

    async def assigned(self, partitions: Iterable[Partition], ownership: Ownership) -> None:
        """Open the lanes of an assignment and close all others. Returns at once; each lane opens in its own task.

        An assignment that arrives after :meth:`stop` opens no lane: the worker leaves the group.
        """
        async with self._lock:
            if self._stopped:
                return
            mine = self._map.assign(set(partitions))
            if self._explaining is not None:
                self._explaining.cancel()
            self._explaining = asyncio.create_task(self._explain_halves()) if self._map.halves else None
            await self._suspend()  # a lost generation may bring an assignment without a revocation
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
        """Suspend all lanes after their running transactions. A new assignment follows."""
        async with self._lock:
            if self._lanes:
                log.info("rebalance: %d lanes pause", len(self._lanes))
            await self._suspend()

    async def _suspend(self) -> None:
        await asyncio.gather(*(lane.suspend() for lane in self._lanes.values()))

    async def _dismiss(self, key: LaneKey) -> None:
        """Close a lane that went to another worker. Keep its counts, and its ring for an early return."""
        lane = self._lanes.pop(key)
        await lane.close()
        self.tables.keep(key, lane.opening.table)
        address = lane.opening.address.name
        self._former_counts[address].update(lane.counts)
        self._former_parts[address].update(lane.transactions.outcomes.parts)

    async def stop(self) -> None:
        """Close all lanes for good."""
        async with self._lock:
            self._stopped = True
            self._map.set_assigned(False)
            self.health.stopped()
            if self._explaining is not None:
                self._explaining.cancel()
            await asyncio.gather(*(lane.dispose() for lane in self._lanes.values()))
            self._lanes.clear()
            await self._factory.stop()
            await self.agreement.stop()

    async def offer(self, batch: FetchedBatch) -> None:
        """Hand a batch to its lane. A batch of another lane is discarded, and the owner of that lane fetches it."""
        lane = self._lanes.get(self._map.find(batch.topic, batch.partition))
        if lane is not None:
            await lane.offer(batch)

    async def measure_lag(self) -> None:
        """Query the lag of each lane, and compare idle lanes with the cluster."""
        await self.lags.measure(self._lanes, self._map.inputs())

    async def check_topics(self) -> None:
        """Check the topics of all addresses. Open lanes of an address with a problem stop."""
        metas: dict[str, list[Meta]] = {}
        for lane in self.lanes:
            if (meta := lane.opening.table.meta) is not None:
                metas.setdefault(lane.opening.address.name, []).append(meta)
        with contextlib.suppress(KafkaError, OSError, TimeoutError, RingfenceError):
            async with asyncio.timeout(QUESTION_LIMIT_S):
                wrong = await self.faults.check(metas)
                topic_ids = await self._changelog_ids()
            for lane in self.lanes:
                if faults := wrong.get(lane.opening.address.name):
                    lane.refuse(faults)
                else:
                    lane.apply_sizes(self.faults.bytes_max)
                    lane.apply_changelog(topic_ids.get(lane.opening.changelog))
        self.health.state_changed()

    async def _changelog_ids(self) -> dict[str, str]:
        found = {}
        for topic in {lane.opening.changelog for lane in self.lanes}:
            with contextlib.suppress(UnknownTopicOrPartitionError):
                found[topic] = (await self._cluster.topics.identity(topic)).topic_id
        return found

    async def check_state_folder(self) -> None:
        """Check whether lanes can write their folders. Lanes with files in memory reopen when they can."""
        if await self.state_folder.check():
            for lane in self.lanes:
                lane.apply_usable_folder()
        self.health.state_changed()

    def _ids_in_memory(self) -> int:
        openings = (lane.opening for lane in self._lanes.values())
        return sum(opening.limits.capacity for opening in openings if opening.table.store.in_memory)

    async def check_limits(self) -> None:
        """Check whether live workers agree on limits. Rings with recorded limits adopt the limits of an agreement."""
        await self.agreement.refresh()
        for lane in self.lanes:
            if lane.opening.address.name not in self.agreement.by_address:
                lane.apply_agreement()

    def set_unassigned(self, partitions: Iterable[Partition]) -> None:
        """Record the partitions of input and forward topics that no worker has."""
        self._map.set_unassigned(partitions)
        self.health.state_changed()

    async def _explain_halves(self) -> None:
        await self.check_topics()
        for key, reason in self.health.halves.items():
            log.error("lane %s is not opened: %s", self._map.name(key), reason)


def _sums(
    former: Mapping[str, Counter[str]], present: Iterable[tuple[Lane, Counter[str]]]
) -> dict[str, Counter[str]]:
    sums = {address: Counter(counts) for address, counts in former.items()}
    for lane, counts in present:
        sums[lane.opening.address.name].update(counts)
    return sums

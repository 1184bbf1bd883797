"""The lanes of a worker: opened and closed as the consumer group assigns partitions."""

import asyncio
import contextlib
import functools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from agents.batch.batch import FetchedBatch
from agents.lane.assignment import Ownership
from agents.lane.lane import Lane, LaneState
from agents.lane.open import QUESTION_LIMIT_S, Opening
from agents.lane.opening_limiter import OpeningLimiter
from agents.lane.state_folder import StateFolder
from agents.lane.transactions import Took
from agents.rules.agreement import Agreement
from agents.topic_checks.addresses import AddressFaults, shown
from agents.worker.lag import LaneLags, Partition
from agents.worker.read_errors import Unreadable
from agents.worker.table_cache import TableCache
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_watch import GroupWatch
from ringfence_kafka.concurrency.cooperative import TimeSlices
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.producer.shared_clients import ProducerClients
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.readers.log_reader import RESTING_MAX, LogReader
from tables.codec import Meta

log: Final = logging.getLogger("ringfence.worker")

CLIENTS_MAX: Final = 64
"""Lanes beyond so many share connections. A broker answers the requests of one connection one after the other."""
NAMES_MAX: Final = 64
SLOWLY_S: Final = 60.0
"""So long a worker that is about to join restores at half speed: half of what it has before it joins with what is there."""


def _listed(names: Iterable[str], none: str = "none") -> str:
    """For a line of the log, which is not to have a thousand names."""
    every = list(names)
    more = [f"{len(every) - NAMES_MAX:,} more"] if len(every) > NAMES_MAX else []
    return ", ".join(every[:NAMES_MAX] + more) or none


class Lanes:
    """A rebalance has all lanes stand still; the assignment that follows has those go on that it names, and closes the others."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        faults: AddressFaults | None = None,
        observe: Callable[[str, float, Sequence[int]], None] = lambda _address, _seconds, _parts: None,
        took: Took = lambda _seconds: None,
        agreement: Agreement | None = None,
        group_watch: GroupWatch | None = None,
        tell_group: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Nothing is opened yet.

        Args:
            settings: The addresses.
            cluster: Is asked.
            faults: What is known to be wrong with addresses before anything is opened.
            observe: Told the address of each batch, and what :data:`agents.lane.transactions.Observe` is told.
            took: :data:`agents.lane.transactions.Took`.
            agreement: Statements of live workers; None = this worker is alone.
            group_watch: Foreign members of the workers' group, and which of its offsets are followed; None = there are none.
            tell_group: As :class:`agents.lane.state_folder.StateFolder` has it.
        """
        self.agreement = agreement or Agreement(settings)
        self.group_watch = group_watch
        self.state_folder = StateFolder(self.agreement.others_can_hold, tell_group, self._ids_in_memory)
        self._observe = observe
        self._took = took
        self.faults = faults or AddressFaults(settings, cluster)
        self._settings = settings
        self._cluster = cluster
        self._addresses = {address.input_topic: address for address in settings.addresses}
        self._inputs = {
            wire_names.forward_topic(settings.app.id, address.name): address.input_topic
            for address in settings.addresses
        } | {topic: topic for topic in self._addresses}
        """Input and forward topics → the input topic, by which a lane is found."""
        self._lanes: dict[Partition, Lane] = {}
        """By input topic and partition."""
        self.kept: TableCache[Partition] = TableCache()
        self._halves: dict[Partition, str] = {}
        """Lanes of which the group gave us one half only, by input topic and partition: the half that is missing."""
        self.unassigned: list[str] = []
        """Lanes of our addresses that no worker has, one half at least, though the group has shared out."""
        self.lags = LaneLags(cluster)
        self._explaining: asyncio.Task[None] | None = None
        """Says why."""
        self.refused_reads = Unreadable()
        self._slices = TimeSlices()
        self._places = OpeningLimiter()
        self._clients = ProducerClients(settings.kafka, CLIENTS_MAX)
        self._reader = LogReader(settings.kafka, RESTING_MAX)
        self._lock = asyncio.Lock()
        self._assigned = False
        self._was_ready = False
        self._gone: dict[str, Counter[str]] = {}
        """Counts of lanes that are no longer here, by address."""
        self._gone_parts: dict[str, Counter[str]] = {}
        """Accepted parts of envelopes that these had."""

    async def warm_up(self, partitions: Iterable[Partition]) -> None:
        """Restore lanes that others work on now and that are about to come here. Never fails: what cannot be restored now is when it opens.

        Slowly at first: nobody waits for it, and those who work on them now may need the same cores.
        """
        mine = sorted(partition for partition in set(partitions) if partition[0] in self._addresses)
        if mine:
            log.info("restoring %d lanes before they are ours: %s", len(mine), _listed(map(self._name, mine)))
        self._slices.rest(SLOWLY_S)
        try:
            await asyncio.gather(*map(self._warm_up, mine))
        finally:
            self._slices.rest(0)

    async def _warm_up(self, place: Partition) -> None:
        opening = self._opening(place)
        try:
            await opening.warm_up()
        except BaseException as error:
            opening.table.close()  # what is written already is gone on from
            if not isinstance(error, Exception):
                raise
            # Whatever it is, the opening meets it again and says it.
            log.info("lane %s cannot be restored before it is ours: %r", opening.name, error)
        else:
            self.kept.keep(place, opening.table)

    async def assigned(self, partitions: Iterable[Partition], ownership: Ownership) -> None:
        """Open these lanes and no others. Returns at once; opening goes on in the lanes' own tasks."""
        async with self._lock:
            mine = self._whole_lanes(set(partitions))
            if self._explaining is not None:
                self._explaining.cancel()
            self._explaining = asyncio.create_task(self._explain_halves()) if self._halves else None
            await self._suspend()  # a lost generation may bring an assignment that no revocation went before
            stay = self._lanes.keys() & mine
            for item in sorted(stay):
                self._lanes[item].start(ownership)
            await asyncio.gather(*(self._dismiss(lane) for lane in sorted(self._lanes.keys() - mine)))
            for entry in sorted(mine - stay):
                lane = self._lanes[entry] = self._new(entry)
                lane.start(ownership)
            self._assigned = True
            self._state_changed()
            log.info("assigned %d lanes: %s", len(mine), _listed(sorted(self._names())))

    async def revoked(self) -> None:
        """All lanes stand still, their transactions finished; a new assignment follows."""
        async with self._lock:
            if self._lanes:
                log.info("rebalance: %d lanes stand still", len(self._lanes))
            await self._suspend()

    async def _suspend(self) -> None:
        await asyncio.gather(*(lane.suspend() for lane in self._lanes.values()))

    async def stop(self) -> None:
        """Close all lanes for good."""
        async with self._lock:
            self._assigned = self._was_ready = False
            if self._explaining is not None:
                self._explaining.cancel()
            await asyncio.gather(*(lane.dispose() for lane in self._lanes.values()))
            self._lanes.clear()
            self.kept.close()
            await self._clients.stop()
            await self._reader.stop()
            await self.agreement.stop()

    async def offer(self, batch: FetchedBatch) -> None:
        """Hand a batch to its lane; without such a lane it is dropped, and its owner will fetch it."""
        lane = self._lanes.get((self._inputs.get(batch.topic, ""), batch.partition))
        if lane is not None:
            await lane.offer(batch)

    @property
    def ready(self) -> bool:
        """The first assignment is complete, every assigned lane is open, and none stays nobody's."""
        return (
            self._assigned
            and not self._halves
            and not self.unassigned
            and not self.foreign
            and not self.state_folder.unusable
            and not self.faults.by_address
            and not self.unreadable
            and all(lane.state is LaneState.OPEN for lane in self._lanes.values())
        )

    @property
    def foreign(self) -> list[str]:
        """A line for each member of the workers' group that is not Ringfence's."""
        return self.group_watch.faults if self.group_watch is not None else []

    @property
    def unreadable(self) -> list[str]:
        """Partitions of ours that may not be read, each with the reason."""
        return [
            why
            for (topic, partition), why in self.refused_reads.all().items()
            if (self._inputs.get(topic, ""), partition) in self._lanes
        ]

    def state_of(self, lane: Lane) -> tuple[LaneState, str]:
        """State and reason as shown: an open lane that can read nothing waits as one that retries."""
        if lane.state is LaneState.OPEN:
            for topic in (lane.opening.address.input_topic, lane.opening.forward_topic):
                if (why := self.refused_reads.why(topic, lane.opening.partition)) is not None:
                    return LaneState.RETRYING, why
        return lane.state, lane.reason

    @property
    def lanes(self) -> list[Lane]:
        """The lanes of this worker, open or not; without those of which it has one half."""
        return list(self._lanes.values())

    @property
    def in_memory(self) -> list[str]:
        """The lanes that keep their files in memory, because their folders cannot be written."""
        return [lane.name for lane in self._lanes.values() if lane.opening.table.in_memory]

    @property
    def halves(self) -> dict[Partition, str]:
        """Lanes that were not opened because only half of them was assigned, by input topic and partition: why."""
        return {
            (topic, number): "; ".join(self.faults.by_address.get(self._addresses[topic].name, ()))
            or f"its partition of {half.rpartition('/')[0]} was not given to this worker too: run all workers of {self._settings.app.id} with the same addresses"
            for (topic, number), half in self._halves.items()
        }

    def labels(self, place: Partition) -> list[str]:
        """Address and name of a lane."""
        return [self._addresses[place[0]].name, self._name(place)]

    @property
    def addresses(self) -> list[str]:
        """Names of all addresses."""
        return [address.name for address in self._settings.addresses]

    def report(self) -> dict[str, Any]:
        """State of each lane, for health."""
        shown = {lane.name: self.state_of(lane) for lane in self._lanes.values()}
        return {
            self._name(item): {"state": LaneState.REFUSED.value, "reason": reason}
            for item, reason in self.halves.items()
        } | {
            lane.name: {
                "state": shown[lane.name][0].value,
                **({"reason": reason} if (reason := shown[lane.name][1]) else {}),
                **({"folder_fault": True} if lane.folder_fault else {}),
                **({"note": lane.opening.note} if lane.opening.note else {}),
                "next": lane.next,
                "rate": self.lags.rate(place),
                "ring": {
                    "size": len(lane.opening.table.ring),
                    "capacity": lane.opening.table.ring.capacity,
                    "seconds_covered": lane.seconds_covered(),
                },
                **lane.counts,
                **({"parts": dict(parts)} if (parts := lane.transactions.parts) else {}),
            }
            for place, lane in self._lanes.items()
        }

    async def _dismiss(self, partition: Partition) -> None:
        """A lane that went to another worker; what it counted stays counted. Should it come back soon, its ring is here."""
        lane = self._lanes.pop(partition)
        await lane.close()
        self.kept.keep(partition, lane.opening.table)
        address = lane.opening.address.name
        self._gone.setdefault(address, Counter()).update(lane.counts)
        self._gone_parts.setdefault(address, Counter()).update(lane.transactions.parts)

    def totals(self) -> dict[str, Counter[str]]:
        """Counts by address since the worker started, of lanes that have left included."""
        totals = {
            address.name: Counter(self._gone.get(address.name, {})) for address in self._settings.addresses
        }
        for lane in self._lanes.values():
            totals[lane.opening.address.name].update(lane.counts)
        return totals

    def parts(self) -> dict[str, Counter[str]]:
        """Parts of accepted envelopes, by the envelopes' address, then by the address that they were accepted for."""
        found = {
            address.name: Counter(self._gone_parts.get(address.name, {}))
            for address in self._settings.addresses
        }
        for lane in self._lanes.values():
            found[lane.opening.address.name].update(lane.transactions.parts)
        return found

    async def measure_lag(self) -> None:
        """Ask how far each lane is behind, and whether the cluster still fits it."""
        await self.lags.measure(self._lanes, self._halves)

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
        self._state_changed()

    async def _changelog_ids(self) -> dict[str, str]:
        """Return Kafka's own IDs of the changelogs that are there."""
        found = {}
        for topic in {lane.opening.changelog for lane in self.lanes}:
            with contextlib.suppress(UnknownTopicOrPartitionError):
                found[topic] = (await self._cluster.topics.identity(topic)).topic_id
        return found

    async def look_at_state_folder(self) -> None:
        """Ask whether lanes can write their folders; those that could not open anew when they can."""
        if await self.state_folder.look():
            for lane in self.lanes:
                lane.note_usable_folder()
        self._state_changed()

    def _ids_in_memory(self) -> int:
        """Return the capacity of all rings whose files are in memory."""
        openings = (lane.opening for lane in self._lanes.values())
        return sum(opening.limits.id_cache_size for opening in openings if opening.table.in_memory)

    async def look_at_limits(self) -> None:
        """Ask whether live workers agree; rings that keep recorded limits take over what all state."""
        await self.agreement.look()
        for lane in self.lanes:
            if lane.opening.address.name not in self.agreement.by_address:
                lane.note_agreement()

    def note_unassigned(self, partitions: Iterable[Partition]) -> None:
        """Partitions of input and forward topics that stay nobody's, of all there are."""
        mine = {(self._inputs[topic], number) for topic, number in partitions if topic in self._inputs}
        self.unassigned = [self._name(item) for item in sorted(mine)]
        self._state_changed()

    async def _explain_halves(self) -> None:
        await self.look_at_topics()
        for item, reason in self.halves.items():
            log.error("lane %s is not opened: %s", self._name(item), reason)

    def _whole_lanes(self, partitions: set[Partition]) -> set[Partition]:
        """The lanes of which the group gave us input and forward partition.

        Workers with different address lists can be given different halves of a lane. It must not be opened: its other
        half may be processed elsewhere.
        """
        whole, self._halves = set(), {}
        for forward, topic in self._inputs.items():
            if forward == topic:
                continue
            numbers = {number for name, number in partitions if name in {forward, topic}}
            for number in sorted(numbers):
                missing = {(topic, number), (forward, number)} - partitions
                if not missing:
                    whole.add((topic, number))
                    continue
                self._halves[topic, number] = "/".join(map(str, missing.pop()))
        return whole

    def _state_changed(self) -> None:
        """Say it once when the worker becomes ready, and once when it no longer is."""
        ready = self.ready
        if ready == self._was_ready:
            return
        self._was_ready = ready
        if ready:
            log.info("ready: %d lanes open", len(self._lanes))
        else:
            waiting = [lane.name for lane in self._lanes.values() if lane.state is not LaneState.OPEN]
            waiting += [self._name(halve) for halve in self._halves]
            waiting += (f"{name} (no worker has it)" for name in self.unassigned)
            waiting += map(shown, self.faults.by_address)
            waiting += self.foreign
            log.info("not ready: waiting for %s", _listed(waiting, "an assignment"))

    def _names(self) -> list[str]:
        return [lane.name for lane in self._lanes.values()]

    def _name(self, partition: Partition) -> str:
        return wire_names.lane_name(self._addresses[partition[0]].name, partition[1])

    def _new(self, partition: Partition) -> Lane:
        address = self._addresses[partition[0]].name
        observe = functools.partial(self._observe, address)
        return Lane(self._opening(partition), self._state_changed, observe, self._took)

    def _opening(self, partition: Partition) -> Opening:
        address = self._addresses[partition[0]]
        return Opening(
            self._settings,
            address,
            partition[1],
            self._cluster,
            doubtful=address.name in self.faults.by_address,
            denied=lambda: self.faults.denied.get(address.name, ()),
            slices=self._slices,
            table=self.kept.take(partition),
            places=self._places,
            clients=self._clients,
            reader=self._reader,
            agreement=self.agreement,
            group_watch=self.group_watch,
            state_folder=self.state_folder,
        )

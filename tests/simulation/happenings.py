"""Has happen in a world what its schedule says."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from agents.lane import LaneState
from tests.faults.history import Record
from tests.simulation.groups import Place
from tests.simulation.loop import ProcessLoop
from tests.simulation.names import ADDRESS, CHANGELOG, COMPACTED
from tests.simulation.network import Network
from tests.simulation.process import EPOCH_S, Process
from tests.simulation.schedules import Happening, Kind, Message
from tests.simulation.world import BEGINNING, World

OPENING_REQUESTS: Final = 15
"""About as many as an opening makes."""
DIES_S: Final = 0.5
"""How long a process lives of which nothing arrives."""
BACK_S: Final = 8.0
"""After which it is started again."""
HELD_S: Final = 0.5
"""How long the one at which somebody comes back may take."""


class Happenings:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kinds: dict[Kind, Callable[[Happening, Process], None]] = {
            Kind.SEND: lambda what, _: self.send(what),
            Kind.CRASH: self._crash,
            Kind.HELD: self._hold,
            Kind.STOP: lambda what, process: process.stop(what.seconds),
            Kind.PAUSE: self._pause,
            Kind.CLOCK: self._clock,
            Kind.CUT: self._cut,
            Kind.LOST: self._lose_answers,
            Kind.SLOW: self._slow,
            Kind.REFUSED: self._refuse,
            Kind.MARKERS: self._late_markers,
            Kind.REBALANCE: lambda _, __: world.cluster.group.rebalance(),
            Kind.RETENTION: lambda what, _: self._delete(what.partition),
            Kind.COMPACTION: self._compact,
            Kind.OFFSETS: self._expire_offsets,
            Kind.CHANGELOG: self._lose_changelog,
            Kind.RECREATED: self._recreate,
        }

    def happen(self, what: Happening, process: Process) -> None:
        """Now, to this process if to any."""
        self._kinds[what.kind](what, process)

    def _crash(self, what: Happening, process: Process) -> None:
        process.crash()
        if what.disk_lost:
            process.disk.lose()
        self._world.loops.after(what.seconds, process.start)

    def _hold(self, what: Happening, process: Process) -> None:
        loop, network = process.loop, process.network
        if loop is None or network.held is not None:
            return
        network.held = []
        self._world.loops.after(DIES_S, self._die, process, loop)
        self._end(what, process, network.release)

    def _die(self, process: Process, loop: ProcessLoop) -> None:
        if process.loop is loop:
            process.crash()
            self._world.loops.after(BACK_S, process.start)

    def _pause(self, what: Happening, process: Process) -> None:
        if process.loop is not None:
            process.loop.pause()
            self._end(what, process, process.loop.resume)

    @staticmethod
    def _clock(what: Happening, process: Process) -> None:
        process.skew += what.seconds

    def _cut(self, what: Happening, process: Process) -> None:
        process.network.cut = True
        self._end(what, process, partial(setattr, process.network, "cut", False))

    @staticmethod
    def _lose_answers(what: Happening, process: Process) -> None:
        process.network.lose_answers += what.count

    @staticmethod
    def _refuse(what: Happening, process: Process) -> None:
        process.network.refuse += what.count

    @staticmethod
    def _slow(what: Happening, process: Process) -> None:
        process.network.slow_requests += what.count
        process.network.slow_s = what.seconds

    def _late_markers(self, what: Happening, _: Process) -> None:
        self._world.cluster.markers_late_until = self._world.loops.now + what.seconds
        self._world.cluster.markers_late_s = what.seconds

    def _compact(self, _: Happening, __: Process) -> None:
        for log in self._world.cluster.topics[CHANGELOG].logs:
            log.compact()

    def _expire_offsets(self, _: Happening, __: Process) -> None:
        self._world.cluster.group.committed.clear()
        self._world.expired = True

    def _lose_changelog(self, _: Happening, __: Process) -> None:
        self._world.cluster.create(CHANGELOG, self._world.plan.partitions, **COMPACTED)
        self._world.forgetful = True

    def _recreate(self, _: Happening, __: Process) -> None:
        world = self._world
        places = [Place(ADDRESS, number) for number in range(world.plan.partitions)]
        if world.recreated or any(world.cluster.group.committed.get(each, 0) < BEGINNING for each in places):
            return
        for each in places:
            world.kept += [
                Record(*each, found.offset, found.key, found.value, found.headers, found.timestamp)
                for found in world.cluster.log(*each).committed()
            ]
            del world.cluster.group.committed[each]  # as Kafka does with those of deleted topics
        world.recreated += 1
        world.cluster.create(ADDRESS, world.plan.partitions)

    def _end(self, what: Happening, process: Process, end: Callable[[], object]) -> None:
        """When its time is up; or when another process has begun to open a lane: between two requests of that, which stand still meanwhile."""
        self._world.loops.after(what.seconds, end)
        if not what.pinned:
            return

        left = self._world.loops.dice.randrange(OPENING_REQUESTS)
        opener: Network | None = None

        def arrived(network: Network, request: str) -> None:
            nonlocal left, opener
            if opener is None and network is not process.network and self._opens(network):
                opener = network if request == "describe" else None
            if network is opener and request != "_read":
                left -= 1
                if left < 0:
                    self._world.cluster.watchers.remove(arrived)
                    network.slow_requests += 1  # long enough for whoever comes back to do much
                    network.slow_s = HELD_S
                    process.network.lose_heartbeats = what.count  # it does not learn at once that it was away
                    end()

        self._world.cluster.watchers.append(arrived)

    def _opens(self, network: Network) -> bool:
        return any(
            lane.state is LaneState.OPENING or lane.state is LaneState.RETRYING
            for each in self._world.processes
            if each.network is network and each.lanes is not None
            for lane in each.lanes.lanes
        )

    def _delete(self, partition: int) -> None:
        log = self._world.cluster.log(ADDRESS, partition)
        gone = log.read(log.start, self._world.cluster.committed(ADDRESS, partition) or 0)
        self._world.kept += [
            Record(ADDRESS, partition, each.offset, each.key, each.value, each.headers, each.timestamp)
            for each in gone.records
        ]
        log.delete_below(gone.end)

    def send(self, what: Happening) -> None:
        """Messages come into the input."""
        now_ms = round((EPOCH_S + self._world.loops.now) * 1000)
        records = [self._record(each, now_ms) for each in what.messages]
        if what.transaction:
            self._world.cluster.produce_in_transaction(
                ADDRESS, what.partition, records, what.seconds, commit=what.transaction == "committed"
            )
        else:
            self._world.cluster.produce(ADDRESS, what.partition, records)

    def _record(self, message: Message, now_ms: int) -> tuple[int, bytes | None, bytes, Any]:
        self._world.sent += 1
        token = b"%d" % self._world.sent
        if self._world.recreated:
            self._world.generations[token] = self._world.recreated
        headers = [("t", token)]
        if message.id is not None:
            headers.append(("_AMQ_DUPL_ID", message.id))
        return now_ms, message.group, b"%d" % self._world.sent, tuple(headers)

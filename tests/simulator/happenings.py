"""Execution of a world's schedule: faults of processes, networks and the cluster."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from tests.simulator.kafka.logs import Stored
from tests.simulator.kafka.network import Network
from tests.simulator.loop import ProcessLoop
from tests.simulator.process import EPOCH_S, Process
from tests.simulator.schedules import Happening, Kind
from tests.simulator.world import World

IMPLICIT: Final = {"add_partitions": "produce", "add_offsets": "offsets"}
"""Requests that take the place of these in transactions that need no such request."""
TOLD_S: Final = 0.1
"""Seconds after which, at the latest, the sender of a late request sees it fail."""
DIES_S: Final = 0.5
BACK_S: Final = 8.0
HELD_S: Final = 0.5
"""Seconds that the request may take at which a process comes back."""


class Happenings:
    """Happenings of one world."""

    topic: str
    """Topic whose messages the processes read."""
    first_request = ""
    settles_first = False
    """Whether all must be at rest before the last messages: a replaced owner learns of it only by messages that come then."""
    opening_requests = 19
    """About as many requests as an opening and its first transaction make."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._away: set[Happening] = set()
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
            Kind.LATE: self._late,
            Kind.BELATED: self._belate,
            Kind.REFUSED: self._refuse,
            Kind.MARKERS: self._late_markers,
            Kind.REBALANCE: lambda _, __: world.cluster.group.rebalance(),
            Kind.RETENTION: lambda what, _: self._delete_below(
                what.partition, world.cluster.committed(self.topic, what.partition) or 0
            ),
        }

    def happen(self, what: Happening, process: Process) -> None:
        self._kinds[what.kind](what, process)

    @property
    def under_way(self) -> bool:
        networks = [process.network for process in self._world.processes]
        return bool(self._away) or any(
            network.refuse
            or network.lose_answers
            or network.slow_requests
            or any(network.late.values())
            or network.waiting
            for network in networks
        )

    def send(self, what: Happening) -> None:
        cluster, partition = (
            self._world.cluster,
            what.partition % self._world.partitions,
        )  # it may not have grown
        records = [self._record(message, partition) for message in what.messages]
        if what.transaction:
            commit = what.transaction == "committed"
            cluster.produce_in_transaction(self.topic, partition, records, what.seconds, commit=commit)
        else:
            cluster.produce(self.topic, partition, records)

    def _record(self, message: Any, partition: int) -> tuple[int, bytes | None, bytes, Any]:
        raise NotImplementedError

    def last(self, partition: int) -> Happening:
        raise NotImplementedError

    def _eat(self, partition: int, first: int) -> None:
        """Have retention delete the records from ``first`` on, which nobody has processed, or half of them."""
        stable = self._world.cluster.log(self.topic, partition).stable
        upto = self._world.loops.dice.choice((stable, (first + stable + 1) // 2))
        start = max(first, self._world.cluster.log(self.topic, partition).start)
        self._world.eaten[partition].update(range(start, upto))
        self._delete_below(partition, upto)

    def _delete_below(self, partition: int, offset: int) -> None:
        log = self._world.cluster.log(self.topic, partition)
        gone = log.read(log.start, offset)
        self._keep(partition, gone.records)
        log.delete_below(gone.end)

    def _keep(self, partition: int, records: Sequence[Stored]) -> None:
        raise NotImplementedError

    @property
    def now_ms(self) -> int:
        return round((EPOCH_S + self._world.loops.now) * 1000)

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
            self._end(what, process, partial(self._wake, what, process, process.loop))

    def _wake(self, what: Happening, process: Process, loop: ProcessLoop) -> None:
        process.woke_at = self._world.loops.now
        process.network.lose_heartbeats = what.count  # so it learns later that it was away
        loop.resume()

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

    def _late(self, what: Happening, process: Process) -> None:
        process.network.late[what.at] = [
            what.seconds * self._world.loops.dice.random() for _ in range(what.count)
        ]

    def _belate(self, what: Happening, process: Process) -> None:
        dice, names = self._world.loops.dice, IMPLICIT if self._world.cluster.implicit else {}
        for _ in range(what.count):
            request, until = (names.get(name, name) for name in (what.request, what.until))
            process.network.belate(
                request, TOLD_S * dice.random(), what.seconds, until, dice.choice((0, 1, 1, 2))
            )

    def _late_markers(self, what: Happening, _: Process) -> None:
        self._world.cluster.markers_late_until = self._world.loops.now + what.seconds
        self._world.cluster.markers_late_s = what.seconds

    def _end(self, what: Happening, process: Process, end: Callable[[], object]) -> None:
        """End it when its time is up, or between two requests of another process that opens a lane. That opening waits meanwhile."""
        self._away.add(what)

        def over() -> None:
            self._away.discard(what)
            end()

        self._world.loops.after(what.seconds, over)
        if not what.pinned:
            return

        left = self._world.loops.dice.randrange(self.opening_requests)
        opener: Network | None = None

        def arrived(network: Network, request: str) -> None:
            nonlocal left, opener
            if opener is None and network is not process.network and request == self.first_request:
                opener = network if self._opens(network) else None
            if network is opener and request != "_read":
                left -= 1
                if left < 0:
                    self._world.cluster.watchers.remove(arrived)
                    network.slow_requests += 1  # long enough for a process that returns to do much
                    network.slow_s = HELD_S
                    process.network.lose_heartbeats = what.count
                    over()

        self._world.cluster.watchers.append(arrived)

    def _opens(self, network: Network) -> bool:
        raise NotImplementedError

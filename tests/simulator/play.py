"""Play a schedule in a world, to the end: everything heals, and the world must settle."""

from typing import Final

from tests.simulator.happenings import Happenings
from tests.simulator.kafka.network import Network
from tests.simulator.process import Process
from tests.simulator.schedules import Happening
from tests.simulator.world import World

SETTLED_WITHIN_S: Final = 120.0

LAST_STEPS: Final = 2_000
LAST_S: Final = 12.0


class StalledError(AssertionError):
    """The world does not settle although nothing is wrong any more."""


class Play:
    """Execution of one world's schedule."""

    def __init__(self, world: World, happenings: Happenings) -> None:
        self._world = world
        self._happenings = happenings

    def run(self) -> None:
        """Play the schedule to the end. Raises AssertionError if the world does not settle, or spins."""
        world = self._world
        for item in world.processes:
            item.start()
        for what in world.plan.happenings:
            process = self._await(what)
            if world.trace is not None:
                world.note(f"{what} → {process.name}")
            self._happenings.happen(what, process)
        if world.plan.small:  # little follows the last happening
            world.loops.run(self._over, world.loops.steps + LAST_STEPS, world.loops.now + LAST_S)
        self._heal()
        if self._happenings.settles_first or not world.plan.small:
            self._settle()
        # An owner that continues after another one learns of that by its next write.
        for partition in range(world.partitions):
            self._happenings.send(self._happenings.last(partition))
        self._settle()

    def _over(self) -> bool:
        return not self._happenings.under_way

    def _settle(self) -> None:
        world = self._world
        world.loops.run(world.settled, 10**9, world.loops.now + SETTLED_WITHIN_S)
        if not world.rests():
            raise StalledError(world.unsettled())

    def _await(self, what: Happening) -> Process:
        world = self._world
        loops, struck = world.loops, world.processes[what.process]

        def arrived(network: Network, request: str) -> None:
            nonlocal struck
            if request == what.at:
                struck = next(process for process in world.processes if process.network is network)
                world.cluster.watchers.remove(arrived)
                loops.due = loops.steps

        if what.at:
            world.cluster.watchers.append(arrived)
        loops.run(_never, loops.steps + what.steps, loops.now + what.within)
        if arrived in world.cluster.watchers:
            world.cluster.watchers.remove(arrived)
        return struck

    def _heal(self) -> None:
        world = self._world
        world.note("everything heals")
        for process in world.processes:
            network = process.network
            network.cut, network.lose_answers, network.slow_requests, network.refuse = False, 0, 0, 0
            network.lose_heartbeats = 0
            network.late.clear()
            network.bring()
            if network.held is not None:
                network.release()
            if process.loop is not None:
                if process.loop.paused:
                    process.woke_at = world.loops.now
                process.loop.resume()
            process.start()
        world.cluster.markers_late_until = 0.0
        world.cluster.watchers.clear()
        world.cluster.refused.clear()
        world.cluster.dropping.clear()


def _never() -> bool:
    return False

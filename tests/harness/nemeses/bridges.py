"""Faults of a bridge, its links to both clusters, and the broker that it reads from."""

import random
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from tests.harness.nemeses.links import HOLD_S, HOWS, How, break_link
from tests.harness.nemeses.nemesis import Nemesis, OfSystem
from tests.harness.nemeses.processes import POINT_LIMIT_S, FrozenWorker
from tests.harness.system import System
from tests.support.bridges.processes import BridgeProcess
from tests.support.worker import wait_for

POINTS: Final = ("before-send", "mid-send", "after-send", "before-commit", "after-commit")
ATTEMPTS: Final = 8
CONNECT_S: Final = 2.0
CUT_S: Final = (0.05, 1.5)
WHOLE_S: Final = (0.05, 3.0)


class _OfBridge(OfSystem):
    """A nemesis of a round that has a bridge."""

    def __init__(self, system: System, rng: random.Random, name: str = "") -> None:
        super().__init__(system, rng, name)
        if system.origin is None:
            raise ValueError(f"{self.name}: nothing comes over a bridge here")
        self.origin = system.origin

    def heal(self) -> None:
        self.origin.heal()


class KilledBridge(_OfBridge):
    """The bridge's processes are killed again and again, at any moment."""

    name = "kill bridge"

    def __init__(self, system: System, rng: random.Random, times: int = 0) -> None:
        super().__init__(system, rng)
        self._times = times or rng.randint(2, 5)

    def strike(self) -> None:
        for _ in range(self._times):
            process = self.origin.some_process(self._rng)
            time.sleep(self._rng.uniform(0, 4))
            process.kill()
            process.start()
            self.struck += 1


class BridgeKilledAtPoint(_OfBridge):
    """A process is killed exactly at a named point, and starts again."""

    def __init__(self, system: System, rng: random.Random, point: str) -> None:
        super().__init__(system, rng, f"kill bridge at {point}")
        self._point = point

    def strike(self) -> None:
        for bridge_process in self.origin.processes:
            bridge_process.kill()
        process = self._rng.choice(self.origin.processes)
        process.start(RINGFENCE_FAILPOINTS=f"{self._point}:*=kill@{self._rng.randint(1, 4)}")
        wait_for(
            lambda: not process.running, lambda: f"{self.name} never came\n{process.log()}", POINT_LIMIT_S
        )
        assert process.wait_end() == -signal.SIGKILL, process.log()
        self.struck += 1


class FrozenBridge(FrozenWorker):
    """A process sleeps past its session time-out with batches in its buffers; the other continues; it wakes."""

    name = "freeze bridge"

    def __init__(self, system: System, rng: random.Random) -> None:
        super().__init__(system, rng)
        self._bridge = _OfBridge(system, rng, self.name)

    def _some(self) -> BridgeProcess:
        return self._bridge.origin.some_process(self._rng)

    def heal(self) -> None:
        super().heal()
        self._bridge.heal()


class BrokenBridgeLink(_OfBridge):
    """One process's link to the target, or to the source, breaks for a while."""

    def __init__(self, system: System, rng: random.Random, how: How) -> None:
        super().__init__(system, rng, f"link of a bridge: {how}")
        self._how = how

    def strike(self) -> None:
        origin = self.origin
        number = origin.processes.index(origin.some_process(self._rng))
        # Three of four times it is a link that messages cross.
        links = origin.target_links if self._rng.random() < 0.75 else origin.broker.links
        link = links[number]
        before = link.struck
        for _ in range(ATTEMPTS):
            break_link(link, self._how, self._rng)
            time.sleep(self._rng.uniform(*HOLD_S))
            if link.struck > before:
                self.struck += 1
                return
            # A process that has just been started is not on its link yet.
            link.open()
            time.sleep(CONNECT_S)


class CutAgainAndAgain(_OfBridge):
    """All links to the target are cut and whole in turns, faster than some attempts take."""

    name = "links of a bridge, cut again and again"

    def __init__(self, system: System, rng: random.Random, times: int = 0) -> None:
        super().__init__(system, rng)
        self._times = times or rng.randint(5, 12)

    def strike(self) -> None:
        links = self.origin.target_links
        before = sum(link.connections_cut for link in links)
        for _ in range(self._times):
            for link in links:
                link.cut()
            time.sleep(self._rng.uniform(*CUT_S))
            for link in links:
                link.open()
            time.sleep(self._rng.uniform(*WHOLE_S))
        self.struck += sum(link.connections_cut for link in links) > before


class KilledSource(_OfBridge):
    """The source's broker is killed as by a power cut, and starts again over the same folder."""

    name = "kill the source's broker"

    def strike(self) -> None:
        self.origin.broker.broker.kill()
        time.sleep(self._rng.uniform(0, 6))
        self.struck += 1

    def heal(self) -> None:
        if not self.origin.broker.broker.running:
            self.origin.broker.broker.start()
        super().heal()


Maker = Callable[[System, random.Random], Nemesis]

NEMESES: Final[dict[str, Maker]] = {
    "bridge-kill": KilledBridge,
    "bridge-freeze": FrozenBridge,
    "bridge-link-cuts": CutAgainAndAgain,
    "bridge-source-killed": KilledSource,
    **{f"bridge-link-{how.replace(' ', '-')}": partial(BrokenBridgeLink, how=how) for how in HOWS},
    **{f"bridge-kill-at-{point}": partial(BridgeKilledAtPoint, point=point) for point in POINTS},
}

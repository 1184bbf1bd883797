"""Faults of worker and producer processes: killed, frozen, killed or frozen at a point, coming and going."""

import random
import shutil
import signal
import time
from collections.abc import Sequence
from typing import Final

from tests.harness.nemeses.nemesis import OfSystem
from tests.harness.system import System
from tests.support.worker import RingfenceProcess, WorkerProcess, wait_for

POINT_LIMIT_S: Final = 180.0
FREEZE_S: Final = (11.0, 14.0)
"""Seconds past the session time-out of 10 s."""

OPENING_POINTS: Final = (
    "opening", "before-fence", "after-fence", "restoring", "mid-restore", "after-restore",
)  # fmt: skip
BATCH_POINTS: Final = (
    "after-fetch", "before-send", "mid-send", "after-send", "forwarding", "before-commit", "after-commit",
    "before-store", "after-store",
)  # fmt: skip


class KilledWorkers(OfSystem):
    """Some workers are killed at any moment; healed, they run again, with their old state."""

    name = "kill"

    def __init__(self, system: System, rng: random.Random) -> None:
        super().__init__(system, rng)
        self._killed: list[WorkerProcess] = []

    def strike(self) -> None:
        workers = self._system.live_workers()
        for worker in self._rng.sample(workers, self._rng.choice([1, 1, len(workers)])):
            worker.kill()
            self._killed.append(worker)
            self.struck += 1

    def heal(self) -> None:
        _start_all(self._killed)


class KillLoop(OfSystem):
    """Workers are killed again and again, also while they start, join and open."""

    name = "kill loop"

    def strike(self) -> None:
        for _ in range(self._rng.randint(4, 7)):
            worker = self._system.some_worker(self._rng)
            time.sleep(self._rng.uniform(0, 4))
            worker.kill()
            worker.start()
            self.struck += 1

    def heal(self) -> None:
        _start_all(self._system.workers)


class KilledAtPoint(OfSystem):
    """A worker is killed exactly at a named point of a lane, and starts again."""

    def __init__(self, system: System, rng: random.Random, point: str) -> None:
        super().__init__(system, rng, f"kill at {point}")
        self._point = point
        self._worker: WorkerProcess | None = None

    def strike(self) -> None:
        worker = self._worker = self._rng.choice(self._system.workers)
        worker.kill()
        environment = {"RINGFENCE_FAILPOINTS": f"{self._point}:*=kill@{self._nth()}"}
        if self._point == "mid-restore":
            # With its state it would have next to nothing to restore.
            shutil.rmtree(self._system.state_folder(worker), ignore_errors=True)
        if self._point == "re-slotting":
            # Rings change their size when all live workers state the same size: this worker is alone.
            for other in self._system.workers:
                other.kill()
            environment |= self._system.other_size(self._rng)
        worker.start(**environment)
        wait_for(lambda: not worker.running, lambda: f"{self.name} never came\n{worker.log()}", POINT_LIMIT_S)
        assert worker.wait_end() == -signal.SIGKILL, worker.log()
        self.struck += 1

    def heal(self) -> None:
        if self._worker is not None:
            for worker in self._system.workers:
                if not worker.running:
                    worker.start()

    def _nth(self) -> int:
        return 1 if self._point in {*OPENING_POINTS, "re-slotting"} else self._rng.randint(1, 4)


class FrozenWorker(OfSystem):
    """A worker sleeps past the session time-out, its lanes pass to others, and it wakes. It may hold a transaction."""

    name = "freeze"

    def __init__(self, system: System, rng: random.Random, point: str = "") -> None:
        super().__init__(system, rng, f"freeze at {point}" if point else self.name)
        self._point = point
        self._worker: RingfenceProcess | None = None

    def _some(self) -> RingfenceProcess:
        return self._system.some_worker(self._rng)

    def strike(self) -> None:
        """Freeze a worker and let the time-out pass: that is the fault, and nothing shows when it has happened."""
        worker = self._worker = self._some()
        if self._point:
            worker.kill()
            worker.start(RINGFENCE_FAILPOINTS=f"{self._point}:*=stop@{self._rng.randint(1, 4)}")
        else:
            worker.signal(signal.SIGSTOP)
        wait_for(lambda: worker.frozen, lambda: f"{self.name} never came\n{worker.log()}", POINT_LIMIT_S)
        time.sleep(self._rng.uniform(*FREEZE_S))
        self.struck += 1

    def heal(self) -> None:
        if self._worker is not None and self._worker.running:
            self._worker.signal(signal.SIGCONT)


class Storm(OfSystem):
    """Workers leave and join every few seconds, some in order and some not, faster than the group settles."""

    name = "rebalance storm"

    def strike(self) -> None:
        for _ in range(self._rng.randint(3, 5)):
            worker = self._rng.choice([worker for worker in self._system.workers if not worker.frozen])
            if worker.running:
                # SIGTERM without waiting for the others: A goes to B and, with the next step, back to A.
                worker.stop()
            worker.start()
            time.sleep(self._rng.uniform(0.5, 4))
            self.struck += 1

    def heal(self) -> None:
        _start_all(self._system.workers)


class KilledProducers(OfSystem):
    """Producers are killed and come back with what is in doubt."""

    name = "kill producers"

    def strike(self) -> None:
        producers = self._system.producers
        for producer in self._rng.sample(producers, (len(producers) + 1) // 2):
            producer.kill()
            producer.start()
            self.struck += 1


def _start_all(workers: Sequence[WorkerProcess]) -> None:
    for worker in workers:
        if not worker.running:
            worker.start()

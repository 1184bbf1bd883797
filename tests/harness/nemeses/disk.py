"""Faults of a worker's disk in the middle of a round: sealed, full."""

import random
from typing import Final

from tests.harness.nemeses.nemesis import OfSystem
from tests.harness.nemeses.state_directory import FullDisk, ReadOnlyState
from tests.harness.system import System
from tests.support.worker import WorkerProcess, wait_for

SEEN: Final = "cannot be written"


class SealedFolder(OfSystem):
    """A worker finds all of its state read-only when it starts; it must log this and end."""

    name = "state sealed"

    def __init__(self, system: System, rng: random.Random) -> None:
        super().__init__(system, rng)
        self._worker = rng.choice(system.workers)
        self._fault = ReadOnlyState(system.state_folder(self._worker))

    def strike(self) -> None:
        self._worker.kill()
        self._fault.strike()
        self._worker.start()
        code = self._worker.wait_end()
        assert code == 2, f"ended with {code}\n{self._worker.log()}"
        assert SEEN in self._worker.log(), self._worker.log()
        self.struck += self._fault.struck

    def heal(self) -> None:
        self._fault.heal()
        if not self._worker.running:
            self._worker.start()


class FilledDisk(OfSystem):
    """The disk of a worker fills up under it: its lanes wait and report the reason, and nothing is lost."""

    name = "disk full"

    def __init__(self, system: System, rng: random.Random) -> None:
        super().__init__(system, rng)
        self._worker: WorkerProcess = rng.choice(system.workers)
        self._folder = system.state_folder(self._worker)
        self._disk: FullDisk | None = None

    def strike(self) -> None:
        worker = self._worker
        worker.kill()
        self._disk = FullDisk(worker, self._folder)
        worker.start()
        wait_for(lambda: bool(worker.health()[1].get("lanes")) and worker.health()[0] == 200, worker.log)
        self._disk.strike()
        wait_for(lambda: SEEN in worker.log(), worker.log)
        self.struck += self._disk.struck

    def heal(self) -> None:
        if self._disk is not None:
            self._worker.kill()
            self._disk.close()
        if not self._worker.running:
            self._worker.start()

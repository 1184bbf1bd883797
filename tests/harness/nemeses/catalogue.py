"""Every nemesis of a round, by name."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from tests.harness.nemeses import bridges, several
from tests.harness.nemeses.broker import BrokerWentBack, FrozenBroker, KilledBroker
from tests.harness.nemeses.disk import FilledDisk, SealedFolder
from tests.harness.nemeses.links import HOWS, BrokenLink
from tests.harness.nemeses.nemesis import Nemesis
from tests.harness.nemeses.processes import (
    BATCH_POINTS,
    OPENING_POINTS,
    FrozenWorker,
    KilledAtPoint,
    KilledProducers,
    KilledWorkers,
    KillLoop,
    Storm,
)
from tests.harness.nemeses.refusals import DeniedRight, SmallOutput
from tests.harness.nemeses.state_directory import Damage, DamagedFiles, DeletedState, FutureFormat
from tests.harness.system import System
from tests.support.worker import WorkerProcess

Maker = Callable[[System, random.Random], Nemesis]


def _state_lost(system: System, rng: random.Random) -> Nemesis:
    worker, _ = _busiest(system)
    return DeletedState(worker, system.state_folder(worker))


def _state_damaged(system: System, rng: random.Random) -> Nemesis:
    worker, lane = _busiest(system)
    choices: list[tuple[str, Damage]] = [("*.log", "garble"), ("MANIFEST-*", "garble"), ("CURRENT", "remove")]
    pattern, damage = rng.choice(choices)
    return DamagedFiles(worker, lane, pattern, rng, damage)


def _state_of_the_future(system: System, rng: random.Random) -> Nemesis:
    return FutureFormat(*_busiest(system))


def _busiest(system: System) -> tuple[WorkerProcess, Path]:
    """Return the lane that has worked most, and its worker: its files are not empty."""
    found = [
        (sum(file.stat().st_size for file in current.parent.iterdir()), worker, current.parent)
        for worker in system.workers
        if not worker.frozen
        for current in system.state_folder(worker).glob("*/CURRENT")
    ]
    _, worker, lane = max(found, key=lambda item: item[0])
    return worker, lane


_OF_LANES: Final[dict[str, Maker]] = {
    "kill": KilledWorkers,
    "kill-loop": KillLoop,
    "kill-producers": KilledProducers,
    "freeze": FrozenWorker,
    "freeze-in-transaction": lambda system, rng: FrozenWorker(system, rng, "before-commit"),
    "storm": Storm,
    "kill-broker": KilledBroker,
    "freeze-broker": FrozenBroker,
    "freeze-broker-long": lambda system, rng: FrozenBroker(system, rng, long=True),
    "broker-goes-back": BrokerWentBack,
    **{f"link-{how.replace(' ', '-')}": partial(BrokenLink, how=how) for how in HOWS},
    "state-lost": _state_lost,
    "state-damaged": _state_damaged,
    "state-of-the-future": _state_of_the_future,
    "state-sealed": SealedFolder,
    "disk-full": FilledDisk,
    "output-small": SmallOutput,
    "right-denied": DeniedRight,
    **{
        f"kill-at-{point}": partial(KilledAtPoint, point=point)
        for point in (*OPENING_POINTS, *BATCH_POINTS, "re-slotting")
    },
}
NEMESES: Final[dict[str, Maker]] = {**_OF_LANES, **bridges.NEMESES, **several.NEMESES}
NOT_BRIDGED: Final = ("broker-goes-back",)
"""A round with a bridge leaves these out: records that the target acknowledged to a bridge must stay (docs/bridges.md)."""

_OF_ONE_BROKER: Final = ("broker", "link-", "right-denied")
"""Parts of the names of nemeses that strike the one broker, a link to it, or its rules."""


def fitting(workload: str, brokers: int = 1) -> list[str]:
    if brokers > 1:
        of_lanes = [lane for lane in _OF_LANES if not any(part in lane for part in _OF_ONE_BROKER)]
        return [*several.NEMESES, *of_lanes]
    if workload == "bridged":
        return [*(lane for lane in _OF_LANES if lane not in NOT_BRIDGED), *bridges.NEMESES]
    return list(_OF_LANES)

"""The state directory of a worker is deleted, damaged, read-only, or from an earlier time."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.harness.nemeses.nemesis import Nemesis, striking
from tests.harness.nemeses.state_directory import (
    Damage,
    DamagedFiles,
    DeletedState,
    FutureFormat,
    ReadOnlyState,
)
from tests.harness.workloads.numbered import EXACT, Flow, wrong
from tests.support import kafka
from tests.support.worker import WorkerProcess, configure, wait_for

SEED: Final = 4_711
FEW: Final = 500


@dataclass
class Scene:
    """A worker with two lanes: the fault strikes the first; the other flows."""

    worker: WorkerProcess
    struck: Flow
    other: Flow
    data: Path
    config: Path

    @property
    def folder(self) -> Path:
        return self.data / "w" / self.lane

    @property
    def lane(self) -> str:
        return f"{self.struck.address}-0"

    def restart(self) -> None:
        assert self.worker.stop() == 0
        self.worker.start()
        self.worker.wait_ready()

    def exact(self) -> None:
        for flow in (self.struck, self.other):
            accepted = flow.settle(self.worker)

            assert wrong(accepted, flow.due) == EXACT


@pytest.fixture
def scene(bootstrap: str, tmp_path: Path) -> Iterator[Scene]:
    name = kafka.unique("state")
    names = [f"{name}-struck", f"{name}-other"]
    addresses = [{"name": name, "partitions": 1, "id_cache_size": 200_000} for name in names]
    config = configure(tmp_path, bootstrap, name, addresses)
    made = Scene(
        WorkerProcess(config, "w"),
        Flow(bootstrap, name, names[0]),
        Flow(bootstrap, name, names[1]),
        tmp_path / "data",
        config,
    )
    yield made
    made.worker.destroy()


def _begin(scene: Scene) -> None:
    scene.worker.start()
    scene.worker.wait_ready()
    for flow in (scene.struck, scene.other):
        flow.send_and_settle(FEW, scene.worker)


def _go_on(scene: Scene) -> None:
    for flow in (scene.struck, scene.other):
        flow.resend(0, FEW)
        flow.send(FEW)
        flow.resend(0, FEW)


WHILE_DOWN: Final[tuple[tuple[str, Damage], ...]] = (
    ("*.sst", "garble"),
    ("*.sst", "truncate"),
    ("*.sst", "remove"),
    ("*.log", "garble"),
    ("MANIFEST-*", "garble"),
    ("CURRENT", "truncate"),
)
"""Files, and the damage to them."""


@pytest.mark.long
def test_struck_while_down(scene: Scene) -> None:
    """The worker starts without help and knows all IDs after its state was deleted, damaged or written by another version."""
    _begin(scene)
    scene.restart()
    where = (scene.worker, scene.folder)
    faults: list[tuple[Nemesis, str]] = [
        (DeletedState(*where), "(RocksDB new)"),
        (FutureFormat(*where), "is rebuilt from the changelog: meta record of format 9"),
    ]
    for pattern, damage in WHILE_DOWN:
        generator = random.Random(f"{SEED} {pattern} {damage}")
        damaged = DamagedFiles(*where, pattern, generator, damage)
        # The changelog has the records that the end of the write-ahead log lacks.
        faults.append((damaged, "is rebuilt" if pattern != "*.log" else f"lane {scene.lane} open: "))
    for fault, said in faults:
        with striking(fault):
            pass
        scene.worker.wait_ready()
        # It has just started: what it knows is what it has restored.
        scene.struck.resend(0, scene.struck.sent)
        scene.struck.send(FEW)
        accepted = scene.struck.settle(scene.worker)
        log = scene.worker.log()

        assert wrong(accepted, scene.struck.due) == EXACT, fault.name
        assert fault.struck >= 1, fault.name
        assert said in log, (fault.name, log)
        assert "Traceback" not in log, fault.name
        assert "(RocksDB reused)" in log, "the other lane's"


def _in_memory(scene: Scene) -> str:
    """Wait until the struck lane keeps its state in memory, and return the fault as status shows it."""
    text = f"lane {scene.lane} keeps its state in memory"
    wait_for(lambda: text in scene.worker.log(), scene.worker.log)
    health = scene.worker.health()[1]
    assert scene.lane in health["lanes_in_memory"]
    return str(health["state_folder"])


def test_read_only_at_the_start(scene: Scene) -> None:
    """A worker that is alone keeps the state of a read-only lane in memory and reports it. The next opening on disk misses nothing."""
    _begin(scene)
    assert scene.worker.stop() == 0
    with striking(ReadOnlyState(scene.folder)) as nemesis:
        scene.worker.start()
        reason = _in_memory(scene)
        _go_on(scene)
        scene.exact()
        scene.worker.wait_ready()
    log = scene.worker.log()
    scene.restart()
    _go_on(scene)
    scene.exact()

    (opened,) = [line for line in log.splitlines() if f"lane {scene.lane} open: " in line]
    assert "(in memory, not on disk)" in opened
    assert nemesis.struck == 1
    assert str(scene.folder) in reason
    assert "app.data_dir" in reason
    assert "no message is lost" in reason
    assert "(RocksDB reused)" in scene.worker.log()
    assert "Traceback" not in log + scene.worker.log()


@pytest.mark.long
def test_another_worker_gets_the_lanes(scene: Scene) -> None:
    """Lanes that cannot be opened go to a worker that can open them after a minute; a minute after the repair they are shared again."""
    _begin(scene)
    other = WorkerProcess(scene.config, "other")
    try:
        assert scene.worker.stop() == 0
        sealed = [ReadOnlyState(path) for path in (scene.data / "w").iterdir() if path.name.endswith("-0")]
        with striking(sealed[0]), striking(sealed[1]):
            other.start()
            other.wait_ready()
            scene.worker.start()
            wait_for(lambda: "other workers take all lanes" in scene.worker.log(), scene.worker.log)
            wait_for(lambda: len(other.health()[1].get("lanes", {})) == 2, other.log)
            _go_on(scene)
            for flow in (scene.struck, scene.other):
                assert wrong(flow.settle(other), flow.due) == EXACT
            status, report = scene.worker.health()
            assert (status, report["lanes"]) == (503, {})
        wait_for(lambda: len(scene.worker.health()[1].get("lanes", {})) == 1, scene.worker.log)
        scene.worker.wait_ready()
        assert "Traceback" not in scene.worker.log() + other.log()
    finally:
        other.destroy()

"""Transactions under faults of a worker: between them, in the middle of them, and between a resend and its original."""

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from aiokafka.partitioner import murmur2

from tests.harness.watcher import Watcher
from tests.harness.workloads.numbered import wait_reason
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.records.envelopes import Addresses, envelope, part
from tests.support.worker import WorkerProcess, configure, run_verb, wait_for, worker

PARTS = 50
PARTS_A_TRANSACTION = 20_000
"""The most parts that one Kafka transaction has."""
FROZEN_POINTS = ("before-send", "mid-send", "after-send", "before-commit", "after-commit", "before-store")


class Scene:
    """An address whose transactions have parts for another one, and a third beside them."""

    def __init__(self, bootstrap: str, folder: Path, name: str, partitions: int = 1) -> None:
        self.bootstrap = bootstrap
        self.app_id = name
        self.name, self.target, self.beside = name, f"{name}-target", f"{name}-beside"
        self.folder = folder
        self.addresses = Addresses(
            bootstrap, name, dict.fromkeys((self.name, self.target, self.beside), partitions),
            lambda key, count: (int(murmur2(key)) & 0x7FFFFFFF) % count, {name: [self.target]},
        )  # fmt: skip
        self._partitions = partitions
        self.config = self.configure(transaction_addresses=[self.target])

    def configure(self, **settings: Any) -> Path:
        """Write the configuration again, with other settings of the address."""
        others = [{"name": name, "partitions": self._partitions} for name in (self.target, self.beside)]
        own = {"name": self.name, "partitions": self._partitions, **settings}
        self.config = configure(self.folder, self.bootstrap, self.app_id, [own, *others])
        return self.config

    def transaction(self, number: int, known: bool = True) -> Sent:
        parts = [
            part(None, "k", f"{number}.0"),
            part(self.target, "t", f"{number}.1"),
            part(None, "k", f"{number}.2"),
        ]
        return envelope(*parts, known=b"%d" % number if known else None)

    def send(self, *records: Sent) -> None:
        kafka.send(self.bootstrap, self.name, records)

    def values(self, process: WorkerProcess) -> tuple[list[bytes | None], list[bytes | None]]:
        """Return the values that were accepted here and there, once all messages are processed."""
        self.addresses.settle(process.log)
        here, there = (self.addresses.accepted(name) for name in (self.name, self.target))
        return [item.value for item in here], [item.value for item in there]


def _due(*numbers: int) -> tuple[list[bytes], list[bytes]]:
    return [b"%d.%d" % (number, i) for number in numbers for i in (0, 2)], [
        b"%d.1" % number for number in numbers
    ]


def test_between_a_transaction_and_its_resend(bootstrap: str, tmp_path: Path) -> None:
    """Restarts and lost disks forget no ID; `rings clear` and a smaller ring forget exactly the IDs that they should."""
    scene = Scene(bootstrap, tmp_path, kafka.unique("resend"))
    first, second, third = (scene.transaction(index) for index in range(3))
    with worker(scene.config, "w") as process:
        scene.send(first, second, third)
        assert scene.values(process) == _due(0, 1, 2)
        process.kill()
        process.start()
        scene.send(first, second, third)
        assert scene.values(process) == _due(0, 1, 2)
        assert process.stop() == 0
        shutil.rmtree(tmp_path / "data")
        process.start(RINGFENCE_ADDRESS_DEFAULTS__ID_CACHE_SIZE="2")
        scene.send(third, first, second)
        # Two are known; the oldest was evicted, and its resend evicts the next.
        assert scene.values(process) == _due(0, 1, 2, 0, 1)
        run_verb("rings", "clear", scene.name, "--config", str(scene.config))
        scene.send(second, second)
        assert scene.values(process) == _due(0, 1, 2, 0, 1, 1)


def test_changed_list_of_addresses(bootstrap: str, tmp_path: Path) -> None:
    """An address that leaves the list gets nothing more; put back with other partitions, it stops the sending address, which reports why."""
    scene = Scene(bootstrap, tmp_path, kafka.unique("listed"))
    process = WorkerProcess(scene.config, "w")
    try:
        process.start()
        scene.send(scene.transaction(0))
        assert scene.values(process) == _due(0)
        assert process.stop() == 0
        scene.configure()
        process.start()
        scene.send(scene.transaction(1), Sent(None, b"k", b"plain"))
        assert scene.values(process) == ([*_due(0)[0], b"plain"], [b"0.1"])
        (refused,) = scene.addresses.read(scene.name, "quarantine")
        assert b"part 2/3: address" in (dict(refused.headers)["_RF_REASON"] or b"")
        assert process.stop() == 0
        scene.configure(transaction_addresses=[scene.target])
        process.start()
        # A refused transaction burned no ID.
        scene.send(scene.transaction(1))
        assert scene.values(process)[1] == [b"0.1", b"1.1"]
        assert process.stop() == 0
        kafka.grow_topic(bootstrap, f"{scene.target}.accepted", 2)
        process.start()
        scene.send(scene.transaction(2))
        reason = wait_reason(process, f"{scene.name}-0", "partitions")
        kafka.send(bootstrap, scene.beside, [Sent(None, b"k", b"flows")])
        assert [item.value for item in kafka.wait_count(bootstrap, f"{scene.beside}.accepted", 1)] == [
            b"flows"
        ]
    finally:
        process.destroy()

    assert f"{scene.target}.accepted has 2 partitions, it had 1 when its lanes began" in reason
    assert "create it again with 1 partition" in reason


@pytest.mark.parametrize(
    ("envelopes", "kills"),
    [
        (1_300, ("after-store@1",)),
        pytest.param(5_000, ("after-commit@3", "before-commit@2", "mid-send@4"), marks=pytest.mark.long),
    ],
    ids=["1300", "5000"],
)
def test_killed_between_the_cuts(
    bootstrap: str, tmp_path: Path, envelopes: int, kills: tuple[str, ...]
) -> None:
    """A batch with too many parts becomes several transactions; after a kill between them, each envelope is whole, once, in order."""
    scene = Scene(bootstrap, tmp_path, kafka.unique("cut"))
    process = WorkerProcess(scene.config, "w")
    records = [
        envelope(
            *(part((index % 2 and scene.target) or None, "k", f"{number}.{index}") for index in range(PARTS)),
            known=b"%d" % number,
        )
        for number in range(envelopes)
    ]
    scene.send(*records, *records[:100])
    topics = {f"{name}.accepted": 1 for name in (scene.name, scene.target)}
    try:
        with Watcher(bootstrap, topics) as watcher:
            for kill in kills:
                point, _, nth = kill.partition("@")
                process.start(RINGFENCE_FAILPOINTS=f"{point}:{scene.name}-0=kill@{nth}")
                assert process.wait_end() == -signal.SIGKILL, process.log()
            process.start()
            wait_for(
                lambda: len(watcher.whole) == envelopes or not watcher.is_alive(),
                lambda: f"{len(watcher.whole)} of {envelopes}\n{process.log()}",
                180,
            )
        got = scene.values(process)
    finally:
        process.destroy()

    assert (watcher.error, watcher.torn) == (None, [])
    assert got == tuple(
        [b"%d.%d" % (number, index) for number in range(envelopes) for index in range(first, PARTS, 2)]
        for first in (0, 1)
    )
    # As many Kafka transactions at the least as the parts make necessary: a marker each.
    ends = kafka.end_offsets(bootstrap, f"{scene.name}.accepted")[0]
    assert ends - envelopes * PARTS // 2 >= envelopes * PARTS // PARTS_A_TRANSACTION


@pytest.mark.parametrize(
    "points",
    [("mid-send",), pytest.param(FROZEN_POINTS, marks=pytest.mark.long)],
    ids=["mid-send", "all"],
)
def test_frozen_and_replaced(bootstrap: str, tmp_path: Path, points: tuple[str, ...]) -> None:
    """A worker that is frozen in the middle of a transaction, replaced and woken tears nothing, and doubles nothing."""
    scenes = [Scene(bootstrap, _made(tmp_path / point), kafka.unique(f"frozen-{point}")) for point in points]
    sleepers = [WorkerProcess(scene.config, "sleeper") for scene in scenes]
    heirs = [WorkerProcess(scene.config, "heir") for scene in scenes]
    topics = {f"{name}.accepted": 1 for scene in scenes for name in (scene.name, scene.target)}
    numbers = range(200)
    try:
        with Watcher(bootstrap, topics) as watcher:
            for scene, sleeper, point in zip(scenes, sleepers, points, strict=True):
                scene.send(*(scene.transaction(number) for number in numbers))
                sleeper.start(RINGFENCE_FAILPOINTS=f"{point}:{scene.name}-0=stop")
            for sleeper in sleepers:
                wait_for(lambda sleeper=sleeper: sleeper.frozen, sleeper.log)  # type: ignore[misc]
            for heir in heirs:
                heir.start()
            for scene, heir in zip(scenes, heirs, strict=True):
                assert scene.values(heir) == _due(*numbers)
            for sleeper, scene in zip(sleepers, scenes, strict=True):
                sleeper.signal(signal.SIGCONT)
                scene.send(*(scene.transaction(index) for index in range(100, 300)))
            whole = 300 * len(scenes)
            wait_for(
                lambda: len(watcher.whole) == whole or not watcher.is_alive(),
                lambda: f"{len(watcher.whole)} of {whole}\n{sleepers[0].log()}\n{heirs[0].log()}",
                120,
            )
            for scene, heir in zip(scenes, heirs, strict=True):
                assert scene.values(heir) == _due(*range(300))
    finally:
        for worker_process in (*sleepers, *heirs):
            worker_process.destroy()

    assert (watcher.error, watcher.torn) == (None, [])
    assert watcher.rests > 0
    assert [str(finding) for scene in scenes for finding in scene.addresses.findings()] == []


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder

"""Transactions under faults of a worker: between them, in the middle of them, and between a resend and its original."""

import shutil
import signal
from pathlib import Path

import pytest

from tests.harness.watcher import Watcher
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.records.envelopes import Addresses, envelope, part
from tests.support.worker import WorkerProcess, configure, run_verb, wait_for, worker

PARTS = 50
PARTS_A_TRANSACTION = 20_000
"""The most parts that one Kafka transaction has."""


class Scene:
    """An address whose transactions have parts for another one."""

    def __init__(self, bootstrap: str, folder: Path, name: str) -> None:
        self.bootstrap = bootstrap
        self.name, self.target = name, f"{name}-target"
        partitions = dict.fromkeys((self.name, self.target), 1)
        self.addresses = Addresses(bootstrap, name, partitions, {name: [self.target]})
        own = {"name": self.name, "partitions": 1, "transaction_addresses": [self.target]}
        folder.mkdir(exist_ok=True)
        self.config = configure(folder, bootstrap, name, [own, {"name": self.target, "partitions": 1}])

    def transaction(self, number: int) -> Sent:
        parts = [
            part(None, "k", f"{number}.0"),
            part(self.target, "t", f"{number}.1"),
            part(None, "k", f"{number}.2"),
        ]
        return envelope(*parts, known=b"%d" % number)

    def send(self, *records: Sent) -> None:
        kafka.send(self.bootstrap, self.name, records)

    def values(self, process: WorkerProcess) -> tuple[list[bytes | None], list[bytes | None]]:
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

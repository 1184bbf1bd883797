"""SIGKILL at each named point of a lane, while it works on messages and on transactions over two addresses."""

import json
import re
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiokafka.partitioner import murmur2

from ringfence_kafka.process.failpoints import POINTS
from tests.harness.watcher import Watcher
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.records.envelopes import Addresses, envelope, part
from tests.support.worker import WorkerProcess, wait_for

PARTITIONS = 2
PARTITIONS_OF_ONE_LANE = 12
IDS = 200
"""IDs that come before each kill."""
TRANSACTION_EVERY = 10
"""Interval in IDs of the transactions beside the messages; each has two parts here and two elsewhere."""


class Trial:
    """An application whose worker dies at one point after the other."""

    def __init__(self, bootstrap: str, folder: Path, partitions: int, lanes: int) -> None:
        """``lanes`` is the key of its addresses; 0 = not set."""
        self._partitions = partitions
        self._lanes = lanes
        self._ids = 0
        self.name = kafka.unique("dies")
        self._bootstrap = bootstrap
        self._targets = f"{self.name}-target"
        addresses = {self.name: [self._targets], self._targets: []}
        config = folder / f"{self.name}.toml"
        config.write_text(
            f'[kafka]\nbootstrap_servers = "{bootstrap}"\n'
            f'[app]\nid = "{self.name}"\ndata_dir = {json.dumps(str(folder / "data"))}\n'
            + "".join(
                f'[[addresses]]\nname = "{name}"\ntransaction_addresses = {json.dumps(others)}\n'
                + f"lanes = {lanes}\n" * bool(lanes)
                for name, others in addresses.items()
            )
        )
        self.worker = WorkerProcess(config, self.name)
        plain = [f"{address}{kind}" for address in addresses for kind in ("", ".accepted", ".quarantine")]
        plain += [f"{self.name}-{address}-forward" for address in addresses if lanes != 1]
        compacted = [f"{self.name}-{address}-changelog" for address in addresses]
        kafka.create_topics(
            bootstrap,
            {name: (partitions, {}) for name in plain}
            | {name: (lanes or partitions, {"cleanup.policy": "compact"}) for name in compacted}
            | {f"{self.name}-journal": (1, {})},
        )
        self._addresses = Addresses(
            bootstrap, self.name, dict.fromkeys(addresses, partitions),
            lambda key, count: (int(murmur2(key)) & 0x7FFFFFFF) % count, addresses,
            lanes=dict.fromkeys(addresses if lanes else [], lanes),
        )  # fmt: skip

    @property
    def accepted_topics(self) -> dict[str, int]:
        return {f"{name}.accepted": self._partitions for name in (self.name, self._targets)}

    def send(self, first: int, last: int) -> None:
        """Send each ID twice, everything in the first partition: what is at home in the other is forwarded.

        With one lane, copies come in other partitions than their originals.
        """
        records = []
        for number in range(first, last):
            group = b"group-%d" % (number % 100)
            records.append(Sent(b"%d" % number, group))
            if number % TRANSACTION_EVERY == 0:
                records.append(self._transaction(number, group))
        if not self._lanes:
            kafka.send(self._bootstrap, self.name, [*records, *records])
            return
        for begin in (0, self._partitions // 2):
            for partition in range(self._partitions):
                part_of_all = records[(begin + partition) % self._partitions :: self._partitions]
                kafka.send(self._bootstrap, self.name, part_of_all, partition)

    def _transaction(self, number: int, group: bytes) -> Sent:
        name = group.decode()
        here = [part(None, name, f"{number}.{index}") for index in range(2)]
        there = [
            part(self._targets, f"{name}-{index}", f"{number}.{index}", ID=f"{number}-{index}")
            for index in range(2)
        ]
        return envelope(
            here[0], *there, here[1], key=group, known=None if number % 3 == 0 else b"t%d" % number
        )

    def die_at(self, point: str) -> None:
        """Start the worker with the point armed, and send: it dies there, in the recovery from its last death or after it."""
        resized = {"RINGFENCE_ADDRESS_DEFAULTS__ID_CACHE_SIZE": "19000"} if point == "re-slotting" else {}
        self.worker.start(RINGFENCE_FAILPOINTS=f"{point}:*=kill", **resized)
        if resized:
            opened = re.compile(rf"lane {self.name}-0 open: .* of 19000 ")
            wait_for(lambda: opened.search(self.worker.log()) is not None, self.worker.log)
        self.send(self._ids, self._ids + IDS)
        self._ids += IDS
        wait_for(lambda: not self.worker.running, lambda: f"{point} never came\n{self.worker.log()}")
        assert self.worker.wait_end() == -signal.SIGKILL, self.worker.log()

    def finish(self) -> None:
        """Start the worker, and wait until it is through."""
        self.worker.start()
        due = self._ids + 2 * self.transactions
        wait_for(
            lambda: (
                sum(kafka.end_offsets(self._bootstrap, f"{self.name}.accepted", self._partitions)) >= due
                and len(kafka.read_all(self._bootstrap, f"{self.name}.accepted", self._partitions)) >= due
            ),
            lambda: f"{self.worker.health()}\n{self.worker.log()}",
            120,
        )
        self._addresses.settle(lambda: f"{self.worker.health()}\n{self.worker.log()}")

    @property
    def transactions(self) -> int:
        return len(range(0, self._ids, TRANSACTION_EVERY))

    def judge(self) -> None:
        """Require each ID once, each group in order and each transaction whole."""
        accepted = self._addresses.accepted(self.name)
        plain = [item.id for item in accepted if "_RF_TX_PART" not in dict(item.headers)]
        elsewhere = self._addresses.accepted(self._targets)

        assert [str(finding) for finding in self._addresses.findings()] == []
        assert sorted(int(item or b"") for item in plain) == list(range(self._ids))
        assert len(elsewhere) == len(accepted) - self._ids == 2 * self.transactions


_ALL = sorted(POINTS)
_OF_ONE_LANE = [point for point in _ALL if point != "forwarding"]


@pytest.mark.parametrize("points", [_ALL[::2], _ALL[1::2]], ids="+".join)
def test_exact_after_a_kill_at(bootstrap: str, tmp_path: Path, points: list[str]) -> None:
    """Each ID is accepted once, in order, and transactions are whole, after kills at all points of a lane.

    A reader of committed data never finds a transaction in part when nothing is under way.
    """
    _require_exact(bootstrap, tmp_path, points)


@pytest.mark.long
@pytest.mark.parametrize("point", _OF_ONE_LANE)
def test_one_lane_after_a_kill_at(bootstrap: str, tmp_path: Path, point: str) -> None:
    """The same holds for a lane of twelve partitions, in which copies of an ID come in two of them, after a kill at one point."""
    _require_exact(bootstrap, tmp_path, ["after-commit", point], PARTITIONS_OF_ONE_LANE, 1)


def _require_exact(
    bootstrap: str, folder: Path, points: Sequence[str], partitions: int = PARTITIONS, lanes: int = 0
) -> None:
    trial = Trial(bootstrap, folder, partitions, lanes)
    try:
        with Watcher(bootstrap, trial.accepted_topics) as watcher:
            for point in points:
                trial.die_at(point)
            trial.finish()
            wait_for(
                lambda: len(watcher.whole) == trial.transactions or not watcher.is_alive(),
                lambda: f"{len(watcher.whole)} of {trial.transactions}",
            )
        trial.judge()
    finally:
        trial.worker.destroy()

    assert watcher.error is None
    assert watcher.torn == []
    assert watcher.rests > 0

"""SIGKILL at each named point of a lane, while it works on messages and on transactions over two addresses."""

import contextlib
import json
import signal
from collections.abc import Iterator, Sequence
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
IDS = 3_000
TRANSACTION_EVERY = 10
"""Interval in IDs of the transactions beside the messages; each has two parts here and two elsewhere."""
ABREAST = 8
"""Points that are tried at a time: each has an application, topics and a worker of its own."""


class Trial:
    """An application whose worker dies at a point."""

    def __init__(
        self, bootstrap: str, folder: Path, point: str, partitions: int = PARTITIONS, lanes: int = 0
    ) -> None:
        """``lanes`` is the key of its addresses; 0 = not set."""
        self._partitions = partitions
        self._lanes = lanes
        self.name = kafka.unique(f"at-{point}")
        self._bootstrap = bootstrap
        self._point = point
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

    def prepare(self) -> None:
        """Create state and a changelog for the worker to find."""
        self.worker.start()
        self.send(0, IDS // 3)

    def die(self) -> None:
        """Start the worker again, with the point armed and traffic waiting. It left in order, which is quicker."""
        assert self.worker.stop() == 0, self.worker.log()
        self.send(IDS // 3, IDS)
        resized = (
            {"RINGFENCE_ADDRESS_DEFAULTS__ID_CACHE_SIZE": "19000"} if self._point == "re-slotting" else {}
        )
        self.worker.start(RINGFENCE_FAILPOINTS=f"{self._point}:*=kill", **resized)

    def await_death(self) -> None:
        wait_for(lambda: not self.worker.running, lambda: f"{self.name} never came\n{self.worker.log()}")
        assert self.worker.wait_end() == -signal.SIGKILL, self.worker.log()

    def finish(self, ids: int) -> None:
        due = ids + 2 * len(range(0, ids, TRANSACTION_EVERY))
        wait_for(
            lambda: (
                sum(kafka.end_offsets(self._bootstrap, f"{self.name}.accepted", self._partitions)) >= due
                and len(kafka.read_all(self._bootstrap, f"{self.name}.accepted", self._partitions)) >= due
            ),
            lambda: f"{self.name}: {self.worker.health()}\n{self.worker.log()}",
            120,
        )
        self._addresses.settle(lambda: f"{self.name}: {self.worker.health()}\n{self.worker.log()}")

    def judge(self) -> None:
        """Require each ID once, each group in order and each transaction whole."""
        accepted = self._addresses.accepted(self.name)
        plain = [item.id for item in accepted if "_RF_TX_PART" not in dict(item.headers)]
        elsewhere = self._addresses.accepted(self._targets)

        assert [str(finding) for finding in self._addresses.findings()] == []
        assert sorted(int(item or b"") for item in plain) == list(range(IDS)), self.name
        assert len(elsewhere) == len(accepted) - IDS == 2 * len(range(0, IDS, TRANSACTION_EVERY))


@contextlib.contextmanager
def _trials(
    bootstrap: str, folder: Path, points: Sequence[str], partitions: int, lanes: int
) -> Iterator[list[Trial]]:
    with contextlib.ExitStack() as stack:
        trials = [Trial(bootstrap, folder, point, partitions, lanes) for point in points]
        for trial in trials:
            stack.callback(trial.worker.destroy)
        yield trials


_ALL = sorted(POINTS)
_OF_ONE_LANE = [point for point in _ALL if point != "forwarding"]


def _abreast(points: Sequence[str]) -> list[Sequence[str]]:
    return [points[index : index + ABREAST] for index in range(0, len(points), ABREAST)]


@pytest.mark.parametrize("points", _abreast(_ALL), ids="+".join)
def test_exact_after_a_kill_at(bootstrap: str, tmp_path: Path, points: list[str]) -> None:
    """Each ID is accepted once, in order, and transactions are whole, after a kill at any point of a lane.

    A reader of committed data never finds a transaction in part when nothing is under way.
    """
    _require_exact(bootstrap, tmp_path, points)


@pytest.mark.long
@pytest.mark.parametrize("points", _abreast(_OF_ONE_LANE), ids="+".join)
def test_one_lane_after_a_kill_at(bootstrap: str, tmp_path: Path, points: list[str]) -> None:
    """The same holds for a lane of twelve partitions, in which copies of an ID come in two of them."""
    _require_exact(bootstrap, tmp_path, points, PARTITIONS_OF_ONE_LANE, 1)


def _require_exact(
    bootstrap: str, folder: Path, points: Sequence[str], partitions: int = PARTITIONS, lanes: int = 0
) -> None:
    with _trials(bootstrap, folder, points, partitions, lanes) as trials:
        topics = {topic: count for trial in trials for topic, count in trial.accepted_topics.items()}
        with Watcher(bootstrap, topics) as watcher:
            _strike(trials)
            whole = len(trials) * len(range(0, IDS, TRANSACTION_EVERY))
            wait_for(
                lambda: len(watcher.whole) == whole or not watcher.is_alive(),
                lambda: f"{len(watcher.whole)} of {whole}",
            )
        for trial in trials:
            trial.judge()

    assert watcher.error is None
    assert watcher.torn == []
    assert watcher.rests > 0


def _strike(trials: Sequence[Trial]) -> None:
    for trial in trials:
        trial.prepare()
    for trial in trials:
        trial.finish(IDS // 3)
    for trial in trials:
        trial.die()
    for trial in trials:
        trial.await_death()
    for trial in trials:
        trial.worker.start()
    for trial in trials:
        trial.finish(IDS)

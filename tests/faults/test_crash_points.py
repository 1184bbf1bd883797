"""SIGKILL at each named point of a lane, while it works."""

import contextlib
import json
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ringfence_kafka.failpoints import POINTS
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.worker import WorkerProcess, wait_for

PARTITIONS = 2
IDS = 3_000
ABREAST = 8
"""Points that are tried at a time: each has an application, topics and a worker of its own."""


class Trial:
    """An application whose worker dies at a point."""

    def __init__(self, bootstrap: str, folder: Path, point: str) -> None:
        self.name = kafka.unique(f"at-{point}")
        self._bootstrap = bootstrap
        self._point = point
        self._compacted = f"{self.name}-{self.name}-changelog"
        self._forward = f"{self.name}-{self.name}-forward"
        config = folder / f"{self.name}.toml"
        config.write_text(
            f'[kafka]\nbootstrap_servers = "{bootstrap}"\n'
            f'[app]\nid = "{self.name}"\ndata_dir = {json.dumps(str(folder / "data"))}\n'
            f'[[addresses]]\nname = "{self.name}"\n'
        )
        self.worker = WorkerProcess(config, self.name)
        plain = (self.name, f"{self.name}.accepted", f"{self.name}.quarantine", self._forward)
        kafka.create_topics(
            bootstrap,
            {each: (PARTITIONS, {}) for each in plain}
            | {self._compacted: (PARTITIONS, {"cleanup.policy": "compact"}), f"{self.name}-journal": (1, {})},
        )

    def send(self, first: int, last: int) -> None:
        """Each ID twice, everything in the first partition: what is at home in the other is forwarded."""
        ids = [b"%d" % each for each in range(first, last)]
        kafka.send(self._bootstrap, self.name, [Sent(each, b"group-" + each[-2:]) for each in [*ids, *ids]])

    def prepare(self) -> None:
        """Have state and a changelog made, which the worker will find."""
        self.worker.start()
        self.send(0, IDS // 3)

    def die(self) -> None:
        """Start the worker again, the point armed and traffic waiting. It left in order, which is quicker."""
        assert self.worker.stop() == 0, self.worker.log()
        self.send(IDS // 3, IDS)
        resized = (
            {"RINGFENCE_ADDRESS_DEFAULTS__ID_CACHE_SIZE": "19000"} if self._point == "re-slotting" else {}
        )
        self.worker.start(RINGFENCE_FAILPOINTS=f"{self._point}:*=kill", **resized)

    def await_death(self) -> None:
        """Until the point was reached."""
        wait_for(lambda: not self.worker.running, lambda: f"{self.name} never came\n{self.worker.log()}")
        assert self.worker.wait_end() == -signal.SIGKILL, self.worker.log()

    def finish(self, ids: int) -> None:
        """Until everything is processed."""
        wait_for(
            lambda: len(kafka.read_all(self._bootstrap, f"{self.name}.accepted", PARTITIONS)) >= ids,
            lambda: f"{self.name}: {self.worker.health()}\n{self.worker.log()}",
            120,
        )
        for topic in (self.name, self._forward):
            wait_for(
                lambda topic=topic: kafka.consumed(self._bootstrap, self.name, topic, PARTITIONS),  # type: ignore[misc]
                lambda: f"{self.name}: {self.worker.health()}\n{self.worker.log()}",
            )

    def judge(self) -> None:
        """Each ID once, each group in order."""
        accepted = kafka.read_all(self._bootstrap, f"{self.name}.accepted", PARTITIONS)
        offsets: dict[bytes | None, list[int]] = {}
        for each in accepted:
            offsets.setdefault(each.key, []).append(int(each.source.rsplit("/", 1)[1]))

        assert sorted(int(each.id or b"") for each in accepted) == list(range(IDS)), self.name
        assert all(each == sorted(each) for each in offsets.values()), self.name


@contextlib.contextmanager
def _trials(bootstrap: str, folder: Path, points: Sequence[str]) -> Iterator[list[Trial]]:
    with contextlib.ExitStack() as stack:
        trials = [Trial(bootstrap, folder, each) for each in points]
        for each in trials:
            stack.callback(each.worker.destroy)
        yield trials


_ALL = sorted(POINTS)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "points",
    [_ALL[each : each + ABREAST] for each in range(0, len(_ALL), ABREAST)],
    ids="+".join,
)
def test_exact_after_a_kill_at(bootstrap: str, tmp_path: Path, points: list[str]) -> None:
    """Wherever a kill strikes a lane, each ID is accepted once, in order, when it comes back."""
    with _trials(bootstrap, tmp_path, points) as trials:
        for each in trials:
            each.prepare()
        for each in trials:
            each.finish(IDS // 3)
        for each in trials:
            each.die()
        for each in trials:
            each.await_death()
        for each in trials:
            each.worker.start()
        for each in trials:
            each.finish(IDS)
            each.judge()

"""The broker comes back as it was some time ago, under a worker that keeps running."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from app.embedded.broker import EmbeddedBroker
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.worker import WorkerProcess, configure, wait_for, worker

LOST = 200
"""Records that were processed and are not in the snapshot."""


@pytest.mark.parametrize(
    ("kept", "resent"),
    [
        pytest.param(100, 50, id="the input stays shorter than what was processed"),
        pytest.param(100, 250, id="the input grows beyond it again", marks=pytest.mark.long),
        pytest.param(
            0, 250, id="the snapshot is older than the lane's first transaction", marks=pytest.mark.long
        ),
    ],
)
def test_rolled_back_broker(tmp_path: Path, kept: int, resent: int) -> None:
    """The worker accepts records that went with the logs' tails and are sent again: it neither skips them nor calls them duplicates."""
    folder, snapshot = tmp_path / "broker", tmp_path / "snapshot"
    records = [Sent(b"%d" % index, b"g", b"%d" % index) for index in range(kept + max(LOST, resent))]
    with EmbeddedBroker(folder) as broker:
        bootstrap = broker.bootstrap_servers
        config = configure(tmp_path, bootstrap, "back", [{"name": "back", "partitions": 1}])
        with worker(config, "w") as process:
            kafka.send(bootstrap, "back", records[:kept])
            _reach(process, kept)
            broker.pause()
            shutil.copytree(folder, snapshot)
            broker.resume()
            kafka.send(bootstrap, "back", records[kept : kept + LOST])
            _reach(process, kept + LOST)
            broker.kill()
            shutil.rmtree(folder)
            snapshot.rename(folder)
            broker.start()
            kafka.send(bootstrap, "back", records[kept : kept + resent])
            _reach(process, kept + resent, lambda: _accepted(bootstrap) == kept + resent)
        got = kafka.read_all(bootstrap, "back.accepted", 1)

    assert [item.value for item in got] == [record.value for record in records[: kept + resent]]


def _accepted(bootstrap: str) -> int:
    return len(kafka.read_all(bootstrap, "back.accepted", 1))


def _reach(process: WorkerProcess, goal: int, also: Callable[[], bool] = lambda: True) -> None:
    wait_for(
        lambda: process.health()[1].get("lanes", {}).get("back-0", {}).get("next") == goal and also(),
        lambda: f"{process.health()}\n{process.log()}",
        90,
    )

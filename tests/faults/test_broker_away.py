"""The broker is killed, stopped and paused under a running worker, and is away for whoever else runs."""

import contextlib
import time
from pathlib import Path
from typing import Final

import pytest

from app.embedded.broker import EmbeddedBroker
from app.embedded.several import several
from tests.support import kafka
from tests.support.bridges.processes import BridgeProcess, Two, prepare
from tests.support.consumers.processes import ConsumerProcess
from tests.support.kafka import Sent
from tests.support.worker import WorkerProcess, configure, wait_for, worker

AWAY_S: Final = 10.0
CPU_SHARE: Final = 0.5
"""Of a core: each takes a twentieth. A client that connects again without a pause took 0.6 to 0.8."""


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_worker_outlives_its_broker(tmp_path: Path, how: str) -> None:
    """While the broker is away the worker is not ready and says so once; then it goes on, exact."""
    count = 5_000
    with EmbeddedBroker(tmp_path / "broker") as broker:
        bootstrap = broker.bootstrap_servers
        config = configure(tmp_path, bootstrap, "away", [{"name": "away", "partitions": 1}])
        records = [Sent(None, b"g", b"%d" % index) for index in range(3 * count)]
        with worker(config, "w") as process:
            kafka.send(bootstrap, "away", records[:count])
            _reach(process, count)
            # In the middle of a transaction, or between two; either must do.
            kafka.send(bootstrap, "away", records[count : 2 * count])
            getattr(broker, how)()
            wait_for(lambda: process.health()[0] == 503, process.log)
            away = process.health()[1]["broker"]
            if how == "kill":
                broker.start()
            else:
                broker.resume()
            kafka.send(bootstrap, "away", records[2 * count :])
            _reach(process, 3 * count)
            process.wait_ready()
            log = process.log()

        assert away == "away"
        assert log.count("the broker does not answer") == 1
        assert log.count("the broker answers again") == 1
        assert len(log.splitlines()) < 60
        got = kafka.read_all(bootstrap, "away.accepted", 1)
        assert [item.value for item in got] == [record.value for record in records]


def test_nobody_is_busy_meanwhile(tmp_path: Path) -> None:
    """A worker, a consumer and a bridge leave their machine to others, who may be the brokers, while two of three are away."""
    with several(tmp_path / "brokers") as cluster, contextlib.ExitStack() as stack:
        bootstrap = cluster.bootstrap_servers
        config = configure(tmp_path, bootstrap, "idle", [{"name": "idle", "partitions": 2}])
        bridge = prepare(Two(bootstrap, bootstrap), tmp_path)
        processes = (
            WorkerProcess(config, "w"),
            ConsumerProcess(config, "c", "idle", "idle-group"),
            BridgeProcess(bridge.config, "b"),
        )
        for process in processes:
            stack.callback(process.destroy)
            process.start()
        for process in processes:
            process.wait_ready()

        for node in cluster.nodes[:2]:
            node.kill()
        begin, before = time.monotonic(), [process.cpu_seconds for process in processes]
        time.sleep(AWAY_S)
        bound = CPU_SHARE * (time.monotonic() - begin)
        spent = [process.cpu_seconds - was for process, was in zip(processes, before, strict=True)]

        assert max(spent) < bound, spent
        cluster.start()
        for process in processes:
            process.wait_ready()
            assert process.stop() == 0, process.log()


def _reach(process: WorkerProcess, goal: int) -> None:
    wait_for(
        lambda: process.health()[1].get("lanes", {}).get("away-0", {}).get("next") == goal,
        lambda: f"{process.health()}\n{process.log()}",
        120,
    )

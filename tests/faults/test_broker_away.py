"""The broker is killed, stopped and paused under a running worker."""

from pathlib import Path

import pytest

from app.embedded.broker import EmbeddedBroker
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.worker import WorkerProcess, configure, wait_for, worker


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_worker_outlives_its_broker(tmp_path: Path, how: str) -> None:
    """While the broker is away the worker is not ready and says so once; then it goes on, exact."""
    count = 5_000
    with EmbeddedBroker(tmp_path / "broker") as broker:
        bootstrap = broker.bootstrap_servers
        config = configure(tmp_path, bootstrap, "away", [{"name": "away", "partitions": 1}])
        records = [Sent(None, b"g", b"%d" % each) for each in range(3 * count)]
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
        assert [each.value for each in got] == [each.value for each in records]


def _reach(process: WorkerProcess, goal: int) -> None:
    wait_for(
        lambda: process.health()[1].get("lanes", {}).get("away-0", {}).get("next") == goal,
        lambda: f"{process.health()}\n{process.log()}",
        120,
    )

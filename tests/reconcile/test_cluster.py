"""The run on a real standalone cluster of Spark, and without a usable executor."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.embedded.broker import EmbeddedBroker
from tests.reconcile.test_planted import PLANTED
from tests.support.reconcile.planted import World, anomalies
from tests.support.reconcile.spark_cluster import Standalone, standalone
from tests.support.reconcile.started import Started
from tests.support.worker import run_verb, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
LIMIT_S = 600.0
NAMES = ("clean", "lost", "doubled", "reordered", "overrun")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    folder = tmp_path / "spark"
    folder.mkdir()
    with standalone(folder) as running:
        yield running


def _small(broker: EmbeddedBroker, folder: Path, executor_timeout: float) -> Path:
    world = World(broker.bootstrap_servers, folder, {"a": {}})
    for number in range(5):
        world.accept(world.arrive("a", b"%d" % number))
    world.commit()
    section: Any = world.document["reconcile"]
    section["executor_timeout"] = executor_timeout
    return world.config(folder)


def test_planted(broker: EmbeddedBroker, tmp_path: Path, cluster: Standalone) -> None:
    """Executors in processes of their own, without our code, find exactly the planted anomalies."""
    cluster.add_worker("2g")
    world = World(broker.bootstrap_servers, tmp_path, {name: PLANTED[name][1] for name in NAMES})
    for name in NAMES:
        PLANTED[name][0](world, name)
    world.commit()
    done = run_verb(
        "reconcile", "--config", str(world.config(tmp_path)), "--master", cluster.master, "--json",
        check=False, limit_s=LIMIT_S,
    )  # fmt: skip

    assert done.returncode == 1, done.stderr
    assert anomalies(json.loads(done.stdout), world) == {name: PLANTED[name][2] for name in NAMES}
    assert f"Spark starts, with master {cluster.master}" in done.stderr.splitlines()
    assert "no executor" not in done.stderr


def test_no_worker_is_large_enough(broker: EmbeddedBroker, tmp_path: Path, cluster: Standalone) -> None:
    """A run without a large enough worker reports its demand and the supply after 30 s, and ends after the configured time.

    Nothing of it is kept.
    """
    cluster.add_worker("512m")
    config = _small(broker, tmp_path, 35)
    done = run_verb(
        "reconcile", "--config", str(config), "--master", cluster.master, check=False, limit_s=LIMIT_S
    )
    compared = (
        rf"it asks {cluster.master} for executors with all cores of a worker and 1024 MiB of memory each; the cluster has 1 worker: "
        r"127\.0\.0\.1:\d+ has 2 of 2 cores and 512 of 512 MiB free\."
    )
    # Between the two there may be a line of the progress.
    notice, error = (line for line in done.stderr.splitlines() if line.startswith("ringfence: tasks wait"))

    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(
        rf"ringfence: tasks wait, and no executor of Spark has come for 30 s: {compared} The run ends after 35 s \(.*\)",
        notice,
    )
    assert re.match(
        rf"ringfence: tasks wait, and no executor of Spark has come for 35 s, so the run was ended: {compared}",
        error,
    )
    assert not (tmp_path / "state" / "nights").exists()


def test_all_executors_are_lost(
    broker: EmbeddedBroker, tmp_path: Path, cluster: Standalone, start: Callable[..., Started]
) -> None:
    """A run that loses all executors in the middle waits as long as for the first one, and nothing of it counts."""
    worker = cluster.add_worker("1g")
    config = _small(broker, tmp_path, 10)
    run = start("reconcile", "--config", str(config), "--master", cluster.master)
    wait_for((tmp_path / "state/scratch/evidence/_SUCCESS").exists, lambda: "no evidence is written", LIMIT_S)
    worker.kill()
    out, err = run.process.communicate(timeout=LIMIT_S)

    assert (run.process.returncode, out) == (2, "")
    assert err.splitlines()[-1].startswith(
        "ringfence: all executors of Spark are lost, and none has come for 10 s, so the run was ended: "
    )
    assert not (tmp_path / "state" / "nights").exists()
    wait_for(lambda: not run.others(), lambda: f"{run.others()} are left", LIMIT_S)

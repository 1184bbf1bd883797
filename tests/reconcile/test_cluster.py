"""The run on a real standalone cluster of Spark, and without a usable executor."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.embedded.broker import EmbeddedBroker
from tests.reconcile.test_planted import PLANTED
from tests.support.reconcile.planted import World, anomalies
from tests.support.reconcile.spark_cluster import Standalone, standalone
from tests.support.worker import run_verb

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
LIMIT_S = 600.0
NAMES = ("clean", "lost", "doubled", "reordered", "overrun")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    folder = tmp_path / "spark"
    folder.mkdir()
    with standalone(folder) as running:
        yield running


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
    world = World(broker.bootstrap_servers, tmp_path, {"a": {}})
    world.accept(*(world.arrive("a", b"%d" % number) for number in range(5)))
    world.commit()
    section: Any = world.document["reconcile"]
    section["executor_timeout"] = 35
    done = run_verb(
        "reconcile", "--config", str(world.config(tmp_path)), "--master", cluster.master, check=False, limit_s=LIMIT_S
    )  # fmt: skip
    compared = (
        rf"it asks {cluster.master} for executors with all cores of a worker and 1g of memory each; the cluster has 1 worker: "
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

"""The nightly job, or its JVM, is killed in the middle of its work."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from app.embedded.broker import EmbeddedBroker
from tests.support.checkout import ROOT
from tests.support.reconcile.planted import World
from tests.support.worker import run_verb, wait_for

LIMIT_S = 400.0


@pytest.mark.long
@pytest.mark.parametrize("reached", ["scratch/evidence/_SUCCESS", "results/000001/anomalies/_SUCCESS"])
def test_killed(broker: EmbeddedBroker, tmp_path: Path, reached: str) -> None:
    """SIGKILL to it and its JVM leaves nothing that counts: the next run judges the same, and sweeps."""
    world = World(broker.bootstrap_servers, tmp_path, {"a": {}})
    for number in range(5):
        world.accept(world.arrive("a", b"%d" % number))
    world.arrive("a", b"lost")
    world.commit()
    config, state = world.config(tmp_path), tmp_path / "state"
    killed = subprocess.Popen(
        [sys.executable, "-m", "app", "reconcile", "--config", str(config)],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for((state / reached).exists, lambda: f"{reached} is not written", LIMIT_S)
        assert killed.poll() is None
        os.kill(_jvm_of(killed.pid), signal.SIGKILL)
    finally:
        killed.kill()
        killed.wait()
    left = {path.name for path in state.iterdir()}
    done = run_verb("reconcile", "--config", str(config), "--json", check=False, limit_s=LIMIT_S)
    document = json.loads(done.stdout)
    found = document["addresses"][world.names["a"]]

    assert not (state / "nights" / "000001.acknowledged").exists()
    assert "nights" not in left
    assert (done.returncode, document["night"], found["input"], found["accepted"]) == (1, 1, 6, 5)
    assert {name: count for name, count in found["anomalies"].items() if count} == {"LOST": 1}
    assert [path.name for path in (state / "results").iterdir()] == ["000001"]
    assert not (state / "scratch").exists()


@pytest.mark.long
def test_the_jvm_is_killed(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """As where the machine runs out of memory: no answer about records, and one line that says so."""
    world = World(broker.bootstrap_servers, tmp_path, {"a": {}})
    world.accept(world.arrive("a", b"1"))
    world.commit()
    reached = tmp_path / "state" / "scratch" / "evidence" / "_SUCCESS"
    job = subprocess.Popen(
        [sys.executable, "-m", "app", "reconcile", "--config", str(world.config(tmp_path))],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_for(reached.exists, lambda: f"{reached} is not written", LIMIT_S)
        os.kill(_jvm_of(job.pid), signal.SIGKILL)
        _, said = job.communicate(timeout=LIMIT_S)
    finally:
        job.kill()
        job.wait()

    assert job.returncode == 2
    *steps, error = said.splitlines()
    assert error.startswith("ringfence: Spark's JVM has ended: killed, perhaps")
    assert not any(step.startswith("ringfence:") for step in steps)
    assert not (tmp_path / "state" / "nights").exists()


def _jvm_of(job: int) -> int:
    (jvm,) = (child for child in psutil.Process(job).children() if child.name() == "java")
    return jvm.pid

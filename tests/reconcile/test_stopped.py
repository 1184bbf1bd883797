"""Ends of a run by a signal or a kill: nothing of it counts, and no JVM stays."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from app.embedded.broker import EmbeddedBroker
from reconcile.run.verdict.judge import STEPS
from tests.support.checkout import ROOT
from tests.support.reconcile.planted import World
from tests.support.worker import run_verb, wait_for

LIMIT_S = 400.0
END_LIMIT_S = 8.0
"""Here two processors are shared; on an idle machine it takes a second."""
LAST = "out/counts/_SUCCESS"
"""File after which only the summary and the run are written."""


class Started:
    """A verb and all processes that it starts: they inherit a variable that identifies them."""

    def __init__(self, *arguments: str, program: str = "app") -> None:
        self._mark = str(uuid.uuid4())
        self.process = subprocess.Popen(
            [sys.executable, "-m", program, *arguments],
            cwd=ROOT, env={**os.environ, "STARTED_BY": self._mark}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def others(self) -> list[psutil.Process]:
        """Return processes that run now, beside the verb itself."""
        return [
            process
            for process in psutil.process_iter(["pid"])
            if process.pid != self.process.pid and self._owns(process)
        ]

    def _owns(self, process: psutil.Process) -> bool:
        try:
            return (
                process.environ().get("STARTED_BY") == self._mark and process.status() != psutil.STATUS_ZOMBIE
            )
        except psutil.Error:
            return False

    def has_java(self) -> bool:
        """Whether the JVM runs, and not only its launcher."""
        try:
            return any(
                other.name() == "java" and "org.apache.spark.deploy.SparkSubmit" in other.cmdline()
                for other in self.others()
            )
        except psutil.Error:
            return False

    def ended(self, number: int) -> tuple[int, str, str]:
        """Send a signal; return exit code and output, and require an end in time with nobody left."""
        assert self.process.poll() is None, self.process.communicate()
        begun = time.monotonic()
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=LIMIT_S)
        took = time.monotonic() - begun
        assert took < END_LIMIT_S, f"it ended after {took:.1f} s"
        return self.process.returncode, out, err

    def destroy(self) -> None:
        self.process.kill()
        self.process.wait()
        for other in self.others():
            other.kill()


@pytest.fixture
def start() -> Iterator[Callable[..., Started]]:
    started: list[Started] = []

    def begin(*arguments: str, program: str = "app") -> Started:
        started.append(Started(*arguments, program=program))
        return started[-1]

    yield begin
    for item in started:
        item.destroy()


def _without_steps(err: str) -> list[str]:
    steps = ("asking the cluster", "Spark starts, ", "starting Spark", "keeping ", *STEPS)
    return [line for line in err.splitlines() if not line.startswith(steps)]


def _world(broker: EmbeddedBroker, folder: Path) -> tuple[World, Path]:
    world = World(broker.bootstrap_servers, folder, {"a": {}})
    for number in range(5):
        world.accept(world.arrive("a", b"%d" % number))
    world.commit()
    return world, world.config(folder)


@pytest.mark.parametrize(
    ("program", "number", "code"),
    [
        ("app", signal.SIGINT, 130),
        pytest.param("reconcile", signal.SIGTERM, 143, marks=pytest.mark.long),
    ],
)
def test_while_the_jvm_starts(
    broker: EmbeddedBroker,
    tmp_path: Path,
    start: Callable[..., Started],
    program: str,
    number: int,
    code: int,
) -> None:
    """A signal while the JVM starts leaves no JVM, although only the run knows it: one that was left would live for ever."""
    _, config = _world(broker, tmp_path)
    run = start(*(["reconcile"] if program == "app" else []), "--config", str(config), program=program)
    wait_for(run.has_java, lambda: "no JVM", LIMIT_S)

    ended, out, err = run.ended(number)
    assert (ended, out, _without_steps(err)) == (
        code,
        "",
        [f"ringfence: stopped by {signal.Signals(number).name}: run it again; nothing is half-done"],
    )
    assert "Spark starts, with master local[2]" in err.splitlines()
    wait_for(lambda: not run.others(), lambda: f"{run.others()} are left", END_LIMIT_S)
    assert not (tmp_path / "state" / "nights").exists()


def test_while_a_broker_keeps_us_waiting(start: Callable[..., Started]) -> None:
    """A signal ends an audit that still waits for the broker's first answer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(LIMIT_S)
        run = start("audit", "slow", "--bootstrap-servers", "{}:{}".format(*silent.getsockname()))
        silent.accept()[0].close()  # a first look whether anybody listens
        with silent.accept()[0]:
            assert run.ended(signal.SIGINT) == (
                130,
                "",
                "ringfence: stopped by SIGINT: run it again; it has only read\n",
            )


@pytest.mark.long
@pytest.mark.parametrize(
    ("reached", "number", "code"),
    [
        ("state/scratch", signal.SIGINT, 130),
        ("state/scratch/evidence/_SUCCESS", signal.SIGTERM, 143),
        ("state/results/000001/anomalies/_SUCCESS", signal.SIGINT, 130),
        ("out/anomalies", signal.SIGTERM, 143),
        (LAST, signal.SIGINT, 130),
        ("state/scratch/evidence/_SUCCESS", signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_in_the_middle_of_its_work(
    broker: EmbeddedBroker,
    tmp_path: Path,
    start: Callable[..., Started],
    reached: str,
    number: int,
    code: int,
) -> None:
    """Nothing of a stopped run counts: no run, no summary; and the next run judges all of it.

    Once its last results are written the run may be faster than the signal: then it counts, with its summary.
    """
    _, config = _world(broker, tmp_path)
    out = tmp_path / "out"
    run = start("reconcile", "--config", str(config), "--out", str(out))
    wait_for((tmp_path / reached).exists, lambda: f"{reached} is not written", LIMIT_S)

    ended, said, err = run.ended(number)
    wait_for(lambda: not run.others(), lambda: f"{run.others()} are left", END_LIMIT_S)
    assert (ended, said, len(_without_steps(err))) == (code, "", int(number != signal.SIGKILL)), err
    counts, told = (tmp_path / "state" / "nights").exists(), (out / "summary.json").exists()
    assert (counts, told) == (False, False) or (reached == LAST and told)

    done = run_verb("reconcile", "--config", str(config), "--out", str(out), check=False, limit_s=LIMIT_S)
    assert (done.returncode, (out / "summary.json").exists()) == (0, True), done.stderr


@pytest.mark.long
@pytest.mark.parametrize("reached", ["scratch/evidence/_SUCCESS", "results/000001/anomalies/_SUCCESS"])
def test_killed(broker: EmbeddedBroker, tmp_path: Path, reached: str) -> None:
    """SIGKILL to the run and its JVM leaves nothing that counts: the next run judges the same, and sweeps."""
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
    """A killed JVM, as when memory runs out, gives no result about records, and one line reports it."""
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
    assert error.startswith("ringfence: Spark's JVM has ended, perhaps")
    assert not any(step.startswith("ringfence:") for step in steps)
    assert not (tmp_path / "state" / "nights").exists()


def _jvm_of(job: int) -> int:
    (jvm,) = (child for child in psutil.Process(job).children() if child.name() == "java")
    return jvm.pid

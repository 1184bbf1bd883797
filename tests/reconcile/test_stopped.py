"""Ends of a run by a signal or a kill: nothing of it counts, and no JVM stays."""

import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from app.embedded.broker import EmbeddedBroker
from reconcile.run.verdict.judge import STEPS
from tests.support.reconcile.planted import World
from tests.support.reconcile.started import END_LIMIT_S, LIMIT_S, Started
from tests.support.worker import run_verb, wait_for

LAST = "out/counts/_SUCCESS"
"""File after which only the summary and the run are written."""


def _without_steps(err: str) -> list[str]:
    steps = ("asking the cluster", "Spark starts, ", "starting Spark", "keeping ", *STEPS)
    return [line for line in err.splitlines() if not line.startswith(steps)]


@pytest.fixture
def config(broker: EmbeddedBroker, tmp_path: Path) -> str:
    """Return a configuration with five messages to judge."""
    world = World(broker.bootstrap_servers, tmp_path, {"a": {}})
    world.accept(*(world.arrive("a", b"%d" % number) for number in range(5)))
    world.commit()
    return str(world.config(tmp_path))


def test_while_the_jvm_starts(config: str, tmp_path: Path, start: Callable[..., Started]) -> None:
    """A signal while the JVM starts leaves no JVM, although only the run knows it: one that was left would live for ever."""
    run = start("reconcile", "--config", config)
    wait_for(lambda: run.java() is not None, lambda: "no JVM", LIMIT_S)

    ended, out, err = run.ended(signal.SIGINT)
    assert (ended, out, _without_steps(err)) == (
        130,
        "",
        ["ringfence: stopped by SIGINT: run it again; nothing is half-done"],
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
            ended = run.ended(signal.SIGINT)

    assert ended == (130, "", "ringfence: stopped by SIGINT: run it again; it has only read\n")


@pytest.mark.long
@pytest.mark.parametrize(
    ("reached", "number", "code"),
    [
        ("state/scratch", signal.SIGINT, 130),
        ("state/scratch/evidence/_SUCCESS", signal.SIGKILL, -signal.SIGKILL),
        ("state/results/000001/anomalies/_SUCCESS", signal.SIGTERM, 143),
        (LAST, signal.SIGINT, 130),
    ],
)
def test_in_the_middle_of_its_work(
    config: str, tmp_path: Path, start: Callable[..., Started], reached: str, number: int, code: int
) -> None:
    """Nothing of a stopped run counts: no run, no summary; and the next run judges all of it, and sweeps.

    Once its last results are written the run may be faster than the signal: then it counts, with its summary.
    """
    out, state = tmp_path / "out", tmp_path / "state"
    run = start("reconcile", "--config", config, "--out", str(out))
    wait_for((tmp_path / reached).exists, lambda: f"{reached} is not written", LIMIT_S)

    ended, said, err = run.ended(number)
    wait_for(lambda: not run.others(), lambda: f"{run.others()} are left", END_LIMIT_S)
    assert (ended, said, len(_without_steps(err))) == (code, "", int(number != signal.SIGKILL)), err
    counts, told = (state / "nights").exists(), (out / "summary.json").exists()
    assert (counts, told) == (False, False) or (reached == LAST and told)

    done = run_verb("reconcile", "--config", config, "--out", str(out), check=False, limit_s=LIMIT_S)
    assert (done.returncode, (out / "summary.json").exists()) == (0, True), done.stderr
    assert len([*(state / "results").iterdir()]) == 1 + counts
    assert not (state / "scratch").exists()


@pytest.mark.long
def test_the_jvm_is_killed(config: str, tmp_path: Path, start: Callable[..., Started]) -> None:
    """A killed JVM, as when memory runs out, gives no result about records, and one line reports it."""
    reached = tmp_path / "state" / "scratch" / "evidence" / "_SUCCESS"
    run = start("reconcile", "--config", config)
    wait_for(reached.exists, lambda: f"{reached} is not written", LIMIT_S)
    jvm = run.java()
    assert jvm is not None
    jvm.kill()
    _, said = run.process.communicate(timeout=LIMIT_S)

    assert run.process.returncode == 2
    *steps, error = said.splitlines()
    assert error.startswith("ringfence: Spark's JVM has ended, perhaps")
    assert not any(step.startswith("ringfence:") for step in steps)
    assert not (tmp_path / "state" / "nights").exists()

"""Spark's JVM does not outlive the run, whatever ends that: here a shell script stands in for Spark's own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from pyspark import SparkConf

from reconcile.session.jvm import Jvm, JvmError
from tests.support.checkout import ROOT
from tests.support.worker import wait_for

LIMIT_S = 60
QUIET = "trap 'exit 7' TERM; sleep 300 & echo $! > child; wait"
DEAF = "trap '' TERM; sleep 300 & echo $! > child; while :; do wait; done"


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Make a home of Spark whose program is a script; return the folder in which it will work."""

    def made(script: str) -> Path:
        program = tmp_path / "home" / "bin" / "spark-submit"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("SPARK_HOME", str(tmp_path / "home"))
        work = tmp_path / "work"
        work.mkdir()
        return work

    return made


def _child(work: Path) -> psutil.Process:
    file = work / "child"
    wait_for(
        lambda: file.exists() and file.read_text().endswith("\n"), lambda: "the script did not start", LIMIT_S
    )
    return psutil.Process(int(file.read_text()))


def _gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("script", [QUIET, DEAF], ids=["quiet", "deaf"])
def test_ended_now(spark: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """The JVM ends with all processes that it has started; one that ignores the signal is killed.

    Ctrl-C goes to all of the terminal's group, and the JVM is not in it.
    """
    monkeypatch.setattr("reconcile.session.jvm.TERM_LIMIT_S", 0.5)
    work = spark(script)
    jvm = Jvm(SparkConf(loadDefaults=False), work)
    child = _child(work)
    assert os.getsid(child.pid) != os.getsid(0)

    jvm.end_now()

    wait_for(lambda: _gone(child), lambda: f"{child} is left", LIMIT_S)


def test_its_starter_is_killed(spark: Callable[[str], Path]) -> None:
    work = spark(QUIET)
    program = (
        "import sys, time; from pathlib import Path; from pyspark import SparkConf; from reconcile.session.jvm import Jvm\n"
        "Jvm(SparkConf(loadDefaults=False), Path(sys.argv[1])); time.sleep(300)"
    )
    starter = subprocess.Popen([sys.executable, "-c", program, str(work)], cwd=ROOT)
    try:
        shell = _child(work).parent()
    finally:
        starter.kill()
        starter.wait()

    assert shell is not None
    wait_for(lambda: _gone(shell), lambda: f"{shell} is left", LIMIT_S)


def test_what_it_is_told(spark: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings reach the JVM unchanged, with spaces. Relative folders are resolved first, and names of folders may be any.

    The output of a JVM that ended is kept, and none of it reaches the terminal.
    """
    monkeypatch.setenv("SPARK_CONF_DIR", "some/conf")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory 1g pyspark-shell")
    monkeypatch.setenv("LC_ALL", "C")
    work = spark('printf "%s\\n" "$@"; echo "$SPARK_CONF_DIR"; pwd; echo "$LC_ALL"; echo Error >&2; exit 3')
    jvm = Jvm(SparkConf(loadDefaults=False).set("spark.app.name", "a b"), work)

    with pytest.raises(JvmError, match="ended with 3"):
        jvm.connect(lambda: None)
    assert jvm.said().splitlines() == [
        "--conf", "spark.app.name=a b", "--driver-memory", "1g", "pyspark-shell", str(Path.cwd() / "some/conf"), str(work),
        "C.UTF-8", "Error",
    ]  # fmt: skip

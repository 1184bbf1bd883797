"""ops/systemd: what systemd says of the units, and what it would take although it is wrong."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from agents.lane import DRAIN_LIMIT_S
from tests.support import deployment
from tests.support.deployment import ROOT

UNITS = sorted((ROOT / "ops" / "systemd").glob("*.[st][ei][rm]*"))
SERVICES = [each for each in UNITS if each.suffix == ".service"]
LEAVING_S = 20


def _values(unit: Path, key: str) -> list[str]:
    return [line.partition("=")[2] for line in unit.read_text().splitlines() if line.startswith(f"{key}=")]


def _arguments(unit: Path) -> list[str]:
    [line] = _values(unit, "ExecStart")
    values = {"ADDRESS": "orders", "HANDLER": "orders:handle", "OPTIONS": "--concurrency 10 --web-port 6080"}
    line = re.sub(r"\$\{?(\w+)\}?", lambda found: values[found[1]], line.replace("%i", "6066"))
    program, *rest = shlex.split(line)
    return ["consume", *rest] if program.endswith("/ringfence-consume") else rest


def _said(folder: Path, unit: Path, text: str) -> str:
    """What systemd-analyze has to say of a unit whose programs exist."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name in ("ringfence", "ringfence-consume"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    for other in UNITS:  # a timer looks for its service
        (folder / other.name).write_text(other.read_text().replace("/opt/ringfence/bin", str(programs)))
    (folder / unit.name).write_text(text.replace("/opt/ringfence/bin", str(programs)))
    named = unit.name.replace("@.", "@6066.")
    if named != unit.name:
        (folder / named).symlink_to(folder / unit.name)
    done = subprocess.run(
        ["systemd-analyze", "verify", f"./{named}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return f"{done.stdout}{done.stderr}" + ("" if done.returncode == 0 else f"exit code {done.returncode}")


def test_units() -> None:
    """Workers, consumers, bridges, and the run with its timer."""
    assert [each.name for each in UNITS] == [
        "ringfence-bridge@.service",
        "ringfence-consumer@.service",
        "ringfence-reconcile.service",
        "ringfence-reconcile.timer",
        "ringfence-worker@.service",
    ]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda each: each.name)
def test_systemd_takes_it(unit: Path, tmp_path: Path) -> None:
    """It has nothing to say; of a key that it does not know it has."""
    assert _said(tmp_path, unit, unit.read_text()) == ""
    section = "[Timer]" if unit.suffix == ".timer" else "[Service]"
    broken = tmp_path / "broken"
    broken.mkdir()
    assert "Timeout" in _said(
        broken, unit, unit.read_text().replace(section, f"{section}\nTimeoutStoppSec=1")
    )


@pytest.mark.parametrize("unit", SERVICES, ids=lambda each: each.name)
def test_command(unit: Path) -> None:
    """The command line takes it."""
    assert deployment.understood(_arguments(unit)) == ""


@pytest.mark.parametrize("unit", SERVICES, ids=lambda each: each.name)
def test_a_drain_is_waited_for(unit: Path) -> None:
    """Nobody is killed who drains."""
    [limit] = _values(unit, "TimeoutStopSec")
    arguments = _arguments(unit)
    named = (
        float(arguments[arguments.index("--drain-timeout") + 1]) if "--drain-timeout" in arguments else 0.0
    )

    assert float(limit) >= max(DRAIN_LIMIT_S, named) + LEAVING_S


@pytest.mark.parametrize("unit", SERVICES, ids=lambda each: each.name)
def test_no_root(unit: Path) -> None:
    """It runs as a user of its own, and writes in its own folder only."""
    assert _values(unit, "User") == ["ringfence"]
    assert _values(unit, "StateDirectory") == ["ringfence"]
    assert _values(unit, "ProtectSystem") == ["strict"]
    assert _values(unit, "NoNewPrivileges") == ["yes"]


@pytest.mark.parametrize("unit", [each for each in SERVICES if "@" in each.name], ids=lambda each: each.name)
def test_what_serves_is_never_given_up(unit: Path) -> None:
    """However long the broker is away; an end that was asked for is one."""
    assert _values(unit, "Restart") == ["on-failure"]
    assert _values(unit, "StartLimitIntervalSec") == ["0"]

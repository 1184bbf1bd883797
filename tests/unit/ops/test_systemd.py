"""ops/systemd: what systemd says of the units, and what it would take although it is wrong."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from agents.lane.lane import DRAIN_LIMIT_S
from tests.support import deployment
from tests.support.checkout import ROOT

UNITS = sorted((ROOT / "ops" / "systemd").glob("*.[st][ei][rm]*"))
SERVICES = [unit for unit in UNITS if unit.suffix == ".service"]
SERVING = ("bridge@", "consumer@", "worker@")
LEAVING_S = 20
BY_HAND = ROOT / "ops" / "systemd" / "ringfence"


def _values(unit: Path, key: str) -> list[str]:
    return [line.partition("=")[2] for line in unit.read_text().splitlines() if line.startswith(f"{key}=")]


def _arguments(unit: Path) -> list[str]:
    [line] = _values(unit, "ExecStart")
    values = {"ADDRESS": "orders", "HANDLER": "orders:handle", "OPTIONS": "--concurrency 10 --web-port 6080"}
    line = re.sub(r"\$\{?(\w+)\}?", lambda found: values[found[1]], line.replace("%i", "6066"))
    program, *rest = shlex.split(line)
    return ["consume", *rest] if program.endswith("/ringfence-consume") else rest


def _programs(folder: Path, programs: dict[str, str]) -> Path:
    found = folder / "bin"
    found.mkdir(parents=True)
    for name, text in programs.items():
        (found / name).write_text(f"#!/bin/sh\n{text}\n")
        (found / name).chmod(0o755)
    return found


def _said(folder: Path, unit: Path, text: str) -> str:
    """Return the complaints of systemd-analyze about a unit whose programs exist."""
    programs = str(_programs(folder, {"ringfence": "", "ringfence-consume": ""}))
    # A timer looks for its service.
    texts = {other.name: other.read_text() for other in UNITS} | {unit.name: text}
    for name, content in texts.items():
        (folder / name).write_text(content.replace("/opt/ringfence/current/bin", programs))
    named = unit.name.replace("@.", "@6066.")
    if named != unit.name:
        (folder / named).symlink_to(folder / unit.name)
    done = subprocess.run(
        ["systemd-analyze", "verify", f"./{named}"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return f"{done.stdout}{done.stderr}" + ("" if done.returncode == 0 else f"exit code {done.returncode}")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda item: item.name)
def test_systemd_takes_it(unit: Path, tmp_path: Path) -> None:
    """Systemd accepts each unit without a complaint, and complains about an unknown key."""
    text = unit.read_text()
    section = "[Timer]" if unit.suffix == ".timer" else "[Service]"
    broken = text.replace(section, f"{section}\nTimeoutStoppSec=1")

    assert _said(tmp_path / "good", unit, text) == ""
    assert "Timeout" in _said(tmp_path / "broken", unit, broken)


@pytest.mark.parametrize("unit", SERVICES, ids=lambda item: item.name)
def test_service(unit: Path) -> None:
    """The command line accepts each unit's command, which `current` points to: a version is changed by that alone.

    A unit gets enough time to drain, runs as its own user, and writes only in its own folder. It starts again after
    any failure, however long the broker is away, but not after a requested stop.
    """
    arguments = _arguments(unit)
    [limit] = _values(unit, "TimeoutStopSec")
    named = arguments.index("--drain-timeout") + 1 if "--drain-timeout" in arguments else None
    drain_s = max(DRAIN_LIMIT_S, float(arguments[named]) if named else 0.0)

    assert deployment.understood(arguments) == ""
    assert _values(unit, "ExecStart")[0].startswith("/opt/ringfence/current/bin/ringfence")
    assert float(limit) >= drain_s + LEAVING_S
    expected = {
        "User": "ringfence", "StateDirectory": "ringfence", "ProtectSystem": "strict", "NoNewPrivileges": "yes"
    }  # fmt: skip
    if "@" in unit.name:
        expected |= {"Restart": "on-failure", "StartLimitIntervalSec": "0"}
    assert {key: _values(unit, key) for key in expected} == {key: [value] for key, value in expected.items()}


def _by_hand(
    folder: Path, secrets: str | None, *arguments: str, user: int = 0
) -> tuple[int, str, dict[str, str]]:
    """Exit code, standard error and environment of a verb that somebody runs by hand; who runs it is left to the test."""
    files = {
        "id": f"echo {user}",
        "setpriv": 'echo "$@" > "$SEEN/setpriv"; while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"',
        "ringfence": 'echo "$@" > "$SEEN/arguments"; pwd > "$SEEN/folder"; env -0 > "$SEEN/environment"; exit 3',
        "install": 'for last; do :; done; mkdir "$last"',
    }
    programs = _programs(folder, files)
    script = BY_HAND.read_text()
    for path, instead in {
        "/opt/ringfence/current/bin": programs,
        "/var/lib/ringfence": folder / "state",
        "/etc/ringfence": folder,
    }.items():
        assert path in script
        script = script.replace(path, str(instead))
    (folder / "verb").write_text(script)
    if secrets is not None:
        (folder / "secrets.env").write_text(secrets)
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "SEEN": str(folder), "HOME": "/root"}
    done = subprocess.run(
        ["sh", str(folder / "verb"), *arguments],
        env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    seen = folder / "environment"
    entries = seen.read_text().split("\0")[:-1] if seen.exists() else []
    return done.returncode, done.stderr, dict(entry.split("=", 1) for entry in entries)


def test_a_verb_by_hand_is_one_of_the_units(tmp_path: Path) -> None:
    """A verb by hand has the units' user, folder, configuration and passwords, and returns the verb's exit code."""
    lines = [
        "# of Kafka", "", "; and of nobody", "PLAIN= pa$$w`rd; #1  ", 'DOUBLE="two  words"', """SINGLE='a "b" back\\slash'""",
        "EMPTY=", "LAST=no newline",
    ]  # fmt: skip
    code, said, environment = _by_hand(tmp_path, "\n".join(lines), "groups", "skip", "orders", "a  b")
    [worker] = [service for service in SERVICES if service.name == "ringfence-worker@.service"]
    state = str(tmp_path / "state")

    assert (code, said) == (3, "")
    expected = {
        "PLAIN": "pa$$w`rd; #1", "DOUBLE": "two  words", "SINGLE": r'a "b" back\slash', "EMPTY": "", "LAST": "no newline",
        "HOME": state, "RINGFENCE_APP__DATA_DIR": state, "RINGFENCE_CONFIG": str(tmp_path / "ringfence.toml"),
    }  # fmt: skip
    assert environment.items() >= expected.items()
    assert "RINGFENCE_APP__DATA_DIR=/var/lib/ringfence" in _values(worker, "Environment")
    assert (tmp_path / "folder").read_text() == f"{state}\n"
    assert (tmp_path / "arguments").read_text() == "groups skip orders a  b\n"
    assert "--reuid=ringfence --regid=ringfence" in (tmp_path / "setpriv").read_text()
    # A cluster without passwords needs no file of secrets.
    assert _by_hand(tmp_path / "without", None, "status")[0] == 3


def test_verbs_by_hand_that_are_refused(tmp_path: Path) -> None:
    """Only root runs a verb by hand, and a secret that systemd reads differently is refused.

    The units would log in with another password than the one that works by hand: systemd 252 makes `backslash` of
    the first.
    """
    code, said, _ = _by_hand(tmp_path / "user", "", "status", user=1000)
    assert (code, "sudo ringfence" in said) == (2, True)

    values = (r"back\slash", r'"back\\slash"', '"quo"te"', "'it''s'", "'open")
    lines = {f"SECRET={value}": "SECRET has a backslash, or quotes" for value in values}
    lines["export SECRET=geheim"] = "'export SECRET' is no name"
    for number, (line, complaint) in enumerate(lines.items()):
        code, said, _ = _by_hand(tmp_path / str(number), f"{line}\n", "status")
        assert (code, complaint in said) == (2, True), line
        assert line.partition("=")[2] not in said

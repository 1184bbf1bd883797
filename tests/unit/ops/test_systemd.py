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


def _said(folder: Path, unit: Path, text: str) -> str:
    """Return the complaints of systemd-analyze about a unit whose programs exist."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name in ("ringfence", "ringfence-consume"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    for other in UNITS:  # a timer looks for its service
        (folder / other.name).write_text(
            other.read_text().replace("/opt/ringfence/current/bin", str(programs))
        )
    (folder / unit.name).write_text(text.replace("/opt/ringfence/current/bin", str(programs)))
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
    """Units exist for workers, consumers, bridges, and the run with its timer."""
    assert [unit.name for unit in UNITS] == [
        "ringfence-bridge@.service",
        "ringfence-consumer@.service",
        "ringfence-reconcile.service",
        "ringfence-reconcile.timer",
        "ringfence-worker@.service",
    ]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda item: item.name)
def test_systemd_takes_it(unit: Path, tmp_path: Path) -> None:
    """Systemd accepts each unit without a complaint, and complains about an unknown key."""
    assert _said(tmp_path, unit, unit.read_text()) == ""
    section = "[Timer]" if unit.suffix == ".timer" else "[Service]"
    broken = tmp_path / "broken"
    broken.mkdir()
    assert "Timeout" in _said(
        broken, unit, unit.read_text().replace(section, f"{section}\nTimeoutStoppSec=1")
    )


@pytest.mark.parametrize("unit", SERVICES, ids=lambda item: item.name)
def test_command(unit: Path) -> None:
    """The command line accepts each unit's command."""
    assert deployment.understood(_arguments(unit)) == ""


@pytest.mark.parametrize("unit", SERVICES, ids=lambda item: item.name)
def test_a_drain_is_waited_for(unit: Path) -> None:
    """A unit gets enough time to drain before it is killed."""
    [limit] = _values(unit, "TimeoutStopSec")
    arguments = _arguments(unit)
    named = (
        float(arguments[arguments.index("--drain-timeout") + 1]) if "--drain-timeout" in arguments else 0.0
    )

    assert float(limit) >= max(DRAIN_LIMIT_S, named) + LEAVING_S


@pytest.mark.parametrize("unit", SERVICES, ids=lambda item: item.name)
def test_no_root(unit: Path) -> None:
    """A unit runs as its own user, and writes only in its own folder."""
    assert _values(unit, "User") == ["ringfence"]
    assert _values(unit, "StateDirectory") == ["ringfence"]
    assert _values(unit, "ProtectSystem") == ["strict"]
    assert _values(unit, "NoNewPrivileges") == ["yes"]


@pytest.mark.parametrize(
    "unit", [service for service in SERVICES if "@" in service.name], ids=lambda item: item.name
)
def test_what_serves_is_never_given_up(unit: Path) -> None:
    """A service is restarted after any failure, however long the broker is away. A requested stop ends it."""
    assert _values(unit, "Restart") == ["on-failure"]
    assert _values(unit, "StartLimitIntervalSec") == ["0"]


def _by_hand(
    folder: Path, secrets: str | None, *arguments: str, user: int = 0
) -> tuple[int, str, dict[str, str]]:
    """Exit code, standard error and environment of a verb that somebody runs by hand; who runs it is left to the test."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    files = {
        "id": f"echo {user}",
        "setpriv": 'echo "$@" > "$SEEN/setpriv"; while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"',
        "ringfence": 'echo "$@" > "$SEEN/arguments"; pwd > "$SEEN/folder"; env -0 > "$SEEN/environment"; exit 3',
        "install": 'for last; do :; done; mkdir "$last"',
    }
    for name, text in files.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
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
    done = subprocess.run(
        ["sh", str(folder / "verb"), *arguments],
        env={"PATH": f"{programs}:/usr/bin:/bin", "SEEN": str(folder), "HOME": "/root"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    seen = folder / "environment"
    entries = seen.read_text().split("\0")[:-1] if seen.exists() else []
    return done.returncode, done.stderr, dict(entry.split("=", 1) for entry in entries)


def test_a_verb_by_hand_is_one_of_the_units(tmp_path: Path) -> None:
    """A verb by hand has the units' user, folder, configuration and passwords, and returns the verb's exit code."""
    lines = [
        "# of Kafka",
        "",
        "; and of nobody",
        "PLAIN= pa$$w`rd; #1  ",
        'DOUBLE="two  words"',
        """SINGLE='a "b" back\\slash'""",
        "EMPTY=",
        "LAST=no newline",
    ]
    code, said, environment = _by_hand(tmp_path, "\n".join(lines), "groups", "skip", "orders", "a  b")
    [worker] = [service for service in SERVICES if service.name == "ringfence-worker@.service"]

    assert (code, said) == (3, "")
    assert environment["PLAIN"] == "pa$$w`rd; #1"
    assert environment["DOUBLE"] == "two  words"
    assert environment["SINGLE"] == r'a "b" back\slash'
    assert environment["EMPTY"] == ""
    assert environment["LAST"] == "no newline"
    assert environment["HOME"] == environment["RINGFENCE_APP__DATA_DIR"] == str(tmp_path / "state")
    assert "RINGFENCE_APP__DATA_DIR=/var/lib/ringfence" in _values(worker, "Environment")
    assert environment["RINGFENCE_CONFIG"] == str(tmp_path / "ringfence.toml")
    assert (tmp_path / "folder").read_text() == f"{tmp_path / 'state'}\n"
    assert (tmp_path / "arguments").read_text() == "groups skip orders a  b\n"
    assert "--reuid=ringfence --regid=ringfence" in (tmp_path / "setpriv").read_text()


def test_a_verb_by_hand_without_secrets(tmp_path: Path) -> None:
    """A verb by hand runs without a file of secrets, which a cluster without passwords does not need."""
    assert _by_hand(tmp_path, None, "status")[0] == 3


def test_a_verb_by_hand_says_what_it_needs(tmp_path: Path) -> None:
    """A verb by hand names a missing root permission, and lines that systemd would not take. No password is shown."""
    code, said, _ = _by_hand(tmp_path / "user", "", "status", user=1000)

    assert code == 2
    assert "sudo ringfence" in said

    code, said, _ = _by_hand(tmp_path / "line", "export SECRET=geheim\n", "status")

    assert code == 2
    assert "'export SECRET' is no name" in said
    assert "geheim" not in said


@pytest.mark.parametrize(
    "value", [r"back\slash", r'"back\\slash"', '"quo"te"', '"quo"te', "'it''s'", "'open"]
)
def test_a_value_that_systemd_changes_is_refused(value: str, tmp_path: Path) -> None:
    """The units would log in with another password than the one that works by hand: systemd 252 makes `backslash` of the first."""
    code, said, _ = _by_hand(tmp_path, f"SECRET={value}\n", "status")

    assert code == 2
    assert "SECRET has a backslash, or quotes" in said
    assert value not in said


def test_programs_of_the_units() -> None:
    """Units and hand run what `current` points to: a version is changed, and changed back, by that alone."""
    programs = [_values(service, "ExecStart")[0].split()[0] for service in SERVICES]

    assert {str(Path(program).parent) for program in programs} == {"/opt/ringfence/current/bin"}
    assert "/opt/ringfence/current/bin/ringfence " in BY_HAND.read_text()

"""The trial of images and compose file: what it takes from a machine, and what it expects."""

import pytest

from ringfence_kafka.errors import PrerequisiteError
from tests.containers import machine
from tests.containers.command import CommandError, attempt, run


def test_refusal_where_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing programs are named if Debian's packages are not available."""
    monkeypatch.setattr(machine, "is_debian", lambda: False)

    with pytest.raises(PrerequisiteError, match="missing here: no-such-program"):
        machine.require(["sh", "no-such-program"], ["podman"])
    assert machine.require(["sh"], ["podman"]) == []


def test_pip_settings_reach_the_images() -> None:
    """Pip's settings reach the images by their names in a file, without paths of this machine."""
    listed = r"""global.cert='/etc/ssl/certs/ca-certificates.crt'
global.index-url='https://one.example/simple'
global.trusted-host='\na.example\nb.example'
:env:.default-timeout='180'
:env:.find-links='/opt/wheels'
:env:.index-url='https://two.example/simple'
"""

    assert machine.pip_settings(listed) == (
        "[global]\nindex-url = https://two.example/simple\ntrusted-host = a.example b.example\ntimeout = 180\n"
    )
    assert machine.pip_settings("") == "[global]\n"


def test_a_program_that_fails_shows_its_last_lines() -> None:
    assert attempt(["sh", "-c", "echo out; echo err >&2; exit 3"], limit_s=10).code == 3
    with pytest.raises(CommandError, match=r"ended with 3: its last lines:\n    out\n    err"):
        run(["sh", "-c", "echo out; echo err >&2; exit 3"], limit_s=10)
    with pytest.raises(CommandError, match=r"did not end within 0 s"):
        run(["sleep", "10"], limit_s=0.1)
    assert run(["cat"], limit_s=10, given="in") == "in"

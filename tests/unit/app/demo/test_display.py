import io
import re
import time
import tomllib
from pathlib import Path

import pytest
from rich.console import Console

from app.demo import display
from app.demo.bridge import traffic as bridged
from app.demo.chain.consumers import ADDRESSES as CHAINED
from app.demo.display import Display
from app.demo.run import configuration
from app.demo.traffic import ADDRESSES, Plan
from ringfence_kafka.config.load import validate
from ringfence_kafka.errors import ConfigurationError


def _shown() -> str:
    output = io.StringIO()
    with Display(1_000, Console(file=output, width=100)) as shown:
        shown.phase("producing")
        shown.update(500, 400, 350, 40)
        shown.update(600, 500, 450, 45)
        shown.phase("worker killed")
    return output.getvalue()


def test_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output without a terminal has a line for each phase and some counts, and no terminal commands."""
    few = _shown().splitlines()
    monkeypatch.setattr(display, "PLAIN_EVERY_S", 0.0)
    lines = _shown().splitlines()

    assert [line.split("  ")[-1] for line in few] == ["producing", "worker killed"]
    assert [line.split("  ")[-1] for line in (lines[0], lines[3])] == ["producing", "worker killed"]
    assert len(lines) == 4
    assert "sent 500, consumed 400 of 1,000: accepted 350, duplicates 40; 0 messages/s" in lines[1]
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("terminal", [False, True])
def test_a_long_phase_is_never_silent(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A phase that prints nothing itself shows that it still runs, also on a terminal after the last picture."""
    monkeypatch.setattr(display, "QUIET_LIMIT_S", 0.05)
    output = io.StringIO()
    with Display(1_000, Console(file=output, force_terminal=terminal, width=100)) as shown:
        shown.phase("check")
        shown.close()
        deadline = time.monotonic() + 30.0
        while len(re.findall(r"check: \d+ s so far", output.getvalue())) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_configuration(tmp_path: Path) -> None:
    """The demo's configuration is valid, and a ring holds every ID of the run.

    Fewer messages than a demo needs are refused with the number that is enough.
    """
    for too_few in (Plan, bridged.planned):
        with pytest.raises(ConfigurationError, match=r"100 messages are too few .* use [0-9]+ or more"):
            too_few(100, 1)
    plan = Plan(30_000, 1)
    settings = validate(tomllib.loads(configuration("127.0.0.1:9092", tmp_path / 'a "b"', plan, 7)))

    assert [address.name for address in settings.addresses] == [*CHAINED, *ADDRESSES]
    assert {address.id_cache_size for address in settings.addresses} == {30_000}
    assert settings.state_dir == tmp_path / 'a "b"' / "state" / "worker"
    assert settings.app.web_port == 7

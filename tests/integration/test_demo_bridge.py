"""The demo of a bridge as a person runs it: it is exact, it finds errors, and it leaves nothing behind."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.demo import RunningDemo

DEMO: Final = "import sys; from app.demo.bridge import run; sys.exit(run(20_000))"
WITHOUT_MEMORY: Final = """
import sys
from app.demo.bridge import run
from app.demo.bridge import run
exact = run.Clusters.configuration
def forgetful(self, name, web_port):
    path = exact(self, name, web_port)
    text = path.read_text("utf-8")
    if name == run.TARGET:
        text = text.replace("id_cache_size = 40000", "id_cache_size = 0")
    path.write_text(text, "utf-8")
    return path
run.Clusters.configuration = forgetful
sys.exit(run(20_000))
"""
COLUMNS: Final = (
    "sent to origin", "sent to target", "distinct", "accepted", "lost", "doubled", "out of order", "changed",
)  # fmt: skip


@pytest.fixture
def demo(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningDemo]:
    """Yield a demo of 20,000 messages, or of the program that the test names."""
    running = RunningDemo(getattr(request, "param", DEMO), tmp_path)
    yield running
    running.kill()


def _row(output: str) -> dict[str, int]:
    [*_, row] = re.findall(r"^│((?: +[\d,]+ │){8})$", output, re.MULTILINE)
    numbers = [cell.strip().replace(",", "") for cell in row.split("│")[:-1]]
    return dict(zip(COLUMNS, map(int, numbers), strict=True))


def _count(pattern: str, output: str) -> int:
    found = re.search(pattern, output)
    assert found is not None, output
    return int(found[1].replace(",", ""))


@pytest.mark.long
def test_a_short_demo(demo: RunningDemo) -> None:
    """A short demo has exit code 0, nothing lost or doubled, and each message forwarded; no process and no folder stays behind.

    How many records the bridge wrote again depends on the moments of its deaths.
    """
    assert demo.end() == 0, demo.output
    row = _row(demo.output)
    assert (row["sent to origin"], row["sent to target"]) == (14_000, 11_000)
    assert 17_000 < row["distinct"] == row["accepted"] < 19_000
    assert [row[column] for column in COLUMNS[4:]] == [0, 0, 0, 0]
    assert _count(r"([\d,]+) messages came both ways", demo.output) > 4_000
    written = _count(r"The bridge wrote ([\d,]+) records", demo.output)
    again = _count(r"([\d,]+) of them once more than needed", demo.output)
    assert 12_000 < written - again < 13_400  # nine of ten of those that were sent to the origin
    assert "Killed twice, cut off for 3 s, failed over once" in demo.output
    assert demo.started >= 8  # two brokers, topics twice, two workers, three bridges, the check
    assert demo.left_behind == []


@pytest.mark.long
@pytest.mark.parametrize("demo", [WITHOUT_MEMORY], indirect=True)
def test_a_target_without_memory(demo: RunningDemo) -> None:
    """A target without memory gives exit code 1, doubled, and keeps the evidence.

    A demo that could not fail would prove nothing.
    """
    demo.wait_for(lambda: "bridge restarted" in demo.output or demo.ended)

    assert demo.end() == 1, demo.output
    row = _row(demo.output)
    assert row["doubled"] > 4_000
    assert [row[name] for name in ("lost", "changed")] == [0, 0]
    [kept] = demo.left_behind
    assert f"configuration, logs and data are in {kept}" in demo.output


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "topics, a worker on each side"),
        pytest.param(signal.SIGTERM, "link cut for", marks=pytest.mark.long),
    ],
)
def test_interrupted(demo: RunningDemo, number: signal.Signals, moment: str) -> None:
    """Ctrl-C and SIGTERM end the demo at any step: no process and no folder stays behind."""
    demo.wait_for(lambda: moment in demo.output)

    demo.signal(number)
    assert demo.end() == 128 + number, demo.output
    assert "interrupted: what was started is ended" in demo.output
    assert demo.left_behind == []

"""The demos, with and without a bridge, as a person runs them: exact, and nothing is left behind."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.checkout import ROOT
from tests.support.demo import LIMIT_S, RunningDemo

DEMO: Final = "import sys; from app.demo import run_demo; sys.exit(run_demo(10_000))"
WITHOUT_RINGS: Final = """
import sys
from app.demo import run_demo
module = sys.modules["app.demo.run"]
exact = module.configuration
module.configuration = lambda *args: exact(*args).replace("id_cache_size = 10000", "id_cache_size = 0")
sys.exit(run_demo(10_000))
"""
COLUMNS: Final = ("sent", "distinct", "accepted", "lost", "torn", "doubled", "out of order", "changed")


@pytest.fixture
def demo(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningDemo]:
    """Yield a demo of 10,000 messages, the fewest that it takes, or of the program that the test names."""
    running = RunningDemo(getattr(request, "param", DEMO), tmp_path)
    yield running
    running.kill()


def _totals(output: str, name: str = "total") -> dict[str, int]:
    row = re.search(rf"^│ {name} +│(.*)│$", output, re.MULTILINE)
    assert row is not None, output
    numbers = [cell.strip().replace(",", "") for cell in row.group(1).split("│")]
    return dict(zip(COLUMNS, map(int, numbers[: len(COLUMNS)]), strict=True))


def _require_exact(output: str) -> int:
    """Require the results of traffic and kills; return the number of orders in the chain."""
    totals = _totals(output)
    assert totals["sent"] == 10_000
    assert 8_500 < totals["distinct"] == totals["accepted"] < 9_500
    assert [totals[column] for column in COLUMNS[3:]] == [0, 0, 0, 0, 0]
    assert "worker killed with SIGKILL after " in output
    assert re.search(r"^\d+ resends came after the kill while their originals", output, re.MULTILINE)
    assert "handler orders → billing killed with SIGKILL" in output
    chain = re.search(
        r"^orders → billing → ledger, .*: ([\d,]+) orders of (\d+|1,000) accounts, (.*)$",
        output,
        re.MULTILINE,
    )
    assert chain is not None, output
    assert chain[3] == "0 lost, 0 doubled, 0 out of order, 0 wrong. All totals are exact."
    orders = int(chain[1].replace(",", ""))
    assert orders > _totals(output, "orders")["accepted"] > 3_500  # parts of transactions are orders too
    killed = re.search(r"^([\d,]+) of them were in billing when its handler was killed", output, re.MULTILINE)
    assert killed is not None, output
    assert 0 < int(killed[1].replace(",", "")) < orders
    return orders


def test_exact_and_interrupted(demo: RunningDemo) -> None:
    """A short demo finds no fault, with resends across the kill. Ctrl-C before its report leaves no process and no folder."""
    demo.wait_for(lambda: "The reconciliation run on Spark" in demo.output)
    demo.signal(signal.SIGINT)

    assert demo.end() == 128 + signal.SIGINT, demo.output
    _require_exact(demo.output)
    assert "interrupted: what was started is ended" in demo.output
    assert demo.left_behind == []


@pytest.mark.long
def test_a_short_demo(demo: RunningDemo, tmp_path: Path) -> None:
    """A short demo has exit code 0, and a clean report. No process stays behind, and no folder but the report."""
    assert demo.end() == 0, demo.output
    orders = _require_exact(demo.output)
    assert "verdict: clean" in demo.output
    for address in ("billing", "ledger"):  # what handlers send are inputs as any other
        assert re.search(
            rf"^│ {address} +│ +{orders:,} │ +{orders:,} │ .*│ none +│$", demo.output, re.MULTILINE
        ), demo.output
    page = Path(demo.output.splitlines()[-1].removeprefix("report:").strip())
    assert page.parent.parent == tmp_path / "data" / "demo"
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    # Broker, topics, two workers, three handlers, two checks, the nightly job and its JVM.
    assert demo.started >= 11
    assert demo.left_behind == []


@pytest.mark.long
@pytest.mark.parametrize("demo", [WITHOUT_RINGS], indirect=True)
def test_a_worker_that_lets_duplicates_pass(demo: RunningDemo) -> None:
    """A worker that lets duplicates pass gives exit code 1, doubled, with the worker's log, and keeps the evidence.

    A demo that could not fail would prove nothing.
    """
    assert demo.end() == 1, demo.output
    totals = _totals(demo.output)
    for plain in (_totals(demo.output, name) for name in ("orders", "payments")):
        assert plain["doubled"] == plain["sent"] - plain["distinct"] > 250
    transfers = _totals(demo.output, "transfers")  # of each transaction all parts are
    assert transfers["doubled"] > transfers["sent"] - transfers["distinct"] > 50
    assert [totals[name] for name in ("lost", "torn", "out of order", "changed")] == [0, 0, 0, 0]
    assert "the last lines of the worker's log:" in demo.output
    [kept] = demo.left_behind
    assert f"configuration, logs and data are in {kept}" in demo.output
    assert (Path(kept) / "worker-2.log").read_text()


@pytest.mark.long
@pytest.mark.parametrize("moment", ["broker: ", "topics and worker"])
def test_interrupted(demo: RunningDemo, moment: str) -> None:
    """SIGTERM ends the demo at any step: no process and no folder stays behind."""
    demo.wait_for(lambda: moment in demo.output)

    demo.signal(signal.SIGTERM)
    assert demo.end() == 128 + signal.SIGTERM, demo.output
    assert demo.left_behind == []


def test_check_without_topics(bootstrap: str) -> None:
    """Topics that cannot be read are not judged: exit code 2."""
    done = subprocess.run(
        [sys.executable, "-m", "app.check", "--bootstrap", bootstrap, "--topics", "no=where"],
        capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=ROOT,
    )  # fmt: skip

    assert done.returncode == 2
    assert "the check could not read everything: topic no" in done.stderr


BRIDGED: Final = "import sys; from app.demo.bridge import run_demo; sys.exit(run_demo(20_000))"
BRIDGE_COLUMNS: Final = (
    "sent to origin", "sent to target", "distinct", "accepted", "lost", "doubled", "out of order", "changed",
)  # fmt: skip


def _row(output: str) -> dict[str, int]:
    [*_, row] = re.findall(r"^│((?: +[\d,]+ │){8})$", output, re.MULTILINE)
    numbers = [cell.strip().replace(",", "") for cell in row.split("│")[:-1]]
    return dict(zip(BRIDGE_COLUMNS, map(int, numbers), strict=True))


def _count(pattern: str, output: str) -> int:
    found = re.search(pattern, output)
    assert found is not None, output
    return int(found[1].replace(",", ""))


@pytest.mark.long
@pytest.mark.parametrize("demo", [BRIDGED], indirect=True)
def test_a_short_demo_of_a_bridge(demo: RunningDemo) -> None:
    """A short demo has exit code 0, nothing lost or doubled, and each message forwarded; no process and no folder stays behind.

    How many records the bridge wrote again depends on the moments of its deaths.
    """
    assert demo.end() == 0, demo.output
    row = _row(demo.output)
    assert (row["sent to origin"], row["sent to target"]) == (14_000, 11_000)
    assert 17_000 < row["distinct"] == row["accepted"] < 19_000
    assert [row[column] for column in BRIDGE_COLUMNS[4:]] == [0, 0, 0, 0]
    assert _count(r"([\d,]+) messages came both ways", demo.output) > 4_000
    written = _count(r"The bridge wrote ([\d,]+) records", demo.output)
    again = _count(r"([\d,]+) of them once more than needed", demo.output)
    assert 12_000 < written - again < 13_400  # nine of ten of those that were sent to the origin
    assert "Killed twice, cut off for 3 s, failed over once" in demo.output
    assert demo.started >= 8  # two brokers, topics twice, two workers, three bridges, the check
    assert demo.left_behind == []


@pytest.mark.long
@pytest.mark.parametrize("demo", [BRIDGED], indirect=True)
def test_interrupted_with_a_bridge(demo: RunningDemo) -> None:
    """SIGTERM ends the demo at any step: no process and no folder stays behind."""
    demo.wait_for(lambda: "link cut for" in demo.output)

    demo.signal(signal.SIGTERM)
    assert demo.end() == 128 + signal.SIGTERM, demo.output
    assert "interrupted: what was started is ended" in demo.output
    assert demo.left_behind == []

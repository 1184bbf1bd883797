"""The demo as a person runs it, and its check on topics that were tampered with."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.support import kafka
from tests.support.checkout import ROOT
from tests.support.demo import LIMIT_S, RunningDemo
from tests.support.kafka import Sent

DEMO: Final = "import sys; from app.demo import run; sys.exit(run(10_000))"
WITHOUT_RINGS: Final = """
import sys
from app.demo import run
module = sys.modules["app.demo.run"]
exact = module.configuration
module.configuration = lambda *args: exact(*args).replace("id_cache_size = 10000", "id_cache_size = 0")
sys.exit(run(10_000))
"""
WITHOUT_A_WORKER: Final = """
import os, sys
from app.demo import run
from ringfence_kafka.errors import RingfenceError
os.environ["RINGFENCE_FAILPOINTS"] = "before-fence:*=kill"
try:
    run(10_000)
except RingfenceError as error:
    print(error)
    sys.exit(error.exit_code)
"""
WITHOUT_STATE: Final = """
import os, sys
from pathlib import Path
from app.demo import run
from app.demo.chain import consumers
Path("forgetful.py").write_text('''
from app.demo.chain import billing
states = {}
class Forgetful:
    def __init__(self, message):
        self._message = message
    def __getattr__(self, name):
        return getattr(self._message, name)
    state = property(lambda self: states.get(self.group), lambda self, text: states.update({self.group: text}))
async def handle(message):
    await billing.handle(Forgetful(message))
''')
os.environ["PYTHONPATH"] += os.pathsep + str(Path.cwd())
consumers.HANDLERS["billing"] = "forgetful:handle"
sys.exit(run(10_000))
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


def test_a_short_demo(demo: RunningDemo, tmp_path: Path) -> None:
    """A short demo has exit code 0, no fault in the table, and resends across the kill.

    No process stays behind, and no folder but the report.
    """
    assert demo.end() == 0, demo.output
    totals = _totals(demo.output)
    assert totals["sent"] == 10_000
    assert 8_500 < totals["distinct"] == totals["accepted"] < 9_500
    assert [totals[column] for column in COLUMNS[3:]] == [0, 0, 0, 0, 0]
    assert "worker killed with SIGKILL after " in demo.output
    assert re.search(r"^\d+ resends came after the kill while their originals", demo.output, re.MULTILINE)
    assert "handler orders → billing killed with SIGKILL" in demo.output
    chain = re.search(
        r"^orders → billing → ledger, .*: ([\d,]+) orders of (\d+|1,000) accounts, (.*)$",
        demo.output,
        re.MULTILINE,
    )
    assert chain is not None, demo.output
    assert chain[3] == "0 lost, 0 doubled, 0 out of order, 0 wrong. All totals are exact."
    orders = int(chain[1].replace(",", ""))
    assert orders > _totals(demo.output, "orders")["accepted"] > 3_500  # parts of transactions are orders too
    killed = re.search(
        r"^([\d,]+) of them were in billing when its handler was killed", demo.output, re.MULTILINE
    )
    assert killed is not None, demo.output
    assert 0 < int(killed[1].replace(",", "")) < orders
    assert "verdict: clean" in demo.output
    for address in ("billing", "ledger"):  # what handlers send are inputs as any other
        assert re.search(
            rf"^│ {address} +│ +{orders:,} │ +{orders:,} │ .*│ none +│$", demo.output, re.MULTILINE
        ), demo.output
    page = Path(demo.output.splitlines()[-1].removeprefix("report:").strip())
    assert page.parent.parent == tmp_path / "data" / "demo"
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert (
        demo.started >= 11
    )  # broker, topics, two workers, three handlers, two checks, the nightly job and its JVM
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
@pytest.mark.parametrize("demo", [WITHOUT_STATE], indirect=True)
def test_a_handler_that_forgets(demo: RunningDemo) -> None:
    """Totals in a process's memory are wrong after its death, which gives exit code 1 and each wrong line by its name."""
    assert demo.end() == 1, demo.output
    assert [_totals(demo.output)[name] for name in COLUMNS[3:]] == [0, 0, 0, 0, 0]
    assert re.search(
        r"0 lost, 0 doubled, 0 out of order, [1-9][\d,]* wrong\.?$", demo.output, re.MULTILINE
    ), demo.output
    named = re.search(
        r"^wrong: billing/\d/\d+ \(account customer-\d+, order orders/", demo.output, re.MULTILINE
    )
    assert named is not None, demo.output
    assert "the last lines of the logs of its handlers:" in demo.output


@pytest.mark.long
@pytest.mark.parametrize("demo", [WITHOUT_A_WORKER], indirect=True)
def test_a_worker_that_does_not_come_up(demo: RunningDemo) -> None:
    """A worker that does not start gives exit code 2, its log, and the place of all of it."""
    assert demo.end() == 2, demo.output
    assert "the worker did not start: fix what its log names" in demo.output
    assert "worker worker of demo starts" in demo.output
    [kept] = demo.left_behind
    assert f"(all of it: {kept}/worker-1.log)" in demo.output


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "broker: "),
        (signal.SIGTERM, "topics and worker"),
        (signal.SIGINT, "worker restarted"),
    ],
)
def test_interrupted(demo: RunningDemo, number: signal.Signals, moment: str) -> None:
    """Ctrl-C and SIGTERM end the demo at any step: no process and no folder stays behind."""
    demo.wait_for(lambda: moment in demo.output)

    demo.signal(number)
    assert demo.end() == 128 + number, demo.output
    assert "interrupted: what was started is ended" in demo.output
    assert demo.left_behind == []


# -- the check, on topics made by hand -------------------------------------------------------------------------


INPUTS: Final = [
    Sent(b"1", b"g", b"one", (("trace", b"t"),)),
    Sent(b"2", b"g", b"two"),
    Sent(None, b"g", None),
    Sent(b"3", b"h", b"three"),
    Sent(b"1", b"g", b"one", (("trace", b"t"),)),
]


def _check(
    bootstrap: str, accepted: Sequence[int], *, spoil: bool = False
) -> tuple[int, dict[str, int], str]:
    """Write the inputs and an output for each named one; return exit code, total row, and the whole output."""
    topic = kafka.unique("demo-check")
    kafka.create_topics(bootstrap, {topic: (1, {}), f"{topic}.accepted": (1, {})})
    now = int(time.time() * 1000)
    inputs = [input_._replace(timestamp=now + index) for index, input_ in enumerate(INPUTS)]
    kafka.send(bootstrap, topic, inputs)
    outputs = []
    for index in accepted:
        headers = (*inputs[index].headers, ("_AMQ_DUPL_ID", inputs[index].id))
        source = ("_RF_SOURCE", f"{topic}/0/{index}".encode())
        outputs.append(
            inputs[index]._replace(
                id=None, headers=(*headers, source) if inputs[index].id else (*inputs[index].headers, source)
            )
        )
    if spoil:
        outputs[0] = outputs[0]._replace(value=b"another")
    kafka.send_in_transaction(bootstrap, f"{topic}.accepted", outputs, commit=True)
    kafka.send_in_transaction(bootstrap, f"{topic}.accepted", outputs, commit=False)
    done = subprocess.run(
        [sys.executable, "-m", "app.check", "--bootstrap", bootstrap,
         "--topics", f"{topic}={topic}.accepted"],
        capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=ROOT,
    )  # fmt: skip
    return done.returncode, _totals(done.stdout), done.stdout


def test_check_exact(bootstrap: str) -> None:
    """The output of a faultless worker passes; aborted records do not count."""
    code, totals, _ = _check(bootstrap, [0, 1, 2, 3])

    assert code == 0
    assert totals == dict(zip(COLUMNS, [5, 4, 4, 0, 0, 0, 0, 0], strict=True))


@pytest.mark.parametrize(
    ("accepted", "column", "said"),
    [
        ([0, 1, 3], "lost", r"lost: \S+/0/2 \(group g, ID none\): not accepted"),
        ([0, 1, 2, 3, 4], "doubled", r"doubled: \S+/0/4 \(group g, ID 1\): accepted 2 times"),
        ([0, 1, 1, 2, 3], "doubled", r"doubled: \S+/0/1 \(group g, ID 2\): accepted 2 times"),
        ([1, 0, 2, 3], "out of order", r"out of order: \S+/0/0 \(group g, ID 1\): accepted after offset 1"),
    ],
)
def test_check_tampered(bootstrap: str, accepted: list[int], column: str, said: str) -> None:
    """One fault gives exit code 1, its column and no other, and the record by its name."""
    code, totals, output = _check(bootstrap, accepted)

    assert code == 1
    assert {column: totals[column] for column in COLUMNS[3:] if totals[column]} == {column: 1}
    assert re.search(said, output)


def test_check_changed(bootstrap: str) -> None:
    code, totals, output = _check(bootstrap, [0, 1, 2, 3], spoil=True)

    assert code == 1
    assert {column: totals[column] for column in COLUMNS[3:] if totals[column]} == {"changed": 1}
    assert "value not as in the input" in output


def test_check_without_topics(bootstrap: str) -> None:
    """Topics that cannot be read are not judged: exit code 2."""
    done = subprocess.run(
        [sys.executable, "-m", "app.check", "--bootstrap", bootstrap, "--topics", "no=where"],
        capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=ROOT,
    )  # fmt: skip

    assert done.returncode == 2
    assert "the check could not read everything: topic no" in done.stderr

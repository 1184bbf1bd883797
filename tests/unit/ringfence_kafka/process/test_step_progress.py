import asyncio
import os
import pty
import subprocess
import sys

import pytest

from ringfence_kafka.process.step_progress import FIRST_S, INTERVAL_S_MAX, Steps, reading
from ringfence_kafka.readers import read_counts


class _Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_line_a_step() -> None:
    """Each step has a line with its own counts, or those of tasks, and its time. Between steps there is none."""
    lines: list[str] = []
    clock = _Clock()
    steps = Steps(lines.append, so_far=lambda: "3 of 200 tasks", clock=clock)
    steps.start_step("reading orders")
    steps.count("300,000 messages")
    clock.now += 12.4
    steps.report_due()
    steps.start_step("counting")
    clock.now += 0.26
    steps.end()
    steps.end()
    clock.now += 1_000
    steps.report_due()

    of_orders = ["reading orders: 300,000 messages, 12 s so far", "reading orders: 300,000 messages, 12 s"]
    assert lines == [*of_orders, "counting: 0.3 s"]


def test_a_long_step_goes_on() -> None:
    """A long step prints its first line after ten seconds, then at intervals that grow to a minute."""
    lines: list[str] = []
    clock = _Clock()
    steps = Steps(lines.append, so_far=lambda: "3 of 200 tasks", clock=clock)
    steps.start_step("matching")
    began, at = clock.now, []
    while clock.now < began + 400:
        clock.now += 1
        before = len(lines)
        steps.report_due()
        if len(lines) > before:
            at.append(clock.now - began)

    assert at == [10, 20, 40, 80, 140, 200, 260, 320, 380]
    assert lines[0] == "matching: 3 of 200 tasks, 10 s so far"
    assert (FIRST_S, INTERVAL_S_MAX) == (10, 60)


def test_records_of_all_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    """Records that tasks of the same command read count too, and no name steers a terminal."""

    async def read() -> None:
        read_counts.report(5)

    async def both() -> None:
        await asyncio.gather(read(), asyncio.create_task(read()))

    with reading("orders\x1b[31m", brief_s=0):
        asyncio.run(both())
    read_counts.report(7)

    assert capsys.readouterr().err == "reading orders\\x1b[31m: 10 records, 0.0 s\n"


PROGRAM = """
from ringfence_kafka.process import step_progress
with step_progress.steps() as each:
    each.say('line')
    each.start_step('step')
"""


def test_a_terminal_has_no_lines() -> None:
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", PROGRAM], stderr=theirs, check=True)
    os.write(theirs, b"end\n")
    shown = os.read(ours, 1_000)
    for number in (ours, theirs):
        os.close(number)

    assert shown == b"end\r\n"


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full"])
def test_nobody_reads(closed: str) -> None:
    """A command that cannot report its progress continues."""
    subprocess.run(["sh", "-c", f'"$0" -c "$1" {closed}', sys.executable, PROGRAM], check=True)

"""Output of a run: a table for people, a document for programs."""

import json
import os
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.contest import COMPARED, CONTENDERS, Outcome
from bench.job import spread
from bench.startup import PLAIN
from bench.trickle import RATE

_PACKAGES: Final = ("faust-streaming", "aiokafka", "rocksdict")
_MIB: Final = 2**20


def show(outcome: Outcome, console: Console) -> None:
    """Print the table, the ratios and what failed."""
    ran = [contender for contender in CONTENDERS.values() if outcome.runs(contender)]
    rows = [_row(outcome, name) for name in ran]
    table = Table("", *(rows[0] if rows else ()))
    for name, row in zip(ran, rows, strict=True):
        table.add_row(name, *row.values())
    if rows:
        console.print(table)
        console.print(
            "Median (smallest to largest). The clock runs from the first commit seen to the last. "
            f"p50, p99 and the last two: once, at {RATE:,} messages/s."
        )
    for compared in COMPARED:
        for name, values in ratios(outcome, *compared).items():
            pairs = ", ".join(f"{value:.2f}" for value in values)
            console.print(
                f"{name}, {' / '.join(compared)}, pair by pair: {pairs}; median {spread(values)[1]:.2f}"
            )
    for contender, reason in outcome.left_out.items():
        console.print(f"left out: {contender}: {reason}", markup=False)
    for failure in outcome.failures:
        console.print(f"failed: {failure}", markup=False)


def _row(outcome: Outcome, contender: str) -> dict[str, str]:
    """Return the results of one contender, by column."""
    runs = outcome.runs(contender)
    plan = outcome.plain_plan if contender == PLAIN else outcome.plan
    forwarded = [run.forwarded / plan.messages * 100 for run in runs if run.forwarded]
    outputs = " / ".join(f"{outputs:,}" for outputs in sorted({run.outputs for run in runs}))
    exact = "exact" if outcome.exact(contender) else f"NOT EXACT\nof {outcome.expected[contender]:,}"
    share = f"\n{_range(forwarded, 1)} % forwarded" if forwarded else ""
    return {
        "messages": f"{len(runs)} x\n{plan.messages:,}{share}",
        "messages/s": _range([run.rate for run in runs], 0),
        "CPU s /\nmillion": _range([run.cpu_s_per_million for run in runs], 2),
        "broker's": _range([run.broker_cpu_s / run.measured * 1e6 for run in runs], 2),
        "RSS, MiB": _range([run.peak_rss_bytes / _MIB for run in runs], 0),
        **_trickled(outcome, contender),
        "outputs": f"{outputs}\n{exact}",
    }


def _trickled(outcome: Outcome, contender: str) -> dict[str, str]:
    found = outcome.trickles.get(contender)
    names = ("p50 / p99, ms", "CPU s /\nmillion", "broker's")
    if found is None:
        slow = "too slow" if contender in outcome.slow or contender == PLAIN else "-"
        return dict(zip((f"{name} " for name in names), (slow, "", ""), strict=True))
    cells = (
        f"{found.p50_s * 1000:,.0f} / {found.p99_s * 1000:,.0f}",
        f"{found.cpu_s_per_million:.1f}",
        f"{found.broker_cpu_s_per_million:.1f}",
    )
    return dict(zip((f"{name} " for name in names), cells, strict=True))


def _range(values: list[float], digits: int) -> str:
    low, median, high = spread(values)
    if len(values) == 1:
        return f"{median:,.{digits}f}"
    return f"{median:,.{digits}f}\n({low:,.{digits}f} to {high:,.{digits}f})"


def ratios(outcome: Outcome, contender: str, other: str) -> dict[str, list[float]]:
    """Return the contender's figure by the other's, a pair a round: noise that both of a pair suffered cancels out."""
    pairs = outcome.pairs(contender, other)
    if not pairs:
        return {}
    return {
        "messages/s": [one.rate / two.rate for one, two in pairs],
        "CPU s / million": [one.cpu_s_per_million / two.cpu_s_per_million for one, two in pairs],
    }


def machine() -> dict[str, Any]:
    """Return the machine and the package versions of the measurement."""
    return {
        "machine": {
            "cpus": os.cpu_count(),
            "architecture": platform.machine(),
            "system": platform.system(),
            "python": platform.python_version(),
        },
        "versions": {package: version(package) for package in _PACKAGES},
    }


def document(outcome: Outcome) -> dict[str, Any]:
    """Everything measured, and where."""
    return {
        **machine(),
        "plan": asdict(outcome.plan),
        "plain_plan": asdict(outcome.plain_plan),
        "expected": outcome.expected,
        "runs": [
            {
                "round": number,
                **asdict(run),
                "messages_per_s": run.rate,
                "cpu_s_per_million": run.cpu_s_per_million,
            }
            for number, value in enumerate(outcome.rounds, 1)
            for run in value.values()
        ],
        "ratios": {" / ".join(item): ratios(outcome, *item) for item in COMPARED},
        "exact": {
            contender: outcome.exact(contender)
            for contender in CONTENDERS.values()
            if outcome.runs(contender)
        },
        "trickles": {name: asdict(found) for name, found in outcome.trickles.items()},
        "too_slow_for_a_trickle": outcome.slow,
        "left_out": outcome.left_out,
        "failures": outcome.failures,
    }


def save(outcome: Outcome, path: Path) -> None:
    """Write the document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document(outcome), indent=2) + "\n", "utf-8")

"""The load and the figures of the latency benchmark, printed and saved."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.job import Run, spread
from bench.table import machine
from bench.traffic import Plan

WARM_UP_S: Final = 10.0
"""After that Java has compiled what the broker runs."""
_ROUGH: Final = 100
"""From here on digits behind the point say nothing."""


@dataclass(frozen=True, slots=True)
class Load:
    """Work for each version in each round."""

    rate: int
    """Messages a second, all partitions together; 0 = this is left out."""
    seconds: float
    """Measured, after :data:`WARM_UP_S`."""
    backlog: int
    """Messages; 0 = this is left out."""
    plan: Plan
    partitioner: str = "murmur2"
    """``crc32``: three of four messages are forwarded."""

    @property
    def ring(self) -> int:
        """IDs a lane remembers: all if messages are forwarded, because a home lane hears from partitions that are not in step."""
        if self.partitioner == "murmur2":
            return self.plan.ring
        return max(self.plan.forwarded_ring, round(self.rate * (WARM_UP_S + self.seconds) * 2))


@dataclass(frozen=True, slots=True)
class Steady:
    """One version under steady traffic. All seconds are from a message's making to its being read as accepted."""

    messages: int
    """Resends included."""
    p50_s: float
    p99_s: float
    p999_s: float
    max_s: float
    silence_s: float
    """The longest time between two accepted messages of one input partition."""
    cpu_s_per_million: float
    broker_cpu_s_per_million: float
    transactions: int
    load_average: float
    """Load average of the machine, in the minute at whose end it was measured."""


@dataclass(slots=True)
class Found:
    """Everything measured, by version; a round is a place in the lists."""

    load: Load
    steady: dict[str, list[Steady]] = field(default_factory=dict)
    backlog: dict[str, list[Run]] = field(default_factory=dict)


def figures(found: Found) -> Iterator[tuple[str, str, list[float]]]:
    """Yield each measurement, version, and the values of its rounds."""
    for name, runs in found.steady.items():
        yield "latency, median, ms", name, [run.p50_s * 1000 for run in runs]
        yield "latency, p99, ms", name, [run.p99_s * 1000 for run in runs]
        yield "latency, p99.9, ms", name, [run.p999_s * 1000 for run in runs]
        yield "latency, largest, ms", name, [run.max_s * 1000 for run in runs]
        yield "longest silence of a lane, ms", name, [run.silence_s * 1000 for run in runs]
        yield "messages a transaction", name, [run.messages / max(run.transactions, 1) for run in runs]
        yield "CPU s / million", name, [run.cpu_s_per_million for run in runs]
        yield "broker's CPU s / million", name, [run.broker_cpu_s_per_million for run in runs]
    for name, done in found.backlog.items():
        yield "backlog, messages/s", name, [run.rate for run in done]
        yield "backlog, CPU s / million", name, [run.cpu_s_per_million for run in done]
        yield (
            "backlog, broker's CPU s / million",
            name,
            [run.broker_cpu_s / run.measured * 1e6 for run in done],
        )


def show(found: Found, console: Console) -> None:
    """Print medians with the smallest and largest, and ratios, a pair a round, to the first version."""
    by_figure: dict[str, dict[str, list[float]]] = {}
    for what, name, values in figures(found):
        by_figure.setdefault(what, {})[name] = values
    table = Table("", "", "median (smallest to largest)", "ratio")
    for what, by_name in by_figure.items():
        first = next(iter(by_name))
        for name, values in by_name.items():
            table.add_row(
                what if name == first else "",
                name,
                _cell(values, 0 if max(values) >= _ROUGH else 1),
                ""
                if name == first
                else _cell([one / two for one, two in zip(values, by_name[first], strict=True)], 2),
            )
        table.add_section()
    console.print(table)


def _cell(values: Sequence[float], digits: int) -> str:
    low, median, high = spread(values)
    return f"{median:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def save(found: Found, path: Path) -> None:
    """Write everything."""
    document: dict[str, Any] = {
        **machine(),
        "load": asdict(found.load),
        "steady": {name: [asdict(run) for run in runs] for name, runs in found.steady.items()},
        "backlog": {
            name: [
                {**asdict(run), "messages_per_s": run.rate, "cpu_s_per_million": run.cpu_s_per_million}
                for run in runs
            ]
            for name, runs in found.backlog.items()
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")

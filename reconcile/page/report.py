"""What a person sees: a bar while it runs, a short table at the end."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

import conf.terminal
from reconcile.anomalies.name import Anomaly
from reconcile.night.summary import ANOMALIES, CLEAN, shown
from reconcile.spark.failures import SPARK

_LOOK_EVERY_S: Final = 0.5


@contextlib.contextmanager
def progress(spark: SparkSession, steps: int, console: Console) -> Iterator[Callable[[str], None]]:
    """A bar with a step's name; within a step it follows the tasks of the stages under way. Nothing is shown but on a terminal.

    Yields:
        A function that says which step begins.
    """
    if not console.is_terminal:
        yield lambda _: None
        return
    shown = Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console, transient=True,
        disable=not console.is_terminal,
    )  # fmt: skip
    ended = threading.Event()
    with shown:
        bar = shown.add_task("starting", total=float(steps))
        state = _Steps(shown, bar)
        watcher = threading.Thread(target=_watch, args=(spark, state, ended), name="progress", daemon=True)
        watcher.start()
        try:
            yield state.begin
        finally:
            ended.set()
            watcher.join()


class _Steps:
    """How far it is."""

    def __init__(self, shown: Progress, bar: TaskID) -> None:
        self._shown = shown
        self._bar = bar
        self._begun = 0

    def begin(self, name: str) -> None:
        self._shown.update(self._bar, description=name, completed=float(self._begun))
        self._begun += 1

    def within(self, share: float) -> None:
        if self._begun:
            self._shown.update(self._bar, completed=self._begun - 1 + share)


def _watch(spark: SparkSession, state: _Steps, ended: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    with contextlib.suppress(*SPARK, OSError):  # where the JVM is gone, the thread that works says so
        while not ended.wait(_LOOK_EVERY_S):
            stages = [
                found
                for each in tracker.getActiveStageIds()
                if (found := tracker.getStageInfo(each)) is not None
            ]
            tasks = sum(each.numTasks for each in stages)
            if tasks:
                state.within(sum(each.numCompletedTasks for each in stages) / tasks)


def terminal() -> Console:
    """Where results are told; as wide as a table needs where nobody's window limits it."""
    return conf.terminal.console()


def show(document: Mapping[str, Any], advice: Iterable[str], console: Console) -> None:
    """A row an address, the anomalies that were found, what a ring would need, the verdict."""
    table = Table(title=f"Run {document['night']}: what went in against what came out")
    table.add_column("address")
    counts = shown(document["addresses"])
    for each in counts:
        table.add_column(each.replace("_", " "), justify="right")
    table.add_column("anomalies")
    for name, each in document["addresses"].items():
        found = ", ".join(f"{anomaly} {count:,}" for anomaly, count in each["anomalies"].items() if count)
        alarming = any(count for anomaly, count in each["anomalies"].items() if anomaly != Anomaly.OVERRUN)
        table.add_row(
            name,
            *(f"{each[count]:,}" for count in counts),
            Text(found, "bold red") if alarming else found or "none",
        )
    conf.terminal.tell(table, console)
    for sentence in advice:
        console.print(sentence, highlight=False)
    colour = {CLEAN: "green", ANOMALIES: "red"}.get(document["verdict"], "yellow")
    console.print(Text.assemble("verdict: ", (document["verdict"], f"bold {colour}")))

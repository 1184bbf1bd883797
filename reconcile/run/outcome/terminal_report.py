"""Terminal output of a run: progress while it runs, and a short table at the end."""

import contextlib
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyspark import StatusTracker
from pyspark.sql import SparkSession
from rich import progress as bars
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

import conf.terminal
from reconcile.anomalies.names import Anomaly
from reconcile.run.verdict.summary import ANOMALIES, CLEAN, shown
from reconcile.session.spark_errors import SPARK
from ringfence_kafka.process.step_progress import Progress, steps
from ringfence_kafka.wording import counted

_LOOK_EVERY_S: Final = 0.5


@contextlib.contextmanager
def progress(spark: SparkSession, number: int, console: Console) -> Iterator[Progress]:
    """Yield a progress bar on a terminal, else a line for each of ``number`` steps, as tasks run."""
    if not console.is_terminal:
        with steps(so_far=lambda: _tasks_done(spark)) as lines:
            yield lines
        return
    shown = bars.Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console, transient=True
    )  # fmt: skip
    ended = threading.Event()
    with shown:
        bar = shown.add_task("starting", total=float(number))
        state = _Steps(shown, bar)
        watcher = threading.Thread(target=_watch, args=(spark, state, ended), name="progress", daemon=True)
        watcher.start()
        try:
            yield state
        finally:
            ended.set()
            watcher.join()


class _Steps:
    def __init__(self, shown: bars.Progress, bar: TaskID) -> None:
        self._shown = shown
        self._bar = bar
        self._begun = 0

    def start_step(self, name: str) -> None:
        self._shown.update(self._bar, description=name, completed=float(self._begun))
        self._begun += 1

    def count(self, counts: str | Callable[[], str]) -> None:
        pass

    def within(self, share: float) -> None:
        if self._begun:
            self._shown.update(self._bar, completed=self._begun - 1 + share)


def _watch(spark: SparkSession, state: _Steps, ended: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    with contextlib.suppress(*SPARK, OSError):  # if the JVM has died, the main thread reports it
        while not ended.wait(_LOOK_EVERY_S):
            done, tasks = _tasks(tracker)
            if tasks:
                state.within(done / tasks)


def _tasks(tracker: StatusTracker) -> tuple[int, int]:
    """Return the number of finished tasks of active stages, and of all their tasks."""
    ids = tracker.getActiveStageIds()
    stages = [found for id_ in ids if (found := tracker.getStageInfo(id_)) is not None]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)


def _tasks_done(spark: SparkSession) -> str:
    with contextlib.suppress(*SPARK, OSError):
        done, tasks = _tasks(spark.sparkContext.statusTracker())
        return f"{done:,} of {counted(tasks, 'task')}" if tasks else ""
    return ""


def show(document: Mapping[str, Any], advice: Iterable[str], console: Console) -> None:
    """Print the counts of each address, the advice and the verdict."""
    table = Table(title=f"Run {document['night']}: inputs against outputs")
    table.add_column("address")
    counts = shown(document["addresses"])
    for item in counts:
        table.add_column(item.replace("_", " "), justify="right")
    table.add_column("anomalies")
    for name, entry in document["addresses"].items():
        found = ", ".join(f"{anomaly} {count:,}" for anomaly, count in entry["anomalies"].items() if count)
        alarming = entry["overrun_share"] > document["overrun_max"] or any(
            count for anomaly, count in entry["anomalies"].items() if anomaly != Anomaly.OVERRUN
        )
        table.add_row(
            name,
            *(f"{entry[count]:,}" for count in counts),
            Text(found, "bold red") if alarming else found or "none",
        )
    conf.terminal.print_table(table, console)
    for sentence in advice:
        console.print(sentence, highlight=False)
    colour = {CLEAN: "green", ANOMALIES: "red"}.get(document["verdict"], "yellow")
    console.print(Text.assemble("verdict: ", (document["verdict"], f"bold {colour}")))


class Judged(NamedTuple):
    """Result of a run that is kept."""

    document: Mapping[str, Any]  # content of ``summary.json``
    advice: Iterable[str]  # sentences of the page
    report: str  # path or URI of the page; empty = the page could not be drawn


def print_result(judged: Judged, out: str | None, again: Sequence[str]) -> None:
    """Print the result of a run, its places, and commands to show and acknowledge it with ``again``."""
    document, console = judged.document, conf.terminal.console()
    show(document, judged.advice, console)
    number = str(document["night"])
    found = any(
        count for address in document["addresses"].values() for count in address["anomalies"].values()
    )
    lines = []
    if out and found:
        lines.append(("each record", f"{out.rstrip('/')}/anomalies"))
    if judged.report:
        lines.append(("report", judged.report))
    if found:
        lines.append(("show", shlex.join(["ringfence", "reconcile", "show", "--run", number, *again])))
    if document["verdict"] != CLEAN:
        lines.append(("acknowledge", shlex.join(["ringfence", "reconcile", "--acknowledge", number, *again])))
    for name, text in lines:
        console.print(f"{name + ':':<13}{text}", markup=False, highlight=False, soft_wrap=True)

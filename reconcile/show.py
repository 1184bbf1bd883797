"""``ringfence reconcile show``: lists the anomalies of a run.

The first anomalies of each address come from ``figures.json``, without Spark and the cluster. Spark reads
more of them.
"""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, TextIO

import click

from reconcile import listing
from reconcile.listing import Shown
from reconcile.page.report_data import FINDINGS_MAX, Figures
from reconcile.run.history import acknowledge
from reconcile.run.history.history import Run, RunHistory
from reconcile.run.history.layout import FIGURES, RESULTS, results_folder
from reconcile.session.stop_signals import StoppedError
from reconcile.spark.files import Files, LocalFiles, is_local, readable
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import ConfigurationError, PrerequisiteError

SHOWN: Final = 20
"""Default number of anomalies that ``--rows`` or ``--json`` shows."""
GROUPED_MAX: Final = 10_000
"""Default number of anomalies that are read to form groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Options of the command."""

    anomaly: str = ""  # name of the anomaly; empty = all
    limit: int | None = None  # anomalies of a page; None = the default of :meth:`end`
    page: int = 1  # number of the page, from 1
    run: int | None = None  # number of the run; None = the last run
    as_json: bool = False
    rows: bool = False
    csv: TextIO | None = None
    master: str | None = None

    def end(self, total: int) -> int:
        """Return how many of ``total`` anomalies to read at most, up to the end of the page."""
        if self.page_size is not None:
            return self.page * self.page_size
        return GROUPED_MAX if self.csv is None else total

    @property
    def page_size(self) -> int | None:
        """Number of anomalies on a page; None = all on one page."""
        if self.limit is None and (self.as_json or self.rows):
            return SHOWN
        return self.limit


def print_anomalies(settings: Settings, wanted: Wanted) -> int:
    """Print the anomalies, and return the exit code.

    Raises:
        RingfenceError: The state folder does not keep this run, or its results cannot be read.
    """
    try:
        return _run(settings, wanted)
    except StoppedError as stopped:
        click.echo(f"ringfence: stopped by {stopped}: run it again; it has only read", err=True)
        return stopped.exit_code


def _run(settings: Settings, wanted: Wanted) -> int:
    folder, master = readable(settings.runs_dir), wanted.master or settings.reconcile.master
    if not is_local(folder, master):
        return _elsewhere(settings, wanted, folder, master)
    if not Path(folder).is_dir():
        raise acknowledge.no_run(folder)
    files = LocalFiles(folder)
    run = _chosen_run(files, settings, wanted)
    figures, counts = _figures(files, run, wanted.anomaly)
    total = sum(counts.values())
    most, known = wanted.end(total), first(figures, wanted.anomaly)
    found = known[:most]
    # Spark is not needed for groups: they are formed from the first anomalies.
    whole = wanted.csv is not None or (wanted.page_size is not None and most > FINDINGS_MAX)
    if len(known) < total and whole:
        from reconcile.show_all import read_anomalies, started

        with started(master, settings.reconcile.executor_timeout) as spark:
            found = read_anomalies(spark, files, run.number, wanted.anomaly, most)
    return show(run, found, counts, wanted, acknowledge.when(files, run))


def _elsewhere(settings: Settings, wanted: Wanted, folder: str, master: str) -> int:
    """Show the anomalies of a folder that only Spark's cluster reaches."""
    from reconcile.show_all import read_anomalies, started
    from reconcile.spark.hadoop_files import HadoopFiles

    with started(master, settings.reconcile.executor_timeout) as spark:
        files = HadoopFiles(spark, folder)
        run = _chosen_run(files, settings, wanted)
        _, counts = _figures(files, run, wanted.anomaly)
        most = wanted.end(sum(counts.values()))
        found = read_anomalies(spark, files, run.number, wanted.anomaly, most)
        return show(run, found, counts, wanted, acknowledge.when(files, run))


def _chosen_run(files: Files, settings: Settings, wanted: Wanted) -> Run:
    runs = RunHistory.load(files)
    runs.belong_to(settings.app.id)
    run = runs.last if wanted.run is None else runs.finished.get(wanted.run)
    if runs.last is None:
        raise acknowledge.no_run(files.root)
    if run is None:
        known = ", ".join(map(str, sorted(runs.finished)))
        raise ConfigurationError(
            f"--run {wanted.run}: no such run is kept in {files.root}: there are {known}"
        )
    return run


def _figures(files: Files, run: Run, anomaly: str) -> tuple[Figures, dict[str, int]]:
    """Return the figures of a run, and the number of matching anomalies of each address."""
    folder = results_folder(run.number)
    there = [name for name in files.names(RESULTS) if name.isdecimal()]
    if folder not in {f"{RESULTS}/{name}" for name in there}:
        known = ", ".join(str(int(name)) for name in there) or "none"
        raise PrerequisiteError(
            f"the results of run {run.number} are not in {files.root}/{RESULTS} any more: they are kept for reconcile.keep_days. "
            f"Restore them from a backup, look into the folder that --out named in that run, or name another run: there are those of {known}"
        )
    try:
        figures = Figures.from_json(files.read_text(f"{folder}/{FIGURES}"))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise PrerequisiteError(
            f"{files.root}/{folder}/{FIGURES} is damaged ({error}): restore it from a backup, or from the folder that --out named in "
            "that run"
        ) from error
    counts = {
        address.name: sum(
            count for name, count in address.anomalies.items() if not anomaly or name == anomaly
        )
        for address in figures.addresses
    }
    return figures, counts


def first(figures: Figures, anomaly: str) -> list[Shown]:
    """Return the matching anomalies of the figures, in Spark's order; an empty name matches all."""
    found = [
        Shown(address.name, finding)
        for address in figures.addresses
        for finding in address.findings
        if anomaly in {"", finding.anomaly}
    ]
    return sorted(found, key=lambda shown: shown.address)


def show(
    run: Run, found: Sequence[Shown], counts: dict[str, int], wanted: Wanted, acknowledged: str | None
) -> int:
    """Print one page of the anomalies, and return the exit code.

    ``counts`` are the matching anomalies of each address, ``wanted`` the options of the command.
    """
    total, size = sum(counts.values()), wanted.page_size
    end = wanted.end(total)
    found = found[end - size if size is not None else 0 :]
    if wanted.as_json:
        rows = [{"address": shown.address, **asdict(shown.finding)} for shown in found]
        document = {
            "run": run.number,
            "verdict": run.verdict,
            "acknowledged": run.acknowledged,
            "acknowledged_at": acknowledged or None,
            "total": total,
            "anomalies": rows,
        }
        click.echo(json.dumps(document, indent=2))
        return 0
    seen = "" if acknowledged is None else f", acknowledged {acknowledged[:16].replace('T', ' ')} UTC"
    last = f"run {run.number} ({run.verdict}{seen}): {len(found):,} of {total:,} {wanted.anomaly or 'anomalies'} shown"
    if size is not None and size < total:
        last += f", page {wanted.page} of {-(-total // size)}"
    if wanted.csv is not None:
        listing.write_csv(found, wanted.csv)
        click.echo(last, err=True)
        return 0
    lines = [*(listing.one_by_one(found) if wanted.rows else listing.in_groups(listing.grouped(found))), last]
    if size is not None and end < total:
        lines.append(f"--page {wanted.page + 1} shows the next ones")
    if len(found) < total:
        lines.append(f"--limit {total} shows all")
    if found and not wanted.rows:
        lines.append("--rows shows them one by one")
    paged(lines)
    return 0


def paged(lines: Sequence[str]) -> None:
    """Print lines, through a pager if the terminal has fewer lines."""
    if sys.stdout.isatty() and len(lines) >= shutil.get_terminal_size().lines:
        click.echo_via_pager("\n".join(lines) + "\n")
    else:
        click.echo("\n".join(lines))

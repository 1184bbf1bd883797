"""``ringfence reconcile show``: the anomalies that a run has named, without anybody opening Parquet.

The first of each are among the figures of the run, and need neither Spark nor the cluster. For more of them Spark reads all.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.table import Table

from conf.terminal import tell
from reconcile.page.report_data import FINDINGS_MAX, Figures, Finding
from reconcile.run.history import acknowledge
from reconcile.run.history.history import RESULTS, Run, RunHistory, results_folder
from reconcile.session.stop_signals import StoppedError
from reconcile.spark.files import Files, LocalFiles, is_local, readable
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import ConfigurationError, PrerequisiteError

FIGURES = "figures.json"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be shown."""

    anomaly: str = ""
    """Its name; empty = all."""
    limit: int = 20
    run: int | None = None
    """Its number; None = the last."""
    as_json: bool = False
    master: str | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """An anomaly, and the address that it is of."""

    address: str
    finding: Finding


def run(settings: Settings, wanted: Wanted) -> int:
    """Show them; returns the exit code.

    Raises:
        RingfenceError: no such run is kept, or it cannot be read.
    """
    try:
        return _run(settings, wanted)
    except StoppedError as stopped:
        click.echo(f"ringfence: stopped by {stopped}: run it again; it has only read", err=True)
        return stopped.exit_code


def _run(settings: Settings, wanted: Wanted) -> int:
    folder, master = readable(settings.nights_dir), wanted.master or settings.reconcile.master
    if not is_local(folder, master):
        return _elsewhere(settings, wanted, folder, master)
    if not Path(folder).is_dir():
        raise _no_run(folder)
    files = LocalFiles(folder)
    night = _night(files, settings, wanted)
    figures, counts = _told(files, night, wanted.anomaly)
    found = first(figures, wanted)
    if len(found) < min(wanted.limit, sum(counts.values())) and wanted.limit > FINDINGS_MAX:
        from reconcile.show_all import from_parquet

        found = from_parquet(files, night.number, wanted, master, settings.reconcile.executor_timeout)
    return show(night, found, counts, wanted, acknowledge.when(files, night))


def _elsewhere(settings: Settings, wanted: Wanted, folder: str, master: str) -> int:
    """Where Spark's cluster keeps them."""
    from reconcile.show_all import opened

    with opened(folder, master, settings.reconcile.executor_timeout) as (files, read):
        night = _night(files, settings, wanted)
        _, counts = _told(files, night, wanted.anomaly)
        return show(night, read(night.number, wanted), counts, wanted, acknowledge.when(files, night))


def _night(files: Files, settings: Settings, wanted: Wanted) -> Run:
    nights = RunHistory.load(files)
    nights.belong_to(settings.app.id)
    night = nights.last if wanted.run is None else nights.finished.get(wanted.run)
    if nights.last is None:
        raise _no_run(files.root)
    if night is None:
        known = ", ".join(map(str, sorted(nights.finished)))
        raise ConfigurationError(
            f"--run {wanted.run}: no such run is kept in {files.root}: there are {known}"
        )
    return night


def _told(files: Files, night: Run, anomaly: str) -> tuple[Figures, dict[str, int]]:
    """The figures of a run, and how many there are of what is asked for, by address."""
    folder = results_folder(night.number)
    there = [name for name in files.names(RESULTS) if name.isdecimal()]
    if folder not in {f"{RESULTS}/{name}" for name in there}:
        known = ", ".join(str(int(name)) for name in there) or "none"
        raise PrerequisiteError(
            f"the results of run {night.number} are not in {files.root}/{RESULTS} any more: they are kept for reconcile.keep_days. "
            f"Restore them from a backup, look into the folder that --out named in that run, or name another run: there are those of {known}"
        )
    try:
        figures = Figures.from_json(files.read(f"{folder}/{FIGURES}"))
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


def first(figures: Figures, wanted: Wanted) -> list[Shown]:
    """Those that the figures have, as many as are wanted."""
    return list(_matching(figures, wanted.anomaly))[: wanted.limit]


def _matching(figures: Figures, anomaly: str) -> Iterator[Shown]:
    for address in figures.addresses:
        for finding in address.findings:
            if not anomaly or finding.anomaly == anomaly:
                yield Shown(address.name, finding)


def show(
    night: Run, found: Sequence[Shown], counts: dict[str, int], wanted: Wanted, acknowledged: str | None
) -> int:
    """Print them; returns the exit code, 0. ``acknowledged``: as :func:`reconcile.run.history.acknowledge.when` has it."""
    total = sum(counts.values())
    if wanted.as_json:
        rows = [{"address": shown.address, **asdict(shown.finding)} for shown in found]
        document = {
            "run": night.number,
            "verdict": night.verdict,
            "acknowledged": night.acknowledged,
            "acknowledged_at": acknowledged or None,
            "total": total,
            "anomalies": rows,
        }
        click.echo(json.dumps(document, indent=2))
        return 0
    if found:
        tell(_table(night, found))
    verdict = night.verdict + _seen(acknowledged)
    click.echo(f"run {night.number} ({verdict}): {len(found):,} of {total:,}{_named(wanted.anomaly)} shown")
    if len(found) < total:
        click.echo(f"--limit {total} shows all")
    return 0


def _seen(acknowledged: str | None) -> str:
    return "" if acknowledged is None else f", acknowledged {acknowledged[:16].replace('T', ' ')} UTC"


def _named(anomaly: str) -> str:
    return f" {anomaly}" if anomaly else " anomalies"


def _table(night: Run, found: Sequence[Shown]) -> Table:
    table = Table(
        "anomaly",
        "address",
        "input",
        "output",
        "other input",
        "ID",
        "group",
        "what",
        title=f"Run {night.number}",
    )
    for shown in found:
        it = shown.finding
        cells = (
            it.anomaly,
            shown.address,
            _place(it.topic, it.partition, it.offset),
            _place(it.out_topic, it.out_partition, it.out_offset),
            _place(it.topic, it.other_partition, it.other_offset),
            it.id or "",
            it.group or "",
            it.detail,
        )
        table.add_row(*cells)
    return table


def _place(topic: str | None, partition: int | None, offset: int | None) -> str:
    return "" if partition is None or offset is None else f"{topic}/{partition}/{offset}"


def _no_run(folder: str) -> PrerequisiteError:
    return PrerequisiteError(
        f"no run is kept in {folder}: name the reconcile.state_dir of the runs, or run one first"
    )

"""Reconciliation run: options, Spark session, judgement, results and exit code.

It runs as ``ringfence reconcile``, as ``python -m reconcile``, and under ``spark-submit``.
"""

import argparse
import contextlib
import datetime as dt
import json
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

if __package__ in {None, ""}:  # spark-submit puts this file's folder, not the root, first on sys.path
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from pyspark.sql import SparkSession
from rich.console import Console

from reconcile.cluster.admin import Admin
from reconcile.cluster.survey import Survey
from reconcile.page import PAGE, advice
from reconcile.page.report_data import Figures
from reconcile.run.frames.frames import Frames
from reconcile.run.frames.journal import regrouped
from reconcile.run.frames.scope import begin_run, records
from reconcile.run.frames.workspace import Workspace
from reconcile.run.history import acknowledge as acknowledgement
from reconcile.run.history import cut, id_store, retained_files, rules
from reconcile.run.history.history import RunHistory
from reconcile.run.history.layout import FIGURES, results_folder
from reconcile.run.history.rings import Rings
from reconcile.run.outcome import carry_over, committed_result, report_model, results
from reconcile.run.outcome.terminal_report import Judged, print_result
from reconcile.run.outcome.terminal_report import progress as shown_progress
from reconcile.run.verdict import summary
from reconcile.run.verdict.judge import STEPS, Judge
from reconcile.session.session import FEW, fit_to, local_dir, required, session, submitted
from reconcile.session.spark_errors import SPARK, SparkError, explained, of_spark, without_room
from reconcile.session.stop_signals import Stop, StoppedError, stoppable
from reconcile.spark.files import BusyError, Files, LocalFiles, apart, is_local, named, proved, readable
from reconcile.spark.hadoop_files import HadoopFiles
from reconcile.spark.source_options import kafka_options, refuse_callback
from ringfence_kafka.config.load import load
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import (
    BrokerUnavailableError,
    ConfigurationError,
    MissingTopicError,
    RingfenceError,
    unforeseen,
)
from ringfence_kafka.process.step_progress import steps
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.wording import counted


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one run."""

    out: str | None = None
    as_json: bool = False
    acknowledge: int | None = None  # number of the run to acknowledge, or LAST; None = judge a new run
    master: str | None = None
    again: Sequence[str] = ()
    """Options to repeat in the commands that the report shows: configuration, connection, master."""


def run_job(settings: Settings, options: Options) -> int:
    """Judge a new run, or acknowledge a finished one; return the exit code.

    Raises:
        RingfenceError: The run failed. It keeps no result, and the next run begins at the same offsets.
    """
    try:
        with stoppable() as stop:
            return _run(settings, options, stop)
    except StoppedError as stopped:
        sys.stderr.write(f"ringfence: stopped by {stopped}: run it again; nothing is half-done\n")
        return stopped.exit_code


def _check(settings: Settings, options: Options) -> None:
    """Raise ConfigurationError if options or settings contradict each other."""
    if not settings.addresses:
        raise ConfigurationError("addresses: none configured: add an [[addresses]] entry with a name")
    if options.acknowledge is not None and (options.as_json or options.out is not None):
        raise ConfigurationError("--acknowledge cannot be combined with --json or --out: it judges nothing")
    if options.out is not None:
        named(options.out)
        apart(options.out, settings.runs_dir)
    if options.acknowledge is None:
        refuse_callback(settings.kafka)


def _run(settings: Settings, options: Options, stop: Stop) -> int:
    _check(settings, options)
    began = dt.datetime.now(dt.UTC)
    try:
        judged = _judged(settings, options, stop)
    except (BusyError, BrokerUnavailableError, ConfigurationError, MissingTopicError):
        raise  # another run commits its result, Kafka is away, or the run has not begun
    except Exception as error:
        if options.acknowledge is None and stop.number is None:
            committed_result.commit(settings, committed_result.failed(began, error))
        raise
    if judged is None:
        return 0
    if options.as_json:
        print(json.dumps(judged.document, indent=2))
    else:
        print_result(judged, options.out, options.again)
    return summary.EXIT_CODES[judged.document["verdict"]]


def _judged(settings: Settings, options: Options, stop: Stop) -> Judged | None:
    """Judge and keep a run, or return None after acknowledging one."""
    run = options.acknowledge
    master, folder = options.master or settings.reconcile.master, readable(settings.runs_dir)
    # Under spark-submit only the Spark session knows the master.
    here = not submitted() and is_local(folder, master)
    if run is not None and here:
        committed_result.acknowledge(settings, acknowledgement.here(settings, folder, run))
        return None
    required(master)
    with contextlib.ExitStack() as held:
        ready = _ready(settings, folder, held) if here else None
        records = ready.records(settings) if ready else FEW
        out = None
        if options.out and not submitted() and is_local(options.out, master):
            out = proved(LocalFiles(options.out))
        if ready is None and run is None:
            Admin(settings.kafka, settings.app.id).connect()  # report a denied access before Spark starts
        spark = held.enter_context(
            session(master, stop, records=records, executor_timeout_s=settings.reconcile.executor_timeout)
        )
        try:
            if ready is None:
                files = opened(spark, folder)
                held.enter_context(files.locked())
                if run is not None:
                    committed_result.acknowledge(settings, acknowledgement.acknowledge(settings, files, run))
                    return None
                ready = Ready(RunHistory.load(files), surveyed(settings))
            if options.out and out is None:
                out = proved(opened(spark, options.out))
            document = judge(spark, settings, ready.runs, ready.survey, out)
            drawn = out is not None and PAGE in out.names("")
            kept = ready.runs.files.read_text(f"{results_folder(document['night'])}/{FIGURES}")
            result = committed_result.finished(
                document, ready.runs, options.out if drawn else None, settings.reconcile.report_url
            )
            committed_result.commit(settings, result)
            judged = Judged(document, Figures.from_json(kept).advice, result.report)
        except (*SPARK, AssertionError) as error:
            if (found := of_spark(error)) is None:
                raise
            raise _explained(found, folder, options.out, master) from error
    return judged


@dataclass(frozen=True, slots=True)
class Ready:
    """Run history and cluster state, known before Spark starts."""

    runs: RunHistory
    survey: Survey

    def records(self, settings: Settings) -> int:
        """Return an upper bound of the records that the run reads, kept IDs included."""
        base, cuts = begin_run(settings, self.runs, self.survey)
        beyond = cut.backlog([cut.input for cut in cuts.values()], self.survey.stable)
        small = {**beyond, "": self.survey.journal}
        behind = sum(end - start for spans in small.values() for start, end in spans.values())
        return records(cuts) + behind + id_store.count(self.runs, base)


def _ready(settings: Settings, folder: str, held: contextlib.ExitStack) -> Ready:
    """Check everything that does not need Spark, and lock the folder until ``held`` ends."""
    files = LocalFiles(folder)
    # Lock before asking the cluster. Offsets from before the end of a concurrent run would look as if logs
    # were truncated.
    held.enter_context(files.locked())
    runs = RunHistory.load(files)
    runs.belong_to(settings.app.id)
    survey = surveyed(settings)
    runs.belong_to(settings.app.id, survey.cluster)
    return Ready(runs, survey)


def opened(spark: SparkSession, folder: str) -> Files:
    """Return access to a folder: through the local file system, or through Spark's Hadoop file systems."""
    local = is_local(folder, spark.sparkContext.master or "")
    return LocalFiles(folder) if local else HadoopFiles(spark, folder)


def surveyed(settings: Settings) -> Survey:
    """Read offsets and topics from the cluster before Spark starts, so that problems appear at once."""
    with steps() as progress:
        progress.start_step("asking the cluster")
        progress.count(counted(len(settings.addresses), "address", "addresses"))
        return Survey.read(settings, Admin(settings.kafka, settings.app.id))


def judge(
    spark: SparkSession, settings: Settings, runs: RunHistory, survey: Survey, out: Files | None
) -> dict[str, Any]:
    """Judge what came since the last run, write results, also to ``out``, commit; return ``summary.json``."""
    began = dt.datetime.now(dt.UTC)
    runs.belong_to(settings.app.id, survey.cluster)
    base, cuts = begin_run(settings, runs, survey)
    id_store.sweep(runs)
    events_from = carry_over.events_from(base, cuts, survey.journal_position)
    number, today, keep = runs.next_number, began.date().isoformat(), settings.reconcile.keep_days
    recent = runs.since(base, today, keep)
    fit_to(spark, records(cuts) + id_store.count(runs, base))
    frames = Frames(
        spark,
        kafka_options(settings.kafka),
        settings.addresses,
        cuts,
        runs.files,
        base,
    )
    journal = wire_names.journal_topic(settings.app.id)
    events = frames.events(journal, survey.journal, events_from)
    changes = regrouped(events)
    numbered = [
        Rings.from_settings(address.lanes, len(cuts[address.name].input.spans), changes.get(number, ()))
        for number, address in enumerate(settings.addresses)
    ]
    frames = replace(frames, rings=numbered)
    if changes:  # the journal shows a regrouping: read the events again with the new lane numbers
        events = frames.events(journal, survey.journal, events_from)
    with shown_progress(spark, len(STEPS), Console(stderr=True)) as progress:
        judgement = Judge(
            workspace=Workspace(frames, number),
            date=today,
            progress=progress,
            base=base,
            chain=runs.chain(base),
            events=events,
            beyond=cut.backlog([cut.input for cut in cuts.values()], survey.stable),
            complete=carry_over.complete(settings, base, cuts),
            recent=recent,
            confidence=settings.reconcile.ring_confidence,
            overrun_max=settings.reconcile.overrun_max,
        ).judge()
    judged = {name: [run for run in recent if run.judged(cuts[name].input)] for name in cuts}
    rings = report_model.rings(settings, judgement, judged, today)
    addresses = {address.name: address for address in settings.addresses}
    counted_addresses = {
        name: summary.address_counts(
            judgement.counts[name],
            judgement.anomalies[name],
            advice.document(rings[name]),
            divert=n not in judgement.dropping and (n in judgement.observing or rules.diverts(address, base)),
            unknown=judgement.unknown[name],
            times=judgement.times.get(name),
            conflicts=report_model.conflicts(judgement, n),
        )
        | summary.promise_kept(address, cuts[name], base.summary["addresses"].get(name, {}) if base else {})
        for n, (name, address) in enumerate(addresses.items())
    }
    document: dict[str, Any] = {
        "verdict": summary.verdict(counted_addresses, settings.reconcile.overrun_max),
        "addresses": counted_addresses,
        "overrun_max": settings.reconcile.overrun_max,
        "cut": summary.cut_document(addresses, cuts),
        "night": number,
        "began": began.isoformat(timespec="seconds"),
        "from_night": base.number if base else None,
        "seconds": round((dt.datetime.now(dt.UTC) - began).total_seconds(), 1),
    }
    held = report_model.held(base, judgement, {name: cut.input.recreated for name, cut in cuts.items()})
    lanes = {address.name: of.now for address, of in zip(settings.addresses, numbered, strict=True)}
    figures = report_model.figures(settings, document, judgement, rings, held, lanes)
    figures = replace(figures, runs=report_model.past_runs(runs.finished, document))
    with steps() as progress:
        progress.start_step("keeping results")
        progress.count(f"run {number}")
        results.keep(spark, runs.files, document, figures, out)
    finished = carry_over.finished_run(
        settings,
        base,
        cuts,
        judgement,
        document,
        today,
        survey.journal_position,
        events_from,
        survey.cluster,
        numbered,
    )
    runs.commit(replace(finished, leaves=retained_files.files_by_folder(runs.files, today, number)))
    id_store.sweep(runs)
    id_store.forget(runs, today, keep, dict(zip(cuts, numbered, strict=True)))
    return document


def _explained(error: SparkError, folder: str, out: str | None, master: str) -> RingfenceError:
    places = {
        f"Spark sorts below spark.local.dir ({local_dir()})": local_dir(),
        f"results go to reconcile.state_dir ({folder})": folder,
    }
    if out:
        places[f"results go to --out ({out})"] = out
    here = all(is_local(name, master) for name in (folder, out or folder))
    return explained(
        error,
        gone="run this again: deleted records are reported as GAP; then set a longer retention, or an "
        "earlier hour",
        less="more executors",
        disk=f"{', and '.join(without_room(places) if here else places)}: make room there",
        after="nothing was kept; fix that, and run again",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job for ``spark-submit`` and ``python -m reconcile``."""
    parser = argparse.ArgumentParser(prog="reconcile", description="Compares inputs with outputs.")
    parser.add_argument("--config", type=Path, default=Path("conf/ringfence.toml"))
    parser.add_argument("--out", help="a folder, or a URI, for Parquet and summary.json")
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--acknowledge", type=int, nargs="?", const=acknowledgement.LAST, metavar="N")
    parser.add_argument("--master", help="Spark's; not under spark-submit, which has its own")
    given = parser.parse_args(arguments)
    try:
        return run_job(load(given.config), Options(given.out, given.as_json, given.acknowledge, given.master))
    except RingfenceError as error:
        sys.stderr.write(f"reconcile: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        sys.stderr.write(f"{traceback.format_exc()}reconcile: {unforeseen(error)}\n")
        return RingfenceError.exit_code


if __name__ == "__main__":
    sys.exit(main())

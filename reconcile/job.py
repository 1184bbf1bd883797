"""The job: what is asked of the cluster, what Spark is given, what is kept, and the exit code.

It runs as ``ringfence reconcile``, as ``python -m reconcile``, and unchanged under ``spark-submit``.
"""

import argparse
import contextlib
import datetime as dt
import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __package__ in {None, ""}:  # spark-submit puts this file's folder first
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from pyspark.sql import SparkSession
from rich.console import Console

from reconcile.cluster.admin import Admin
from reconcile.cluster.survey import Survey
from reconcile.page import advice, pages
from reconcile.page.report_data import Figures
from reconcile.run.frames.frames import Frames
from reconcile.run.frames.scope import begin, records
from reconcile.run.frames.workspace import Workspace
from reconcile.run.history import acknowledge as acknowledgement
from reconcile.run.history import cut, id_store, retained, rules
from reconcile.run.history.history import RunHistory, results_folder
from reconcile.run.outcome import carry_over, report_model, results
from reconcile.run.outcome.terminal_report import progress, show, terminal
from reconcile.run.verdict import summary
from reconcile.run.verdict.judge import STEPS, Judge
from reconcile.session.session import FEW, fit_to, local_dir, required, session, submitted
from reconcile.session.spark_errors import SPARK, SparkError, explained, of_spark, without_room
from reconcile.session.stop_signals import Stop, StoppedError, stoppable
from reconcile.spark.files import Files, LocalFiles, apart, is_local, named, proved, readable
from reconcile.spark.hadoop_files import HadoopFiles
from reconcile.spark.source_options import kafka_options, refuse_callback
from ringfence_kafka.config.load import load
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import ConfigurationError, RingfenceError, unforeseen
from ringfence_kafka.process.step_progress import steps
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.wording import counted


@dataclass(frozen=True, slots=True)
class Options:
    """Of one run."""

    out: str | None = None
    as_json: bool = False
    acknowledge: int | None = None
    """The night to acknowledge; :data:`reconcile.run.history.acknowledge.LAST` = whichever is the last."""
    master: str | None = None


def run(settings: Settings, options: Options) -> int:
    """Judge a night, or acknowledge the last one; returns the exit code, also where a signal ended it.

    Raises:
        RingfenceError: it could not; nothing is half-done, and the next run begins where this one did.
    """
    try:
        with stoppable() as stop:
            return _run(settings, options, stop)
    except StoppedError as stopped:
        sys.stderr.write(f"ringfence: stopped by {stopped}: run it again; nothing is half-done\n")
        return stopped.exit_code


def _check(settings: Settings, options: Options) -> None:
    """Raises ConfigurationError: what is asked for makes no sense."""
    if not settings.addresses:
        raise ConfigurationError("addresses: none configured: add an [[addresses]] entry with a name")
    if options.acknowledge is not None and (options.as_json or options.out is not None):
        raise ConfigurationError("--acknowledge cannot be combined with --json or --out: it judges nothing")
    if options.out is not None:
        named(options.out)
        apart(options.out, settings.nights_dir)
    if options.acknowledge is None:
        refuse_callback(settings.kafka)


def _run(settings: Settings, options: Options, stop: Stop) -> int:
    _check(settings, options)
    night = options.acknowledge
    master, folder = options.master or settings.reconcile.master, readable(settings.nights_dir)
    # Whose master it is that spark-submit has, the session knows.
    here = not submitted() and is_local(folder, master)
    if night is not None and here:
        return acknowledgement.here(settings, folder, night)
    required(master)
    with contextlib.ExitStack() as held:
        ready = _ready(settings, folder, held) if here else None
        records = ready.records(settings) if ready else FEW
        out = None
        if options.out and not submitted() and is_local(options.out, master):
            out = proved(LocalFiles(options.out))
        if ready is None and night is None:
            Admin(settings.kafka, settings.app.id).connect()  # who does not get in need not wait for Spark
        spark = held.enter_context(
            session(master, stop, records=records, executor_timeout_s=settings.reconcile.executor_timeout)
        )
        try:
            if ready is None:
                files = opened(spark, folder)
                held.enter_context(files.locked())
                if night is not None:
                    return acknowledgement.acknowledge(settings, files, night)
                ready = Ready(RunHistory.load(files), surveyed(settings))
            if options.out and out is None:
                out = proved(opened(spark, options.out))
            document = judge(spark, settings, ready.nights, ready.survey, out)
            drawn = out is not None and pages.PAGE in out.names("")
            kept = ready.nights.files.read(f"{results_folder(document['night'])}/{results.FIGURES}")
        except (*SPARK, AssertionError) as error:
            if (found := of_spark(error)) is None:
                raise
            raise _explained(found, folder, options.out, master) from error
    tell(document, Figures.from_json(kept).advice, options, drawn=drawn)
    return summary.EXIT_CODES[document["verdict"]]


@dataclass(frozen=True, slots=True)
class Ready:
    """What is known before Spark is needed."""

    nights: RunHistory
    survey: Survey

    def records(self, settings: Settings) -> int:
        """How many this night reads at most: of logs that keep weeks it is what came since the last one, and the IDs of those before."""
        base, cuts = begin(settings, self.nights, self.survey)
        beyond = cut.backlog([cut.input for cut in cuts.values()], self.survey.stable)
        small = {**beyond, "": self.survey.journal}
        behind = sum(end - start for spans in small.values() for start, end in spans.values())
        return records(cuts) + behind + id_store.count(self.nights, base)


def _ready(settings: Settings, folder: str, held: contextlib.ExitStack) -> Ready:
    """Without Spark: whatever is amiss is told before it is waited for. The folder is locked until ``held`` ends."""
    files = LocalFiles(folder)
    # Alone first: what was asked before another run's night ended would look as if logs had lost their tails.
    held.enter_context(files.locked())
    nights = RunHistory.load(files)
    nights.belong_to(settings.app.id)
    survey = surveyed(settings)
    nights.belong_to(settings.app.id, survey.cluster)
    return Ready(nights, survey)


def opened(spark: SparkSession, folder: str) -> Files:
    """A folder where it is."""
    local = is_local(folder, spark.sparkContext.master or "")
    return LocalFiles(folder) if local else HadoopFiles(spark, folder)


def surveyed(settings: Settings) -> Survey:
    """What the cluster says, asked before Spark is started: what is missing is told at once."""
    with steps() as progress:
        progress.begin("asking the cluster")
        progress.count(counted(len(settings.addresses), "address", "addresses"))
        return Survey.of(settings, Admin(settings.kafka, settings.app.id))


def judge(
    spark: SparkSession, settings: Settings, nights: RunHistory, survey: Survey, out: Files | None
) -> dict[str, Any]:
    """One night, from its cut to its commit; returns the document. Results go to ``out`` too."""
    began = dt.datetime.now(dt.UTC)
    nights.belong_to(settings.app.id, survey.cluster)
    base, cuts = begin(settings, nights, survey)
    id_store.sweep(nights)
    events_from = carry_over.events_from(base, cuts, survey.journal_position)
    number, today, keep = nights.next_number, began.date().isoformat(), settings.reconcile.keep_days
    recent = nights.since(base, today, keep)
    fit_to(spark, records(cuts) + id_store.count(nights, base))
    frames = Frames(
        spark,
        kafka_options(settings.kafka),
        settings.addresses,
        cuts,
        nights.files,
        base,
    )
    console = Console(stderr=True)
    with progress(spark, len(STEPS), console) as told:
        found = Judge(
            Workspace(spark, nights.files, frames, number), today, told, recent, settings.reconcile.ring_confidence,
        ).judge(
            base,
            nights.chain(base),
            frames.events(wire_names.journal_topic(settings.app.id), survey.journal, events_from),
            cut.backlog([cut.input for cut in cuts.values()], survey.stable),
            carry_over.complete(settings, base, cuts),
        )  # fmt: skip
    judged = {name: [run for run in recent if run.judged(cuts[name].input)] for name in cuts}
    rings = report_model.rings(settings, found, judged, today)
    addresses = {address.name: address for address in settings.addresses}
    document: dict[str, Any] = {
        "verdict": summary.verdict(found.anomalies),
        "addresses": {
            name: summary.address_counts(
                found.counts[name],
                found.anomalies[name],
                advice.document(rings[name]),
                divert=rules.diverts(address, base),
                unknown=found.unknown[name],
            )
            for name, address in addresses.items()
        },
        "cut": summary.cut_document(addresses, cuts),
        "night": number,
        "began": began.isoformat(timespec="seconds"),
        "from_night": base.number if base else None,
    }
    held = report_model.held(base, found, {name: cut.input.recreated for name, cut in cuts.items()})
    lanes = {name: len(cut.input.spans) for name, cut in cuts.items()}
    figures = report_model.figures(settings, document, found, rings, held, lanes)
    with steps() as told:
        told.begin("keeping results")
        told.count(f"run {number}")
        results.keep(spark, nights.files, document, figures, out)
    finished = carry_over.night(
        settings, base, cuts, found, document, today, survey.journal_position, events_from, survey.cluster
    )
    finished.leaves = retained.of(nights.files, today, number)
    nights.commit(finished)
    id_store.sweep(nights)
    id_store.forget(nights, today, keep)
    return document


def tell(document: Mapping[str, Any], sentences: Sequence[str], options: Options, *, drawn: bool) -> None:
    """On the terminal, with the page's advice; ``drawn``: the page is in the folder that was asked for."""
    if options.as_json:
        print(json.dumps(document, indent=2))
        return
    console = terminal()
    show(document, sentences, console)
    folder = (options.out or "").rstrip("/")
    if folder and document["verdict"] != summary.CLEAN:
        console.print(
            f"each record is named in {folder}/anomalies", markup=False, highlight=False, soft_wrap=True
        )
    if drawn:
        console.print(f"the page: {folder}/{pages.PAGE}", markup=False, highlight=False, soft_wrap=True)


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
        gone="run again, what is missing will be called GAP; then longer retention, or an earlier hour",
        less="more executors",
        disk=f"{', and '.join(without_room(places) if here else places)}: make room there",
        after="nothing was kept; fix that, and run again",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of ``spark-submit`` and ``python -m reconcile``."""
    parser = argparse.ArgumentParser(
        prog="reconcile", description="Compares what came in with what went out."
    )
    parser.add_argument("--config", type=Path, default=Path("conf/ringfence.toml"))
    parser.add_argument("--out", help="a folder, or a URI, for Parquet and summary.json")
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--acknowledge", type=int, nargs="?", const=acknowledgement.LAST, metavar="N")
    parser.add_argument("--master", help="Spark's; not under spark-submit, which has its own")
    given = parser.parse_args(arguments)
    try:
        return run(load(given.config), Options(given.out, given.as_json, given.acknowledge, given.master))
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

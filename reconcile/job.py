"""The job: what is asked of the cluster, what Spark is given, what is kept, and the exit code.

It runs as ``ringfence reconcile``, as ``python -m reconcile``, and unchanged under ``spark-submit``.
"""

import argparse
import datetime as dt
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __package__ in {None, ""}:  # spark-submit puts this file's folder first
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

from conf import wire
from conf.errors import ConfigurationError, RingfenceError
from conf.load import load
from conf.settings import Settings
from reconcile import advice, cut, morning, pages, rules, summary
from reconcile.failures import SPARK, explained
from reconcile.figures import Figures
from reconcile.files import Files, HadoopFiles, LocalFiles, is_local, proved
from reconcile.frames import Frames
from reconcile.kafka import Cluster
from reconcile.night import STEPS, Judge
from reconcile.nights import Night, Nights, added, results_folder
from reconcile.report import progress, show, terminal
from reconcile.schemas import COUNTS
from reconcile.session import fit_to, kafka_options, session
from reconcile.small import small
from reconcile.survey import Survey


@dataclass(frozen=True, slots=True)
class Options:
    """Of one run."""

    out: str | None = None
    as_json: bool = False
    acknowledge: bool = False
    master: str | None = None


def run(settings: Settings, options: Options) -> int:
    """Judge a night, or acknowledge the last one; returns the exit code.

    Raises:
        RingfenceError: it could not; nothing is half-done, and the next run begins where this one did.
    """
    if not settings.addresses:
        raise ConfigurationError("addresses: none configured: add an [[addresses]] entry with a name")
    master, folder = options.master or settings.reconcile.master, settings.reconcile.state_dir
    if options.acknowledge and is_local(folder, master):
        return _acknowledge(LocalFiles(folder))
    survey = None if options.acknowledge else surveyed(settings)
    with session(master, records=survey.records if survey else 0) as spark:
        try:
            files = opened(spark, folder)
            if survey is None:
                return _acknowledge(files)
            out = proved(opened(spark, options.out)) if options.out else None
            with files.locked():
                document = judge(spark, settings, Nights.load(files), survey, out)
            drawn = out is not None and pages.PAGE in out.names("")
        except SPARK as error:
            raise _explained(error) from error
    tell(document, options, settings.reconcile.ring_confidence, drawn=drawn)
    return summary.EXIT_CODES[document["verdict"]]


def opened(spark: SparkSession, folder: str) -> Files:
    """A folder where it is."""
    local = is_local(folder, spark.sparkContext.master or "")
    return LocalFiles(folder) if local else HadoopFiles(spark, folder)


def surveyed(settings: Settings) -> Survey:
    """What the cluster says, asked before Spark is started: what is missing is told at once."""
    cluster = Cluster(settings.kafka, settings.app.id)
    try:
        return Survey.of(settings, cluster)
    finally:
        cluster.close()


def judge(
    spark: SparkSession, settings: Settings, nights: Nights, survey: Survey, out: Files | None
) -> dict[str, Any]:
    """One night, from its cut to its commit; returns the document. Results go to ``out`` too."""
    began = dt.datetime.now(dt.UTC)
    nights.sweep()
    base = nights.settled_base()
    cuts = survey.cuts(settings.addresses, base.positions if base else {})
    again = nights.again(cut.positions(cuts))
    if again is not None:
        base = nights.base_of(again)
        cuts = survey.cuts(settings.addresses, base.positions if base else {})
    number, today, keep = nights.next_number, began.date().isoformat(), settings.reconcile.keep_days
    recent = nights.since(base, today, keep)
    fit_to(spark, _records(cuts))
    frames = Frames(spark, kafka_options(settings.kafka), settings.addresses, cuts, nights.files)
    complete = _complete(settings, cuts, base)
    console = Console(stderr=True)
    with progress(spark, len(STEPS), console) as say:
        found = Judge(
            spark, nights.files, frames, number, today, say, recent, settings.reconcile.ring_confidence,
        ).judge(
            base,
            nights.chain(base),
            frames.events(wire.journal_topic(settings.app.id), survey.journal),
            cut.backlog([each.input for each in cuts.values()], survey.stable),
            complete,
        )  # fmt: skip
    judged = {name: [each for each in recent if each.judged(cuts[name].input)] for name in cuts}
    rings = morning.rings(settings, found, judged, today)
    addresses = {each.name: each for each in settings.addresses}
    document: dict[str, Any] = {
        "verdict": summary.verdict(found.anomalies),
        "addresses": {
            name: summary.address_counts(
                found.counts[name],
                found.anomalies[name],
                advice.document(rings[name]),
                divert=rules.diverts(each, base),
            )
            for name, each in addresses.items()
        },
        "cut": summary.cut_document(addresses, cuts),
        "night": number,
        "began": began.isoformat(timespec="seconds"),
        "from_night": base.number if base else None,
    }
    held = morning.held(base, found, {name: each.input.recreated for name, each in cuts.items()})
    lanes = {name: len(each.input.spans) for name, each in cuts.items()}
    figures = morning.figures(settings, document, found, rings, held, lanes)
    _keep_results(spark, nights, document, figures, out)
    known = {
        name: {} if cuts[name].input.lost else (base.known.get(name, {}) if base else {})
        for name in addresses
    }
    total = added([known, found.accepted])
    nights.commit(
        Night(
            number, base.number if base else None, today, document["verdict"], cut.positions(cuts), found.accepted, total,
            {name: complete[name] or _full(total, cuts, addresses[name]) for name in addresses}, document, held=held,
            consumed={name: dict(enumerate(each.forward_committed)) for name, each in cuts.items()},
            earliest={name: first for name, (first, _) in found.times.items()},
            rules={name: rules.kept(each) for name, each in addresses.items()},
            whole_since={name: rules.whole_since(name, cuts[name], base, number) for name in addresses},
        )
    )  # fmt: skip
    nights.sweep()
    nights.forget(today, keep, {name: each.id_cache_size for name, each in addresses.items()})
    return document


def _records(cuts: Mapping[str, cut.AddressCut]) -> int:
    return sum(
        span.cut - span.read_from
        for each in cuts.values()
        for topic in each.topics().values()
        for span in topic.spans
    )


def _complete(settings: Settings, cuts: Mapping[str, cut.AddressCut], base: Night | None) -> dict[str, bool]:
    """Address → whether all IDs that its rings may hold are known: a duplicate of nothing is then nothing else."""
    return {
        each.name: (base is None or base.complete.get(each.name, True)) and not cuts[each.name].input.lost
        for each in settings.addresses
    }


def _full(known: Mapping[str, Mapping[int, int]], cuts: Mapping[str, cut.AddressCut], address: Any) -> bool:
    """Whether each lane has accepted as many IDs as its ring holds since evidence was missing."""
    lanes = range(len(cuts[address.name].input.spans))
    return all(known.get(address.name, {}).get(lane, 0) >= address.id_cache_size for lane in lanes)


def _keep_results(
    spark: SparkSession, nights: Nights, document: Mapping[str, Any], figures: Figures, out: Files | None
) -> None:
    """Beside the night, and in the folder that was asked for; both before the night counts."""
    rows = [
        (name, count, each[count]) for name, each in document["addresses"].items() for count in summary.COUNTS
    ] + [
        (name, anomaly, count)
        for name, each in document["addresses"].items()
        for anomaly, count in each["anomalies"].items()
    ]
    counts = small(spark, rows, COUNTS)
    folder = results_folder(document["night"])
    counts.write.mode("overwrite").parquet(nights.files.at(folder, "counts"))
    texts = {"summary.json": json.dumps(document, indent=2) + "\n", "figures.json": figures.to_json()}
    page = pages.written(figures)
    for name, text in texts.items():
        nights.files.write(f"{folder}/{name}", text)
    if page is not None:
        nights.files.write(f"{folder}/{pages.PAGE}", page)
    if out is None:
        return
    anomalies = spark.read.parquet(nights.files.at(folder, "anomalies"))
    anomalies.write.mode("overwrite").parquet(out.at("anomalies"))
    counts.write.mode("overwrite").parquet(out.at("counts"))
    for name, text in texts.items():
        out.write(name, text)
    pages.put(out, page)


def _acknowledge(files: Files) -> int:
    with files.locked():
        seen = Nights.load(files).acknowledge()
    if seen is None:
        print("nothing to acknowledge: the last night was clean, or is acknowledged already")  # noqa: T201
    else:
        print(f"acknowledged night {seen.number} ({seen.verdict}): the next one begins where it ended")  # noqa: T201
    return 0


def tell(document: Mapping[str, Any], options: Options, confidence: float, *, drawn: bool) -> None:
    """On the terminal; ``drawn``: the page is in the folder that was asked for."""
    if options.as_json:
        print(json.dumps(document, indent=2))  # noqa: T201 - the document is the output
        return
    console = terminal()
    show(document, advice.sentences(document["addresses"], confidence), console)
    folder = (options.out or "").rstrip("/")
    if folder and document["verdict"] != summary.CLEAN:
        console.print(
            f"each record is named in {folder}/anomalies", markup=False, highlight=False, soft_wrap=True
        )
    if drawn:
        console.print(f"the page: {folder}/{pages.PAGE}", markup=False, highlight=False, soft_wrap=True)


def _explained(error: PySparkException | Py4JJavaError) -> RingfenceError:
    return explained(
        error,
        gone="run again, what is missing will be called GAP; then longer retention, or an earlier hour",
        less="more executors",
        disk=", and results go to reconcile.state_dir: make room in both",
        after="nothing was kept; mend that, and run again",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of ``spark-submit`` and ``python -m reconcile``."""
    parser = argparse.ArgumentParser(
        prog="reconcile", description="Compares what came in with what went out."
    )
    parser.add_argument("--config", type=Path, default=Path("conf/ringfence.toml"))
    parser.add_argument("--out", help="a folder, or a URI, for Parquet and summary.json")
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--acknowledge", action="store_true")
    parser.add_argument("--master", help="Spark's; not under spark-submit, which has its own")
    given = parser.parse_args(arguments)
    try:
        return run(load(given.config), Options(given.out, given.as_json, given.acknowledge, given.master))
    except RingfenceError as error:
        sys.stderr.write(f"reconcile: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())

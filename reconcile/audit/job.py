"""``ringfence audit``: measures duplicates of a topic before Ringfence is installed. It only reads.

It joins no consumer group, and needs only Describe and Read on the topic.
"""

import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from pyspark.sql import SparkSession
from rich.console import Console

import conf.terminal
from reconcile.audit import advice, configuration, report
from reconcile.audit.numbers import STEPS, Counter, dialect
from reconcile.audit.result import Audit, document
from reconcile.audit.topic import Topic, Wanted, surveyed
from reconcile.cluster.admin import Admin
from reconcile.job import opened
from reconcile.page import PAGE, formatting
from reconcile.page.pages import put, written
from reconcile.page.report_data import AddressFigures, Figures, Lane, Ring, step_ms
from reconcile.run.outcome.terminal_report import progress
from reconcile.session.executor_watch import TIMEOUT_S
from reconcile.session.session import fit_to, local_dir, required, session
from reconcile.session.spark_errors import SPARK, explained, of_spark
from reconcile.session.stop_signals import Stop, StoppedError, stoppable
from reconcile.spark.files import Files, LocalFiles, is_local, named, proved
from reconcile.spark.source_options import kafka_options, refuse_callback
from ringfence_kafka.config.settings import AddressDefaults, KafkaSettings
from ringfence_kafka.process.step_progress import steps
from ringfence_kafka.wording import counted as number_of

DOCUMENT: Final = "audit.json"
GROUP: Final = "ringfence-audit"  # clients require a name; the audit does not join or query this group


@dataclass(frozen=True, slots=True)
class Request:
    """Options of one audit."""

    wanted: Wanted
    kafka: KafkaSettings
    settings: AddressDefaults
    """Settings for IDs and groups, with ``id_cache_size`` and ``partitioner`` as configured or by default."""
    configured: str  # address whose input the topic is; empty = none
    confidence: Fraction
    master: str
    out: str | None = None
    as_json: bool = False
    others: Mapping[str, AddressDefaults] = field(default_factory=dict)
    """Name → settings of other configured addresses, which transactions may have parts for."""
    executor_timeout_s: float = TIMEOUT_S


def run_audit(request: Request) -> int:
    """Audit a topic, and return the exit code. Raises RingfenceError if the audit failed."""
    try:
        with stoppable() as stop:
            _run(request, stop)
    except StoppedError as stopped:
        sys.stderr.write(f"ringfence: stopped by {stopped}: run it again; it has only read\n")
        return stopped.exit_code
    return 0


def _run(request: Request, stop: Stop) -> None:
    if request.out is not None:
        named(request.out)
    refuse_callback(request.kafka)
    required(request.master)
    topic = asked(request)
    local = request.out is None or is_local(request.out, request.master)
    files = proved(LocalFiles(request.out)) if request.out and local else None
    if not topic.part.offsets and local:
        _print_result(_nothing_yet(request, topic), request, files)
        return
    with session(
        request.master, stop, records=topic.part.offsets, executor_timeout_s=request.executor_timeout_s
    ) as spark:
        if request.out and not local:
            files = proved(opened(spark, request.out))
        _print_result(counted(spark, request, topic), request, files)


def asked(request: Request) -> Topic:
    """Read facts on the topic before Spark starts, so that problems appear at once."""
    with steps() as progress:
        progress.start_step(f"asking the cluster about {request.wanted.topic}")
        topic = surveyed(Admin(request.kafka, GROUP), request.wanted, int(time.time() * 1000))
        progress.count(number_of(topic.part.offsets, "offset"))
    return topic


def counted(spark: SparkSession, request: Request, topic: Topic) -> Audit:
    """Count everything. Raises the errors of :func:`reconcile.session.spark_errors.explained`."""
    fit_to(spark, topic.part.offsets)
    further = request.settings.duplicate_id_from not in {"key", "value"}
    try:
        with progress(spark, len(STEPS), Console(stderr=True)) as shown:
            others = {name: dialect(other) for name, other in request.others.items()}
            counter = Counter(spark, kafka_options(request.kafka), shown, others)
            return counter.counted(_nothing_yet(request, topic), look_further=further)
    except (*SPARK, AssertionError) as error:
        if (found := of_spark(error)) is None:
            raise
        raise explained(
            found,
            gone=f"run this again, or read a part of {topic.name} that stays longer: --since 1h, --last 100000",
            less="audit less: --since, --last",
            disk=f"Spark sorts below spark.local.dir ({local_dir()}): make room, or audit less: --since, --last",
            after="fix that, and run again",
        ) from error


def _nothing_yet(request: Request, topic: Topic) -> Audit:
    return Audit(
        topic, request.kafka.bootstrap_servers, request.settings, request.configured, request.confidence
    )


def audit_document(audit: Audit) -> dict[str, object]:
    """Return the document of the audit."""
    return document(audit, advice.notes(audit), configuration.toml(audit))


def _print_result(audit: Audit, request: Request, files: Files | None) -> None:
    """Print the result before writing files, so that a failing folder does not lose the numbers."""
    console = conf.terminal.console()
    if request.as_json:
        print(json.dumps(audit_document(audit), indent=2), flush=True)
    else:
        report.show(audit, advice.notes(audit), configuration.toml(audit), console)
    if files is None or not keep(audit, files) or request.as_json:
        return
    page = f"{str(request.out).rstrip('/')}/{PAGE}"
    console.print(f"\nthe page: {page}", markup=False, highlight=False, soft_wrap=True)


def keep(audit: Audit, files: Files) -> bool:
    """Write document, figures and page into a folder; return whether there is a page."""
    files.remove(DOCUMENT)  # written last: if it exists, all files beside it belong to its audit
    drawn = figures(audit, advice.notes(audit))
    files.write_text("figures.json", drawn.to_json() + "\n")
    page = written(drawn)
    put(files, page)
    files.write_text(DOCUMENT, json.dumps(audit_document(audit), indent=2) + "\n")
    return page is not None


def figures(audit: Audit, notes: Sequence[str]) -> Figures:
    """Return the figures, with the audited topic as the only address."""
    return Figures(
        title=f"Audit of {audit.topic.name}",
        subtitle=_subtitle(audit),
        verdict="",
        bootstrap_servers=audit.bootstrap_servers,
        addresses=[_address(audit)],
        advice=list(notes),
    )


def _subtitle(audit: Audit) -> str:
    if not audit.records:
        return f"{audit.topic.part.asked}: no records"
    return f"{audit.topic.part.asked}: {audit.records:,} records, {_day(audit.first_ms)} to {_day(audit.last_ms)} (UTC)"


def _day(at: int) -> str:
    when = formatting.moment(at)
    return f"{at} ms" if when is None else when.isoformat(" ", "minutes")[:16]


def _address(audit: Audit) -> AddressFigures:
    found, capacity = audit.found, audit.settings.id_cache_size
    distance = found.distance
    return AddressFigures(
        name=audit.topic.name,
        counts={
            "records": audit.records,
            "with_id": found.with_id,
            "without_id": audit.records - found.with_id,
            "resends": found.resends,
            "other_partition": found.other_partition,
            "cross_lane": found.cross_lane,
            "forwarded": found.forwarded,
            "groups": audit.groups.count,
        },
        ring=Ring(
            capacity=capacity,
            recommended=audit.recommended,
            confidence=float(audit.confidence),
            resends=distance.count,
            overruns=distance.count - found.within_capacity,
            days=max(1, math.ceil(audit.days or 0)),
            resend_distance_p50=int(distance.p50),
            resend_distance_p99=int(distance.p99),
            resend_distance_max=int(distance.max),
            needed=found.needed,
            span_ms=audit.span_ms,
        ),
        step_ms=step_ms(audit.first_ms, audit.last_ms),
        moments=audit.moments,
        distances=distance.bins,
        ages=found.seconds.bins,
        group_sizes=audit.groups.sizes,
        groups_largest=audit.groups.largest,
        lanes=[
            Lane(
                lane.lane, lane.records, lane.records - lane.resends, lane.resends, 0, min(lane.ids, capacity)
            )
            for lane in found.lanes
        ],
    )

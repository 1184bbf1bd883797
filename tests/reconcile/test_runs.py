"""Run after run: the begin of each, its knowledge of earlier ones, and the leftovers of a crash."""

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from app.embedded.broker import EmbeddedBroker
from reconcile import job
from reconcile.page.report_data import AddressFigures, Figures, Lane, Ring
from reconcile.run.history.history import RunHistory
from reconcile.run.history.layout import results_folder
from reconcile.run.verdict.judge import Judge
from reconcile.spark.files import LocalFiles
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.last_run import last_run
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import PrerequisiteError
from ringfence_kafka.protocol.run_result import RunResult
from tests.support import kafka
from tests.support.checkout import ROOT
from tests.support.reconcile.planted import SENT_AT, World, anomalies
from tests.support.worker import run_verb

VERB_LIMIT_S = 400.0
"""Spark starts, and a run takes its time on a busy machine."""
COUNTS = ("input", "accepted", "duplicates", "in_flight")


class Scheduler:
    """Sequence of runs over one world."""

    def __init__(self, spark: SparkSession, world: World) -> None:
        self.spark = spark
        self.world = world
        self.document: dict[str, Any] = {}

    @property
    def runs(self) -> RunHistory:
        return RunHistory.load(LocalFiles(self.world.settings.reconcile.state_dir))

    def run(self, **counts: int) -> dict[str, int]:
        """Run once, require these counts, and return the anomalies."""
        settings: Settings = self.world.settings
        self.document = job.judge(self.spark, settings, self.runs, job.surveyed(settings), None)
        address = self.address("a")
        assert {name: address[name] for name in counts} == counts
        return anomalies(self.document, self.world)["a"]

    def address(self, name: str) -> dict[str, Any]:
        """Return the last run's report of this address."""
        found: dict[str, Any] = self.document["addresses"][self.world.names[name]]
        return found

    def figures(self, name: str) -> AddressFigures:
        """Return the figures that the last run has left."""
        last = self.runs.last
        assert last is not None
        text = self.runs.files.read_text(f"{results_folder(last.number)}/figures.json")
        (found,) = (
            address for address in Figures.from_json(text).addresses if address.name == self.world.names[name]
        )
        return found


@pytest.fixture
def scheduler(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path) -> Scheduler:
    return Scheduler(spark, World(broker.bootstrap_servers, tmp_path, {"a": {}}))


@pytest.mark.long
def test_runs(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run begins at the end of the last good one; resends across runs, a crash, a missed run, an acknowledgement."""
    world = scheduler.world
    first = world.arrive("a", b"1")
    world.accept(first)
    world.commit()
    # The first run is clean. Run again, with nothing new, it gives the same answer.
    assert scheduler.run(input=1, accepted=1, duplicates=0) == {}
    assert scheduler.run(input=1, accepted=1, duplicates=0) == {}
    # Somebody deletes the workers' offsets, and no changelog has them: what was judged stays judged.
    admin = kafka.admin_client(world.bootstrap)
    admin.delete_consumer_groups([world.app_id])[world.app_id].result(kafka.WAIT_S)
    assert scheduler.run(input=0, in_flight=0) == {}
    # A resend is a duplicate of an ID of the run before; another one was forgotten; a third record has two outputs,
    # one of them a run late.
    world.arrive("a", b"1")
    world.accept(world.arrive("a", b"1"), first)
    world.commit()
    with monkeypatch.context() as crash:
        crash.setattr(Judge, "_hand_on", _crash)
        with pytest.raises(KeyboardInterrupt):
            scheduler.run()
    assert scheduler.runs.next_number == 4
    # A run was missed: the next one covers all of it.
    world.arrive("a", b"lost")
    world.commit()
    assert scheduler.run(input=3, accepted=1, duplicates=1) == {"FORGOTTEN": 1, "DOUBLED": 1, "LOST": 1}
    assert scheduler.runs.acknowledge() is not None
    assert scheduler.runs.acknowledge() is None
    world.accept(world.arrive("a", b"2"))
    world.commit()
    assert scheduler.run(input=1, accepted=1, duplicates=0) == {}
    assert not list(Path(world.settings.reconcile.state_dir).rglob("scratch"))
    # Somebody deletes what a run before knew: a resend of it would be called lost.
    shutil.rmtree(Path(world.settings.reconcile.state_dir) / "accepted")
    world.arrive("a", b"2")
    world.commit()
    with pytest.raises(
        PrerequisiteError, match=r"Parquet files that run 5 wrote .*: restore it from a backup"
    ):
        scheduler.run()


def _crash(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.long
def test_in_flight_and_rings(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path) -> None:
    """Records on their way, or not consumed, are not lost; the next run judges them once, and their order too.

    Beside it, known distances over two runs give exactly the ring that they need. Two rings hold IDs since they were cleared: one of a lane
    to which all is forwarded, and one of a lane in which nothing came since.
    """
    world = World(broker.bootstrap_servers, tmp_path, {"a": {}, "ring": {"id_cache_size": 4}})
    scheduler = Scheduler(spark, world)
    waiting, moved = world.arrive("a", b"1", b"k"), world.arrive("a", b"2", b"k")
    world.forward(moved, 1)
    world.forward(waiting, 1)
    world.accept(moved, partition=1)
    world.commit(forward=1)
    beyond, last = world.arrive("a", b"3"), world.arrive("a", b"4")
    world.accept(beyond)
    # Distances 1, 2 and 4, as far as the ring reaches; then 5, which it cannot know.
    _come(world, "ring", "1+ 1 2+ 1 3+ 4+ 1 5+ 1+")
    world.accept(world.arrive("ring", b"other", partition=1))
    world.tell("a", 1, 20_000, 20_000, 0)
    world.commit("ring")
    assert scheduler.run(input=2, accepted=1, in_flight=3) == {}
    assert scheduler.address("ring")["anomalies"]["OVERRUN"] == 1
    ring = scheduler.address("ring")["ring"]
    assert (ring["capacity"], ring["needed"], ring["recommended"]) == (4, 5, None)
    assert ring["resend_distance_p99"] == 5
    assert [(lane.records, lane.lag) for lane in scheduler.figures("a").lanes] == [(0, 2), (2, 1)]
    assert scheduler.figures("ring").lanes[1].ring_used == 1
    # The next run finds what was accepted before it began, and what came since. The same distances, over both runs.
    world.accept(waiting, partition=1)
    world.accept(last, last)
    _come(world, "ring", "1 5 6+ 7+ 5 8+ 5+")
    world.tell("ring", 1, 4, 4, 1)
    world.commit()
    assert scheduler.run(input=3, accepted=3, in_flight=0) == {"DOUBLED": 1, "REORDERED": 1}
    found = scheduler.figures("ring")
    span, share = found.ring.span_ms, scheduler.address("ring")["overrun_share"]
    assert found.ring == Ring(4, None, 0.999, 8, 2, 1, 2, 5, 5, 5, span, share, 1)
    assert 0 < span < 3_600_000
    assert [(item.upper, item.count) for item in found.distances] == [(1, 2), (2, 2), (4, 2), (8, 2)]
    assert found.lanes == (
        Lane(0, 7, 4, 3, 0, 4, resends=8, resend_distance_p99=5, resend_distance_max=5),
        Lane(1, 0, 0, 0, 0, 0),
    )
    assert scheduler.figures("a").lanes[1].ring_used == 2
    assert [(finding.anomaly, finding.offset, finding.id) for finding in scheduler.figures("a").findings] == [
        ("DOUBLED", last.offset, "4"), ("REORDERED", waiting.offset, "1"),
    ]  # fmt: skip


def _come(world: World, name: str, ids: str) -> None:
    """Let IDs come in; those with a plus are accepted."""
    for part in ids.split():
        record = world.arrive(name, part.strip("+").encode())
        if part.endswith("+"):
            world.accept(record)


def _verb(config: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_verb("reconcile", "--config", str(config), *arguments, check=False, limit_s=VERB_LIMIT_S)


async def _last_result(settings: Settings) -> RunResult | None:
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        return await last_run(cluster.connection, settings.app.id)


def test_the_job_and_the_verb(
    broker: EmbeddedBroker,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The job gives a document, files and an exit code, and commits its result. The verb uses the same state, and marks the result.

    The demo's test runs the verb with a JVM of its own.
    """
    world = World(broker.bootstrap_servers, tmp_path, {"a": {}})
    world.accept(world.arrive("a", b"1"))
    world.arrive("a", b"2")
    world.commit()
    config = world.config(tmp_path)
    monkeypatch.setattr(job, "session", lambda *_, **__: contextlib.nullcontext(spark))

    code = job.main(["--config", str(config), "--json", "--out", str(tmp_path / "out")])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    seen = _verb(config, "--acknowledge")
    result = asyncio.run(_last_result(world.settings))

    assert result is not None
    assert (result.verdict, result.acknowledged, result.anomalies) == ("anomalies", True, {"LOST": 1})
    assert result.report == str(tmp_path / "out" / "report.html")
    assert Path(result.report).exists()
    assert (code, document["verdict"]) == (1, "anomalies")
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == document
    said = "acknowledged run 1 (anomalies): the next one begins where it ended\n"
    assert (seen.returncode, seen.stdout) == (0, said)


@pytest.mark.long
def test_more_overrun_than_allowed(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path) -> None:
    """Above reconcile.overrun_max the run has anomalies, names the share and the size that would be enough, and ends with 1."""
    world = World(broker.bootstrap_servers, tmp_path, {"a": {"id_cache_size": 4}})
    for at, part in enumerate(["1+", "2+", "1", "2", "3+", "4+", "5+", "1+"]):
        record = world.arrive("a", part.strip("+").encode(), timestamp=SENT_AT + at * 600_000)
        if part.endswith("+"):
            world.accept(record)
    world.commit()
    config = world.config(tmp_path)
    config.write_text(config.read_text().replace("overrun_max = 1\n", "overrun_max = 0.3\n"))
    above = _verb(config)
    # The same run with a limit that it reaches and does not exceed.
    settings = validate(
        {**world.document, "reconcile": {**world.settings.reconcile.model_dump(), "overrun_max": 1 / 3}}
    )
    runs = RunHistory.load(LocalFiles(settings.reconcile.state_dir))
    within = job.judge(spark, settings, runs, job.surveyed(settings), None)

    said = " ".join(above.stdout.split())
    assert above.returncode == 1
    assert (
        f"{world.names['a']}: 33.3 % of the duplicates were accepted again (OVERRUN), and reconcile.overrun_max allows 30 %: "
        "id_cache_size = 8 would be enough (it has 4): the resends needed 5 in 1.17 h, and 50 % headroom"
        in said
    )
    assert "verdict: anomalies" in said
    assert (within["verdict"], within["from_night"]) == ("clean", None)
    found = within["addresses"][world.names["a"]]
    ring = found["ring"]
    assert (ring["needed"], ring["recommended"], ring["enough"], found["overrun_share"]) == (5, 8, 2, 1 / 3)


def test_what_is_missing_is_named(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """No broker, no topic, no Java: each is exit code 2, with the remedy, and before anything is judged."""
    world = World(broker.bootstrap_servers, tmp_path, {"a": {}})
    config = world.config(tmp_path)
    text = config.read_text()
    named = text.replace(f'name = "{world.names["a"]}"', 'name = "nowhere"')
    config.write_text(named.replace(f'id = "{world.app_id}"', 'id = "nobody"'))
    missing = _verb(config)
    config.write_text(text.replace(broker.bootstrap_servers, "127.0.0.1:1"))
    away = _verb(config)
    config.write_text(text)
    java = subprocess.run(
        [sys.executable, "-m", "reconcile", "--config", str(config)],
        cwd=ROOT, capture_output=True, text=True, check=False, env={"PATH": "", "JAVA_HOME": ""},
    )  # fmt: skip

    assert (missing.returncode, away.returncode, java.returncode) == (2, 2, 2)
    assert not (Path(world.settings.reconcile.state_dir) / "results").exists()
    assert all(named in missing.stderr for named in ("nowhere", "nobody-journal", "ringfence topics create"))
    assert "no broker answers at kafka.bootstrap_servers = '127.0.0.1:1'" in away.stderr
    assert "install Java 17" in java.stderr

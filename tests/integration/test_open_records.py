"""Open records on a broker: status, metrics and the count agree, and each look reads only new records."""

import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from prometheus_client.parser import text_string_to_metric_families

from app.commands.status.read import read_open_records
from app.embedded.broker import EmbeddedBroker
from app.worker.metrics import RepairWatch
from reconcile.run.outcome.committed_result import commit
from ringfence_client.progress import open_records
from ringfence_client.progress.open_records import OpenRecordCounts
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.load import load
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.run_result import RunResult
from ringfence_kafka.readers.log_reader import LogReader as _Reader
from tests.support import kafka
from tests.support.consumers.processes import ConsumerProcess
from tests.support.kafka import Sent
from tests.support.worker import WorkerProcess, configure, run_verb, wait_for

LETTERS = 3


class Scene:
    """Two addresses: of one a handler refuses group ``bad`` and messages lack an ID, of the other those are quarantined."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.name = kafka.unique("open")
        self.strict = f"{self.name}-strict"
        self.group = f"{self.name}-group"
        addresses: list[dict[str, Any]] = [
            {"name": self.name, "partitions": 1},
            {"name": self.strict, "partitions": 2, "duplicate_id_missing": "quarantine"},
        ]
        self.config = configure(folder, bootstrap, self.name, addresses)
        self.worker = WorkerProcess(self.config, "w")
        self.consumer = ConsumerProcess(
            self.config, "c", self.name, self.group, handler="refuse_until_mended",
            environment={"MENDED": str(folder / "mended")},
        )  # fmt: skip

    def verb(self, *arguments: str) -> str:
        return run_verb(*arguments, "--config", str(self.config), check=False).stdout

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.verb("status", "--json")))

    def letters(self) -> dict[str, Any]:
        """Return the open dead letters of the consumer group."""
        found = [item["dead_letters"] for item in self.status()["consumers"]]
        return dict(found[0] or {}) if found else {}

    def metric(self, page: str, name: str, **labels: str) -> float:
        """Return a sample; -1 = it is not there."""
        found = [
            sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sum(found) if found else -1.0


@pytest.fixture(scope="module")
def scene(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Yield a scene with three dead letters, two quarantined records and four messages without an ID."""
    scene = Scene(broker.bootstrap_servers, tmp_path_factory.mktemp("open"))
    missing = (("_amq_dupl_id", b"1"),)
    with scene.worker, scene.consumer:
        scene.worker.wait_ready()
        scene.consumer.wait_ready()
        bad = [Sent(b"%d" % index, b"bad") for index in range(LETTERS)]
        kafka.send(
            scene.bootstrap, scene.name, [*bad, *(Sent(None, b"g%d" % n, b"v", missing) for n in range(4))]
        )
        kafka.send(scene.bootstrap, scene.strict, [Sent(None, b"k", b"v", missing)] * 2)
        wait_for(lambda: scene.letters().get("count") == LETTERS, scene.consumer.log)
        yield scene


def test_status_and_metrics(scene: Scene) -> None:
    """Open dead letters and quarantined records stand until they are settled; gauges of one consumer and one worker follow."""
    gauges: tuple[Callable[[], float], ...] = (
        lambda: scene.metric(scene.consumer.page("/metrics"), "ringfence_consumer_open_dead_letters", consumer_group=scene.group),
        lambda: scene.metric(scene.worker.page("/metrics"), "ringfence_quarantine_open_records", address=scene.strict),
    )  # fmt: skip
    told = scene.status()
    (plain, strict) = told["addresses"]
    by_command = {item["command"]: item for item in told["findings"]}

    assert strict["quarantine"]["count"] == 2
    assert "no duplicate ID" in strict["quarantine"]["oldest_reason"]
    assert plain["quarantine"] is None
    assert plain["lanes"][0]["unchecked"] == 4
    assert plain["lanes"][0]["unchecked_headers"] == ["_amq_dupl_id"]
    redrive = f"ringfence dlq redrive {scene.name} --consumer-group {scene.group}"
    assert by_command[redrive]["what"].startswith("3 dead letters are open, the oldest for ")
    assert by_command[f"ringfence quarantine list {scene.strict}"]["stands"]
    assert not by_command[f"ringfence audit {scene.name} --id-header _amq_dupl_id"]["stands"]
    html = scene.worker.page("/")
    assert "3 dead letters are open" in html
    wait_for(lambda: [gauge() for gauge in gauges] == [3.0, 2.0], lambda: str([gauge() for gauge in gauges]))

    place = scene.letters()["oldest_place"]
    letter = scene.worker.page(f"/dead-letters/{scene.group}/{scene.name}/{place}")
    assert "hidden: app.page_values = true shows it" in letter
    scene.verb("dlq", "drop", scene.name, "--at", place, "--yes")
    assert scene.letters()["count"] == LETTERS - 1
    assert scene.letters()["oldest_place"] != place
    scene.verb("dlq", "drop", scene.name, "--yes")
    scene.verb("quarantine", "drop", scene.strict, "--yes")
    told = scene.status()
    assert [item["dead_letters"] for item in told["consumers"]] == [None]
    assert [item["quarantine"] for item in told["addresses"]] == [None, None]
    assert not [item for item in told["findings"] if item["stands"]]
    wait_for(lambda: [gauge() for gauge in gauges] == [0.0, 0.0], lambda: str([gauge() for gauge in gauges]))


def test_last_run(scene: Scene) -> None:
    """A result that a run committed is in status, as a note, and in the gauges of the worker."""
    settings, day_ms = load(scene.config), 24 * 3_600_000
    now_ms = round(time.time() * 1000)
    result = RunResult(
        verdict="anomalies", began_ms=now_ms - 2 * day_ms, ended_ms=now_ms - 2 * day_ms, number=3,
        anomalies={"LOST": 2}, report="/runs/3/report.html", host="spark",
    )  # fmt: skip
    assert "RECONCILIATION  no run is known" in scene.verb("status")
    commit(settings, result)
    told = scene.status()
    found = [item for item in told["findings"] if item["where"] == "reconciliation"]
    names = ("ringfence_run_ok", "ringfence_run_age_seconds")

    def gauges() -> list[float]:
        return [scene.metric(scene.worker.page("/metrics"), name) for name in names]

    assert told["last_run"]["anomalies"] == {"LOST": 2}
    assert [item["command"] for item in found] == ["ringfence reconcile", "ringfence reconcile show"]
    assert "the last run ended 2 days ago with the verdict anomalies: LOST 2" in found[1]["what"]
    assert "RECONCILIATION  anomalies, 2 days ago" in scene.verb("status")
    wait_for(lambda: gauges()[0] == 0, lambda: str(gauges()))
    assert gauges()[1] > 47 * 3_600


async def test_a_run_that_brokers_forgot(scene: Scene) -> None:
    """Status says that no run is known. A worker counts on from the run that it knew; for a new worker no run is older than any."""
    settings = load(scene.config)
    group = wire_names.run_group(settings.app.id)
    result = RunResult(verdict="clean", began_ms=0, ended_ms=round(time.time() * 1000) - 60_000, number=4)
    commit(settings, result)
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        former, fresh = (RepairWatch(settings, cluster, lambda: ()) for _ in range(2))

        def age(watch: RepairWatch) -> list[float]:
            name = "ringfence_run_age_seconds"
            return [
                sample.value for family in watch.collect() if family.name == name for sample in family.samples
            ]

        assert age(fresh) == []
        await former.refresh()
        admin = AdminClient({"bootstrap.servers": scene.bootstrap})
        admin.delete_consumer_groups([group])[group].result(60)
        await former.refresh()
        await fresh.refresh()
        assert 60 <= age(former)[0] < 600
        assert age(fresh) == [math.inf]
    assert scene.status()["last_run"] is None
    assert "RECONCILIATION  no run is known" in scene.verb("status")


async def test_each_look_reads_on(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A count goes on where the last look ended, keeps no more than its bound, and begins again with a new topic."""
    topic, settings = f"{scene.name}.quarantine", load(scene.config)
    counts, few = OpenRecordCounts(settings.kafka), OpenRecordCounts(settings.kafka, records_max=4)
    reason = (("_RF_REASON", b"too large"),)
    read_from = []

    async def never(*_: object) -> None:
        return None

    async with Cluster(settings.kafka, settings.app.id) as cluster:

        async def look(counter: OpenRecordCounts) -> Any:
            return (await counter.refresh(cluster, [topic, "missing"], never)).records.get((topic, ""))

        assert await look(counts) is None
        kafka.send(scene.bootstrap, topic, [Sent(b"%d" % n, None, b"v", reason) for n in range(5)])
        first = await look(counts)
        original = _Reader.read_range

        async def noted(reader: Any, topic: str, partition: int, start: int, *rest: Any) -> Any:
            read_from.append(start)
            return await original(reader, topic, partition, start, *rest)

        monkeypatch.setattr(_Reader, "read_range", noted)
        again = await look(counts)
        kafka.send(scene.bootstrap, topic, [Sent(b"more", None, b"v", reason)])
        more = await look(counts)
        bounded = await look(few)
        assert (first.count, again.count, more.count) == (5, 5, 6)
        assert (first.at_least, first.oldest_reason) == (False, "too large")
        assert read_from[0] >= 5
        assert len(read_from) == 2  # nothing new, nothing read; and one of the bounded count
        assert (bounded.count, bounded.at_least) == (4, True)
        monkeypatch.setattr(open_records, "LOOK_LIMIT_S", 0.0)
        late = await OpenRecordCounts(settings.kafka).refresh(cluster, [topic], never)
        monkeypatch.undo()
        assert (late.records, list(late.faults)) == ({}, [topic])
        kafka.recreate_topic(scene.bootstrap, topic)
        assert await look(counts) is None
        told = await read_open_records(settings, cluster, counts, None)
        assert told.records == {}

"""A fault of one address's topics: all views report it alike, that address stops, the others continue."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agents.batch.batch import FetchedBatch
from agents.topic_checks.addresses import EVERY, AddressFaults
from agents.worker.lanes import Lanes
from app.commands.topics import topics
from app.worker.fetch.buffers import Buffers
from app.worker.fetch.fetch_interval import FetchInterval
from app.worker.metrics import LaneMetrics
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.concurrency.broker_watch import BrokerWatch
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.http.server import ProcessMetrics
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.lanes import NOW, Group, until
from tests.support.worker import WorkerProcess, configure, run_verb, wait_for


class Scene:
    """Lanes of two addresses of one partition each, as a worker has them, without Faust."""

    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        self.settings = settings
        self.cluster = cluster
        self.sound, self.faulty = (address.name for address in settings.addresses)
        self.lanes = Lanes(settings, cluster)

    async def assign(self, known: dict[str, list[str]] | None = None) -> None:
        """Assign all partitions. ``known``: the known faults of addresses."""
        faults = AddressFaults(self.settings, self.cluster, known=known or {})
        self.lanes = Lanes(self.settings, self.cluster, faults)
        app_id = self.settings.app.id
        await self.lanes.assigned(
            {
                (topic, 0)
                for name in (self.sound, self.faulty)
                for topic in (name, f"{app_id}-{name}-forward")
            },
            Group(),
        )

    def state(self, name: str) -> tuple[str, str]:
        """State and reason, as ``/health`` shows them."""
        report = self.lanes.health.report()[f"{name}-0"]
        return report["state"], report.get("reason", "")

    async def until_state(self, name: str, state: str) -> None:
        await until(lambda: self.state(name)[0] == state, lambda: str(self.lanes.health.report()))

    def metrics(self) -> dict[tuple[str, str], float]:
        """Gauges by name and lane, or name and address where they have no lane."""
        watch = BrokerWatch(self.cluster.connection.ping, logging.getLogger("ringfence.test"), "")
        lanes = LaneMetrics(self.lanes, watch, Buffers(2**27), FetchInterval(0.025))
        return {
            (sample.name, sample.labels.get("lane", sample.labels.get("address", ""))): sample.value
            for family in text_string_to_metric_families(ProcessMetrics(lanes).text().decode())
            for sample in family.samples
            if family.type == "gauge"
        }


@pytest.fixture
async def scene(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """Topics as ``topics create`` makes them; refused lanes ask again at once."""
    monkeypatch.setattr("agents.lane.lane.REFUSED_AGAIN_S", 0.1)
    name = kafka.unique("scene")
    settings = validate(
        {
            "kafka": {"bootstrap_servers": bootstrap},
            "app": {"id": name, "data_dir": str(tmp_path)},
            "addresses": [{"name": f"{name}-{item}", "partitions": 1} for item in ("sound", "faulty")],
        }
    )
    await topics.ensure(settings)
    async with Cluster(settings.kafka, name) as cluster:
        made = Scene(settings, cluster)
        try:
            yield made
        finally:
            await made.lanes.stop()


async def test_grown_input(bootstrap: str, scene: Scene) -> None:
    """A lane with a grown input is refused with its true lag while the other address runs; recreated as before, it resumes by itself."""
    for name in (scene.sound, scene.faulty):
        kafka.send(bootstrap, name, [Sent(b"%d" % index, b"g") for index in range(7)])
    await asyncio.to_thread(kafka.grow_topic, bootstrap, scene.faulty, 2)
    found = await topics.examine(scene.settings)
    await scene.assign(known=found.by_address)
    await scene.until_state(scene.sound, "open")
    await scene.until_state(scene.faulty, "refused")
    await scene.lanes.measure_lag()
    refused, metrics, ready = scene.state(scene.faulty), scene.metrics(), scene.lanes.health.ready
    await asyncio.to_thread(kafka.recreate_topic, bootstrap, scene.faulty)
    await scene.until_state(scene.faulty, "open")
    await scene.lanes.check_topics()

    (fault,) = found.faults
    assert (found.by_address[scene.sound], found.fatal) == ([], False)
    assert fault.startswith(f"{scene.faulty} has 2 partitions, it had 1 when its lanes began, as ")
    assert refused == ("refused", fault)
    assert not ready
    assert metrics["ringfence_lane_open", f"{scene.sound}-0"] == 1
    assert metrics["ringfence_lane_open", f"{scene.faulty}-0"] == 0
    assert metrics["ringfence_lane_state", f"{scene.faulty}-0"] == 1
    assert metrics["ringfence_lag_records", f"{scene.faulty}-0"] == 7
    assert metrics["ringfence_address_faults", scene.faulty] == 1
    assert metrics["ringfence_address_faults", scene.sound] == 0
    assert scene.lanes.health.ready


async def test_topic_made_compacted_while_lanes_run(bootstrap: str, scene: Scene) -> None:
    """An open lane stops when its topic becomes compacted, reports the finding of ``topics check``, and resumes afterwards."""
    accepted = f"{scene.faulty}.accepted"
    await scene.assign()
    await scene.until_state(scene.sound, "open")
    await scene.until_state(scene.faulty, "open")
    kafka.alter_topic(bootstrap, accepted, "cleanup.policy", "compact,delete")
    await scene.lanes.check_topics()
    await scene.until_state(scene.faulty, "refused")
    (fault,) = (await topics.examine(scene.settings)).faults
    refused, sound = scene.state(scene.faulty), scene.state(scene.sound)
    kafka.alter_topic(bootstrap, accepted, "cleanup.policy", "delete")
    await scene.until_state(scene.faulty, "open")

    assert refused == ("refused", fault)
    assert f"--topic {accepted} --add-config cleanup.policy=delete" in fault
    assert sound == ("open", "")


async def test_topics_that_nobody_is_given(
    bootstrap: str, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """An address without topics has no lanes anywhere, but is reported once, and so is its return; the journal too."""
    caplog.set_level("INFO", "ringfence")
    gone = [scene.faulty, f"{scene.settings.app.id}-{scene.faulty}-forward"]
    journal = f"{scene.settings.app.id}-journal"
    kafka.delete_topics(bootstrap, [*gone, journal])
    await scene.lanes.assigned(
        {(scene.sound, 0), (f"{scene.settings.app.id}-{scene.sound}-forward", 0)}, Group()
    )
    await scene.until_state(scene.sound, "open")
    for _ in range(2):
        await scene.lanes.check_topics()
    missing, ready = scene.lanes.faults.by_address, scene.lanes.health.ready
    await topics.ensure(scene.settings)
    await scene.lanes.check_topics()

    assert [name.split()[0] for name in missing[scene.faulty]] == gone
    assert [name.split()[0] for name in missing[EVERY]] == [journal]
    assert caplog.text.count("every address: ") == 2
    assert caplog.text.count(f"address {scene.faulty}: a problem stops it: ") == 2
    assert f"address {scene.faulty}: the problem is solved, and it continues" in caplog.text
    assert (ready, scene.lanes.health.ready) == (False, True)


@pytest.mark.parametrize("raised", ["accepted", "quarantine"])
async def test_size_that_was_raised_a_moment_ago(bootstrap: str, scene: Scene, raised: str) -> None:
    """No message is refused, or replaced by its digest, for an outdated limit, even before a watch has seen the change."""
    kafka.alter_topic(bootstrap, f"{scene.faulty}.accepted", "max.message.bytes", "3000")
    kafka.alter_topic(bootstrap, f"{scene.faulty}.quarantine", "max.message.bytes", "3000")
    await scene.assign()
    (lane,) = [lane for lane in scene.lanes.lanes if lane.name == f"{scene.faulty}-0"]
    await scene.until_state(scene.faulty, "open")
    kafka.alter_topic(bootstrap, f"{scene.faulty}.{raised}", "max.message.bytes", "100000")
    value = b"x" * 5_000
    kafka.send(bootstrap, scene.faulty, [Sent(b"1", b"g", value)], 0)
    batch = await lane.opening.read_again(FetchedBatch(scene.faulty, 0, 0, 1, [], NOW))
    assert batch is not None
    await lane.offer(batch)
    await until(lambda: lane.next == 1, lambda: f"{lane.state}: {lane.reason}")

    assert lane.counts["quarantined"] == (raised == "quarantine")
    (found,) = kafka.read_all(bootstrap, f"{scene.faulty}.{raised}", 1)
    assert found.value == value


def test_worker_starts_without_a_faulty_address(bootstrap: str, tmp_path: Path) -> None:
    """A worker runs the other addresses, and names the fault in log and health.

    With faults in all addresses it does not start, exit code 1.
    """
    name = kafka.unique("start")
    sound, faulty = f"{name}-sound", f"{name}-faulty"
    config = configure(
        tmp_path, bootstrap, name, [{"name": name, "partitions": 1} for name in (sound, faulty)]
    )
    kafka.grow_topic(bootstrap, faulty, 2)
    process = WorkerProcess(config, "w")
    try:
        process.start()
        kafka.send(bootstrap, sound, [Sent(b"1", b"g")])
        kafka.wait_count(bootstrap, f"{sound}.accepted", 1)
        lane = f"{faulty}-0"
        wait_for(
            lambda: process.health()[1].get("lanes", {}).get(lane, {}).get("state") == "refused",
            lambda: f"{process.health()}\n{process.log()}",
        )
        status, report = process.health()
        assert process.stop() == 0
        kafka.grow_topic(bootstrap, sound, 3)
        process.start()
        code, said = process.wait_end(), process.log()
    finally:
        process.destroy()
    checked = run_verb("topics", "check", "--config", str(config), check=False)

    faults = [
        line.removeprefix("problem  ") for line in checked.stdout.splitlines() if line.startswith("problem")
    ]
    assert [fault.split()[0] for fault in faults] == [sound, faulty]
    assert status == 503
    assert report["lanes"][lane]["reason"] == faults[1]
    assert report["faults"] == {faulty: [faults[1]]}
    assert (code, checked.returncode) == (1, 1)
    assert said.strip().removeprefix("ringfence: ").splitlines() == faults

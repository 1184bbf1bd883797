"""A fault of one address's topics: all views report it alike, that address stops, the others continue."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agents.topic_checks.addresses import EVERY
from app.commands.topics import topics
from app.worker.fetch.buffers import Buffers
from app.worker.fetch.fetch_interval import FetchInterval
from app.worker.metrics import LaneMetrics
from ringfence_kafka.concurrency.broker_watch import BrokerWatch
from ringfence_kafka.http.server import ProcessMetrics
from tests.support import kafka
from tests.support.address_lanes import AddressLanes, address_lanes
from tests.support.kafka import Sent
from tests.support.worker import WorkerProcess, configure, run_verb, wait_for


def _metrics(scene: AddressLanes) -> dict[tuple[str, str], float]:
    """Gauges by name and lane, or name and address where they have no lane."""
    watch = BrokerWatch(scene.cluster.connection.ping, logging.getLogger("ringfence.test"), "")
    lanes = LaneMetrics(scene.lanes, watch, Buffers(2**27), FetchInterval(0.025))
    return {
        (sample.name, sample.labels.get("lane", sample.labels.get("address", ""))): sample.value
        for family in text_string_to_metric_families(ProcessMetrics(lanes).text().decode())
        for sample in family.samples
        if family.type == "gauge"
    }


@pytest.fixture
async def scene(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AddressLanes]:
    """Yield lanes of a sound and a faulty address; refused ones ask again at once."""
    monkeypatch.setattr("agents.lane.lane.REFUSED_AGAIN_S", 0.1)
    name = kafka.unique("faults")
    async with address_lanes(
        bootstrap, tmp_path, {"name": f"{name}-sound"}, {"name": f"{name}-faulty"}
    ) as made:
        yield made


async def test_grown_input(bootstrap: str, scene: AddressLanes) -> None:
    """A lane with a grown input is refused with its true lag while the other address runs; recreated as before, it resumes by itself."""
    sound, faulty = scene.names
    for name in scene.names:
        kafka.send(bootstrap, name, [Sent(b"%d" % index, b"g") for index in range(7)])
    await asyncio.to_thread(kafka.grow_topic, bootstrap, faulty, 2)
    found = await topics.examine(scene.settings)
    await scene.assign(known=found.by_address)
    await scene.until_state("open", sound)
    await scene.until_state("refused", faulty)
    await scene.lanes.measure_lag()
    refused, metrics, ready = scene.state(faulty), _metrics(scene), scene.lanes.health.ready
    await asyncio.to_thread(kafka.recreate_topic, bootstrap, faulty)
    await scene.until_state("open", faulty)
    await scene.lanes.check_topics()

    (fault,) = found.faults
    assert (found.by_address[sound], found.fatal) == ([], False)
    assert fault.startswith(f"{faulty} has 2 partitions, it had 1 when its lanes began, as ")
    assert refused == ("refused", fault)
    assert not ready
    assert metrics["ringfence_lane_open", f"{sound}-0"] == 1
    assert metrics["ringfence_lane_open", f"{faulty}-0"] == 0
    assert metrics["ringfence_lane_state", f"{faulty}-0"] == 1
    assert metrics["ringfence_lag_records", f"{faulty}-0"] == 7
    assert metrics["ringfence_address_faults", faulty] == 1
    assert metrics["ringfence_address_faults", sound] == 0
    assert scene.lanes.health.ready


async def test_topic_made_compacted_while_lanes_run(bootstrap: str, scene: AddressLanes) -> None:
    """An open lane stops when its topic becomes compacted, reports the finding of ``topics check``, and resumes afterwards."""
    sound, faulty = scene.names
    accepted = f"{faulty}.accepted"
    await scene.assign()
    await scene.until_state("open", sound, faulty)
    kafka.alter_topic(bootstrap, accepted, "cleanup.policy", "compact,delete")
    await scene.lanes.check_topics()
    await scene.until_state("refused", faulty)
    (fault,) = (await topics.examine(scene.settings)).faults
    refused, beside = scene.state(faulty), scene.state(sound)
    kafka.alter_topic(bootstrap, accepted, "cleanup.policy", "delete")
    await scene.until_state("open", faulty)

    assert refused == ("refused", fault)
    assert f"--topic {accepted} --add-config cleanup.policy=delete" in fault
    assert beside == ("open", "")


async def test_topics_that_nobody_is_given(
    bootstrap: str, scene: AddressLanes, caplog: pytest.LogCaptureFixture
) -> None:
    """An address without topics has no lanes anywhere, but is reported once, and so is its return; the journal too."""
    caplog.set_level("INFO", "ringfence")
    sound, faulty = scene.names
    gone = [faulty, f"{scene.settings.app.id}-{faulty}-forward"]
    journal = f"{scene.settings.app.id}-journal"
    kafka.delete_topics(bootstrap, [*gone, journal])
    await scene.assign(sound)
    await scene.until_state("open", sound)
    for _ in range(2):
        await scene.lanes.check_topics()
    missing, ready = scene.lanes.faults.by_address, scene.lanes.health.ready
    await topics.ensure(scene.settings)
    await scene.lanes.check_topics()

    assert [name.split()[0] for name in missing[faulty]] == gone
    assert [name.split()[0] for name in missing[EVERY]] == [journal]
    assert caplog.text.count("every address: ") == 2
    assert caplog.text.count(f"address {faulty}: a problem stops it: ") == 2
    assert f"address {faulty}: the problem is solved, and it continues" in caplog.text
    assert (ready, scene.lanes.health.ready) == (False, True)


@pytest.mark.parametrize("raised", ["accepted", "quarantine"])
async def test_size_that_was_raised_a_moment_ago(bootstrap: str, scene: AddressLanes, raised: str) -> None:
    """No message is refused, or replaced by its digest, for an outdated limit, even before a watch has seen the change."""
    _, faulty = scene.names
    for kind in ("accepted", "quarantine"):
        kafka.alter_topic(bootstrap, f"{faulty}.{kind}", "max.message.bytes", "3000")
    await scene.assign()
    await scene.until_state("open", faulty)
    kafka.alter_topic(bootstrap, f"{faulty}.{raised}", "max.message.bytes", "100000")
    value = b"x" * 5_000
    lane = await scene.feed(faulty, Sent(b"1", b"g", value))

    assert lane.counts["quarantined"] == (raised == "quarantine")
    (found,) = kafka.read_all(bootstrap, f"{faulty}.{raised}", 1)
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
    with WorkerProcess(config, "w") as process:
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

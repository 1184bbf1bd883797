"""Faults of a bridge's source: created again, cut, deleted, set back; each message passes once, in order, at the target."""

import signal
from pathlib import Path
from typing import Any

import pytest

from app.embedded.broker import EmbeddedBroker
from tests.support import kafka
from tests.support.bridges import processes
from tests.support.bridges.processes import PARTITIONS, Set, Two, messages, numbers, prepare
from tests.support.worker import wait_for


@pytest.mark.long
def test_source_recreated_under_it(two: Two, tmp_path: Path) -> None:
    """B11: the bridge forwards all messages of a source that is deleted and created again, also one that began with 'latest'."""
    given = prepare(two, tmp_path, start="latest")
    with processes.bridge(given.config, given.name) as process:
        given.send(messages(100))
        given.settled([100])
        process.signal(signal.SIGSTOP)  # it sees the new topic only with its messages
        wait_for(lambda: process.frozen, process.log)
        kafka.recreate_topic(two.source, given.topic)
        given.send(messages(40, first=100))
        process.signal(signal.SIGCONT)
        processes.wait_values(two.target, given.address, 140, PARTITIONS)
        got = given.settled([40])

    assert sorted(numbers(processes.passed(got))) == list(range(140))
    assert len({processes.hop_of(item).source.topic_id for item in got}) == 2


def test_latest(two: Two, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A bridge with 'latest' begins with later messages, writes its position down at once, and logs what it skips."""
    given = prepare(two, tmp_path, start="latest")
    given.send(messages(30))
    with processes.quick(given.config):
        given.settled([30])
    given.send(messages(5, first=30))
    with processes.quick(given.config):
        got = given.settled([35])

    assert sorted(numbers(got)) == list(range(30, 35))
    assert (
        "forwarding begins at its end, 30 (start = 'latest'). The 30 messages before it are never forwarded"
        in caplog.text
    )


@pytest.mark.long
def test_offsets_outlive_the_brokers_retention(tmp_path: Path) -> None:
    """A bridge with 'latest' skips nothing after an absence longer than brokers keep offsets of a group without members."""
    forgetful = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
    with EmbeddedBroker(tmp_path / "broker", properties=processes.FOREVER | forgetful) as broker:
        here = Two(broker.bootstrap_servers, broker.bootstrap_servers)
        given = prepare(here, tmp_path, start="latest")
        kafka.settle(here.source)
        kafka.commit(here.source, "another", given.topic, 0)
        assert kafka.committed(here.source, "another", given.topic, 1) == [0]
        with processes.quick(given.config):
            given.settled([0])
        given.send(messages(20))
        wait_for(
            lambda: kafka.committed(here.source, "another", given.topic, 1)[0] < 0,
            lambda: "nothing expires",
            180,
        )
        assert kafka.committed(here.source, given.group, given.topic, 1) == [0]
        with processes.quick(given.config):
            got = given.settled([20])
    assert sorted(numbers(got)) == list(range(20))


def test_gap(two: Two, tmp_path: Path) -> None:
    """B11: a bridge reports and counts messages that retention deleted before they were forwarded, and continues."""
    given = prepare(two, tmp_path)
    given.send(messages(50))
    with processes.quick(given.config):
        given.settled([50])
    given.send(messages(50, first=50))
    kafka.delete_before(two.source, given.topic, 80)
    with processes.bridge(given.config, given.name) as process:
        got = given.settled([100])
        assert "GAP: retention deleted 30 offsets" in process.log()
        assert (
            f'ringfence_bridge_gap_records_total{{bridge="{given.name}",partition="0"}} 30.0'
            in process.page("/metrics")
        )

    assert sorted(numbers(got)) == [*range(50), *range(80, 100)]
    assert processes.status(given.config, code=0)["bridges"][given.name]["partitions"][0]["gap_records"] == 30


def test_offset_beyond_the_end(two: Two, tmp_path: Path) -> None:
    """A partition whose log ends before its confirmed offset stops, status reports it, and others continue.

    Once its offset is set, it continues.
    """
    given = prepare(two, tmp_path, source_partitions=2)
    given.send(messages(10), 0)
    kafka.commit(two.source, given.group, given.topic, 50)
    assert "which ends at 10" in _row(given)["error"]
    with processes.BridgeProcess(given.config, given.name) as process:
        wait_for(lambda: "which ends at 10" in str(process.health()[1]), process.log)
        assert process.health()[0] == 503
        given.send(messages(10, first=10), 1)
        wait_for(lambda: kafka.committed(two.source, given.group, given.topic, 2)[1] == 10, process.log)
        wait_for(lambda: _row(given)["since"] is not None, process.log)
        assert process.stop() == 0
    given.send(messages(90, first=100), 0)
    kafka.commit(two.source, given.group, given.topic, 60)
    with processes.quick(given.config):
        got = given.settled([100, 10])
    assert sorted(numbers(got)) == [*range(10, 20), *range(150, 190)]
    assert processes.status(given.config, code=0)["bridges"][given.name]["partitions"][0]["error"] is None


def _row(given: Set) -> dict[str, Any]:
    found: dict[str, Any] = processes.status(given.config, code=1)["bridges"][given.name]["partitions"][0]
    return found

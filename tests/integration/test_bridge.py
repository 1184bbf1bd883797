"""A bridge between two clusters: its output, and its duplicates. The rule of hops judges the target's input."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from agents.bridge.offsets import OffsetMetadata, encode
from agents.bridge.plan import plans
from app.bridge import run
from ringfence_kafka.config.load import load
from ringfence_kafka.errors import MissingTopicError
from ringfence_kafka.groups import committed_offsets
from ringfence_kafka.groups.committed_offsets import Committed
from tests.support import kafka
from tests.support.bridges import processes
from tests.support.bridges.processes import Set, Two, hop_of, messages, numbers, prepare
from tests.support.kafka import Sent
from tests.support.records import unusual
from tests.support.worker import run_verb, wait_for


def test_forwards_as_it_is(two: Two, tmp_path: Path) -> None:
    """Key, value, headers and timestamp stay; each record names its hop; each group is in one partition, in order."""
    given = prepare(two, tmp_path, source_partitions=2)
    sent = messages(500)
    given.send(sent[:250], 0)
    given.send(sent[250:], 1)
    with processes.bridge(given.config, given.name) as process:
        got = given.settled([250, 250])
        assert process.stop() == 0

    assert sorted((item.key, item.value, item.id, item.timestamp) for item in got) == sorted(
        (item.key, item.value, item.id, item.timestamp) for item in sent
    )
    by_group: dict[tuple[Any, int], list[int]] = {}
    for item in got:
        by_group.setdefault((item.key, hop_of(item).source.partition), []).append(int(item.value or b""))
        assert hop_of(item).source.bridge == given.name
        assert hop_of(item).offset == int(item.value or b"") % 250
    assert all(value == sorted(value) for value in by_group.values())
    homes = {item.key: item.partition for item in got}
    assert all(homes[item.key] == item.partition for item in got)


# The first waits for a session to run out; the model of instances has all points.
def test_what_the_target_does_not_take(two: Two, tmp_path: Path) -> None:
    """B12: a message that is too large for the target, or malformed, goes to quarantine there with the reason; the rest flows.

    The bridge asks again before it refuses a message for its size: the limit may have been raised.
    """
    given = prepare(two, tmp_path, settings={"max.message.bytes": "20000"})
    given.send([*messages(5), Sent(b"large", b"g1", b"x" * 50_000), *messages(5, first=5)])
    asyncio.run(unusual.send(two.source, given.topic, [unusual.MALFORMED]))
    given.send(messages(5, first=10))
    with processes.bridge(given.config, given.name) as process:
        given.settled([17])
        counted = f'ringfence_bridge_quarantined_total{{bridge="{given.name}",partition="0"}} 2.0'
        assert counted in process.page("/metrics")
        gauge = f'ringfence_bridge_quarantine_open_records{{bridge="{given.name}"}}'
        wait_for(lambda: f"{gauge} 2.0" in process.page("/metrics"), process.log)
        kafka.alter_topic(two.target, given.address, "max.message.bytes", "100000")
        given.send([Sent(b"fits now", b"g1", b"7" * 50_000)])
        got = given.settled([18])
    large, malformed = kafka.read_all(two.target, f"{given.name}.quarantine", 1)

    passed = processes.passed(got)
    assert sorted(item.value or b"" for item in passed if item.id != b"fits now") == sorted(
        b"%d" % index for index in range(15)
    )
    assert len(passed) == 16
    assert (large.key, large.value, large.source) == (b"g1", b"x" * 50_000, f"{given.topic}/0/5")
    assert b"takes max.message.bytes = 20000" in (dict(large.headers)["_RF_REASON"] or b"")
    assert b"is not UTF-8" in (dict(malformed.headers)["_RF_REASON"] or b"")


def test_status_counts_its_quarantine(two: Two, tmp_path: Path) -> None:
    """Refused messages at the target stand in the status of their application until somebody redrives or drops them."""
    given = prepare(two, tmp_path, settings={"max.message.bytes": "20000"})
    given.send([Sent(b"large", b"g1", b"x" * 50_000)] * 2)
    with processes.quick(given.config):
        given.settled([2])
    foreign = (("_RF_BRIDGE_APP", b"another"), ("_RF_REASON", b"too large"))
    kafka.send(two.target, f"{given.name}.quarantine", [Sent(b"large", b"g1", b"x", foreign)])

    def stands() -> list[str]:
        done = run_verb("status", "--json", "--config", str(given.config), check=False)
        told = json.loads(done.stdout)
        found = [item for item in told["findings"] if item["where"] == f"bridge {given.name}"]
        assert done.returncode == bool(found), done.stdout
        return [f"{item['what'].partition(',')[0]}: {item['command']}" for item in found]

    redrive = f"ringfence quarantine redrive {given.name} --bridge"
    assert stands() == [f"2 quarantined records are open: {redrive}"]
    drop = ("quarantine", "drop", given.name, "--config", str(given.config), "--yes")
    run_verb(*drop, "--at", "0/0")
    assert stands() == [f"1 quarantined record is open: {redrive}"]
    run_verb(*drop)
    assert stands() == []


def test_refused_by_the_broker(two: Two, tmp_path: Path) -> None:
    """The bridge finds, among hundreds, a record that only the broker refuses, for example for its timestamp, and sets it aside."""
    given = prepare(two, tmp_path, settings={"message.timestamp.before.max.ms": "3600000"})
    now = round(time.time() * 1000)
    records = [Sent(b"%d" % index, b"g", b"%d" % index, timestamp=now) for index in range(300)]
    records[137] = records[137]._replace(timestamp=1_600_000_000_000)
    given.send(records)
    with processes.quick(given.config) as (bridge,):
        got = given.settled([300])
        wait_for(lambda: bridge.state.ready, lambda: str(bridge.state.reasons))
    (kept,) = kafka.read_all(two.target, f"{given.name}.quarantine", 1)

    assert numbers(processes.passed(got)) == [index for index in range(300) if index != 137]
    assert kept.source == f"{given.topic}/0/137"


def test_drain(two: Two, tmp_path: Path) -> None:
    """--drain forwards the present messages, but no aborted ones, stops exactly there, and ends.

    A partition that makes no progress ends it with its reason, when all others are drained.
    """
    given = prepare(two, tmp_path, source_partitions=2)

    def drain() -> tuple[int, str]:
        arguments = ("bridge", "--drain", "--web-port", "0", "--config", str(given.config))
        done = run_verb(*arguments, check=False)
        return done.returncode, done.stderr

    given.send(messages(500), 0)
    for commit in (True, False):
        kafka.send_in_transaction(
            two.source, given.topic, messages(10, first=500), commit=commit, partition=1
        )
    code, said = drain()

    assert code == 0, said
    ends = kafka.end_offsets(two.source, given.topic, 2)
    assert kafka.committed(two.source, given.group, given.topic, 2) == ends
    assert sorted(numbers(given.got())) == list(range(510))

    kafka.commit(two.source, given.group, given.topic, 900)
    given.send(messages(10, first=510), 1)
    code, said = drain()

    assert code == 1, said
    stopped = f"stopped: group {given.group} has committed 900 of"
    assert f"ringfence: bridge {given.name}: not drained: {stopped}" in said
    assert kafka.committed(two.source, given.group, given.topic, 2) == [900, ends[1] + 10]


async def _commit_as_bridge(bootstrap: str, given: Set, partition: int, offset: int) -> None:
    """Commit an offset with metadata, which confluent_kafka does not send."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        place = TopicPartition(given.topic, partition)
        await committed_offsets.commit(
            admin, given.group, {place: Committed(offset, encode(OffsetMetadata()))}
        )
    finally:
        await admin.close()


async def test_drain_of_others(two: Two, tmp_path: Path) -> None:
    """A drain has ended when all partitions are at their goals, in any process. A missing source is an error."""
    given = prepare(two, tmp_path, source_partitions=2)
    given.send(messages(10), 0)
    given.send(messages(20), 1)
    found = plans(load(given.config))
    ends = await run.drain_ends(found)
    assert ends == {given.name: {0: 10, 1: 20}}
    kafka.commit(two.source, given.group, given.topic, 20, 1)
    await _commit_as_bridge(two.source, given, 0, 10)
    assert not await run.is_drained(found, ends), "the second offset is not a bridge's"
    await _commit_as_bridge(two.source, given, 1, 20)
    assert await run.is_drained(found, ends)
    kafka.delete_topics(two.source, [given.topic])
    with pytest.raises(MissingTopicError, match="nothing to drain"):
        await run.drain_ends(found)


def test_nobody_forwards_it(two: Two, tmp_path: Path) -> None:
    """``bridge status`` reports messages that wait while no bridge forwards them, for people too, and its exit code is 1.

    ``bridge status`` and ``status`` also find a bridge that left the configuration with unforwarded messages.
    """
    given = prepare(two, tmp_path)
    kafka.create_topics(two.source, {f"{given.topic}-else": (1, {})})
    renamed, config = (
        processes.configure(
            tmp_path, two.source, two.target,
            app_id=f"{given.name}-app", name=f"{given.name}-{name}", source_topic=topic, address=given.address,
        )
        for name, topic in (("new", given.topic), ("other", f"{given.topic}-else"))
    )  # fmt: skip
    with processes.bridge(given.config, given.name):
        given.send(messages(13))
        given.settled([13])
        assert processes.status(config, code=0)["left"] == []
    (row,) = processes.status(given.config, code=0)["bridges"][given.name]["partitions"]
    assert (row["member"], row["lag"]) == (None, 0)
    given.send(messages(7, first=13))
    present = run_verb("bridge", "status", "--config", str(given.config), check=False)
    (left,) = processes.status(config, code=1)["left"]
    shown = run_verb("bridge", "status", "--config", str(config), check=False).stdout
    whole = run_verb("status", "--json", "--config", str(config), check=False)
    (finding,) = [
        item for item in json.loads(whole.stdout)["findings"] if item["where"] == f"bridge {given.name}"
    ]
    (taken_over,) = processes.status(renamed)["left"]

    assert present.returncode == 1
    assert "NOBODY forwards it, and messages wait: run 'ringfence bridge'" in present.stdout
    assert "no longer in this configuration" not in present.stdout
    assert (left["bridge"], left["lag"], left["read_by"]) == (given.name, 7, None)
    gone = f"{given.name}: it is no longer in this configuration, and up to 7 messages wait in {given.topic}"
    assert gone in shown
    assert f"--delete --group {given.group}" in shown
    assert (whole.returncode, finding["stands"]) == (1, True)
    assert "up to 7 messages wait" in finding["what"]
    assert taken_over["read_by"] == f"{given.name}-new"


def test_what_is_missing(two: Two, tmp_path: Path) -> None:
    """An unknown name, a missing target topic and a missing source topic give one line with the remedy, and exit code 2."""
    given = prepare(two, tmp_path)

    def refused(*arguments: str) -> str:
        done = run_verb("bridge", *arguments, "--config", str(given.config), check=False)
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("ringfence:")]
        assert done.returncode == 2
        return line

    assert refused("other") == f"ringfence: unknown bridge 'other': the configuration has {given.name}"
    kafka.delete_topics(two.target, [given.address])
    line = refused()
    assert f"{given.address} does not exist" in line
    assert "run 'ringfence topics create' there" in line
    kafka.delete_topics(two.source, [given.topic])
    assert f"{given.topic} does not exist" in refused()


def test_processes_with_another_filter(two: Two, tmp_path: Path) -> None:
    """A second process with another filter forwards nothing and names the difference at each look.

    When the first has ended it begins by itself. Only records with one of the values are forwarded, with the added headers.
    """
    given = prepare(
        two,
        tmp_path,
        source_partitions=2,
        filter_header="land",
        filter_values=["fr"],
        add_headers={"by": "bridge"},
    )
    newer = tmp_path / "newer.toml"
    newer.write_text(given.config.read_text().replace('["fr"]', '["be"]'))
    sent = [
        Sent(b"%d" % index, None, b"%d" % index, (("land", (b"fr", b"be")[index % 2]), ("by", b"me")))
        for index in range(40)
    ]
    second = processes.BridgeProcess(newer, f"{given.name}-newer")
    try:
        with processes.quick(given.config) as (first,):
            second.start()
            wait_for(lambda: "filter_values" in second.log(), second.log)
            wait_for(
                lambda: first.state.ready and len(first.state.partitions) == 2,
                lambda: str(first.state.reasons),
            )
            given.send(sent[:20], 0)
            given.send(sent[20:], 1)
            got = given.settled([20, 20])
            reasons = str(second.health()[1])
        second.wait_ready()
        given.send([Sent(b"late", None, b"99", (("land", b"be"),))])
        late = given.settled([21, 20])
        assert second.stop() == 0
    finally:
        second.destroy()

    assert sorted(numbers(got)) == list(range(0, 40, 2))
    assert sorted(numbers(late)) == [*range(0, 40, 2), 99]
    assert {tuple(value for name, value in item.headers if name == "by") for item in late} == {(b"bridge",)}
    assert "filter_values = [" in reasons
    assert "starts when the last one has stopped" in reasons

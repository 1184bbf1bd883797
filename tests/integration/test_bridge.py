"""A bridge between two clusters: its output, and its duplicates. The rule of hops judges the target's input."""

import asyncio
import json
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from agents.bridge.offsets import OffsetMetadata, encode
from agents.bridge.plan import plans
from app.bridge import drains
from ringfence_client.consumer import group_terms
from ringfence_kafka.config.load import load
from ringfence_kafka.errors import MissingTopicError
from ringfence_kafka.groups import committed_offsets
from ringfence_kafka.groups.committed_offsets import Committed
from tests.support import kafka
from tests.support.bridges import processes
from tests.support.bridges.processes import PARTITIONS, Set, Two, hop_of, messages, numbers, prepare
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


def test_offset_set_back(two: Two, tmp_path: Path) -> None:
    """B1: exactly the other 900 messages pass, in order, when the group's offset is set to 0 after 100 of 1,000."""
    given = prepare(two, tmp_path)
    sent = messages(1_000)
    given.send(sent[:100])
    with processes.quick(given.config):
        given.settled([100])
    kafka.commit(two.source, given.group, given.topic, 0)
    given.send(sent[100:])
    with processes.quick(given.config):
        got = given.settled([1_000])

    assert len(got) == 1_100
    passed = processes.passed(got)
    assert sorted(int(item.value or b"") for item in passed) == list(range(1_000))
    for partition in range(PARTITIONS):
        numbers = [int(item.value or b"") for item in passed if item.partition == partition]
        assert numbers == sorted(numbers)


def _long(point: str) -> Any:
    return pytest.param(point, marks=pytest.mark.long)


# Each but the last waits for a session to run out; test_bridge_to_worker.py kills one, and the model of instances has them all.
@pytest.mark.parametrize(
    "point",
    [_long("before-send"), _long("mid-send"), _long("after-send"), _long("before-commit"), "after-commit"],
)
def test_killed(two: Two, tmp_path: Path, point: str) -> None:
    """B3: the bridge is killed at each point; the next process continues, nothing is lost, nothing passes twice."""
    given = prepare(two, tmp_path, window=100)
    given.send(messages(400))
    process = processes.BridgeProcess(given.config, given.name)
    try:
        process.start(RINGFENCE_FAILPOINTS=f"{point}:{given.name}=kill@2")
        assert process.wait_end() == -signal.SIGKILL
        process.start()
        got = given.settled([400])
    finally:
        process.destroy()

    passed = processes.passed(got)
    assert sorted(int(item.value or b"") for item in passed) == list(range(400))


def test_rest_behind_markers(two: Two, tmp_path: Path) -> None:
    """Aborted transactions and markers at the end leave no lag; aborted records are not forwarded."""
    given = prepare(two, tmp_path)
    kafka.send_in_transaction(two.source, given.topic, messages(5), commit=True)
    kafka.send_in_transaction(two.source, given.topic, messages(5, first=5), commit=False)
    with processes.quick(given.config):
        got = given.settled(kafka.end_offsets(two.source, given.topic))

    assert [item.value for item in sorted(got, key=lambda item: int(item.value or b""))] == [
        b"%d" % index for index in range(5)
    ]


def test_too_large(two: Two, tmp_path: Path) -> None:
    """B12: a message that is too large for the target goes to quarantine there, by size and digest if necessary; the rest flows."""
    given = prepare(two, tmp_path, settings={"max.message.bytes": "20000"})
    given.send([*messages(5), Sent(b"large", b"g1", b"x" * 50_000), *messages(5, first=5)])
    with processes.bridge(given.config, given.name) as process:
        got = given.settled([11])
        assert (
            f'ringfence_bridge_quarantined_total{{bridge="{given.name}",partition="0"}} 1.0'
            in process.page("/metrics")
        )
        gauge = f'ringfence_bridge_quarantine_open_records{{bridge="{given.name}"}}'
        wait_for(lambda: f"{gauge} 1.0" in process.page("/metrics"), process.log)
    (kept,) = kafka.read_all(two.target, f"{given.name}.quarantine", 1)

    assert sorted(numbers(processes.passed(got))) == list(range(10))
    assert (kept.key, kept.value, kept.source) == (b"g1", b"x" * 50_000, f"{given.topic}/0/5")
    assert b"takes max.message.bytes = 20000" in (dict(kept.headers)["_RF_REASON"] or b"")


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


def test_a_limit_that_was_raised(two: Two, tmp_path: Path) -> None:
    """The bridge asks the target again before it refuses a message for its size: it looked before the limit was raised."""
    given = prepare(two, tmp_path, settings={"max.message.bytes": "20000"})
    given.send(messages(5))
    with processes.bridge(given.config, given.name):
        processes.confirmed_at(two.source, given.group, given.topic, [5])
        kafka.alter_topic(two.target, given.address, "max.message.bytes", "100000")
        given.send([Sent(b"large", b"g1", b"7" * 50_000), *messages(5, first=5)])
        got = given.settled([11])

    assert len(processes.passed(got)) == 11
    assert kafka.end_offsets(two.target, f"{given.name}.quarantine") == [0]


def test_nothing_takes_it(two: Two, tmp_path: Path) -> None:
    """A message that is too large even for the quarantine stops its partition, which reports it; others flow.

    When the target takes it, all continue.
    """
    given = prepare(two, tmp_path, source_partitions=2, settings={"max.message.bytes": "20000"})
    kafka.create_topics(two.target, {f"{given.name}.quarantine": (1, {"max.message.bytes": "100"})})
    large = Sent(b"large", b"g1", b"7" * 50_000)
    given.send(messages(5))
    with processes.bridge(given.config, given.name) as process:
        given.send([large, *messages(5, first=5)])
        processes.confirmed_at(two.source, given.group, given.topic, [5, 0])
        wait_for(lambda: process.health()[0] == 503, process.log)
        for first in range(100, 600, 100):
            given.send(messages(100, first=first), 1)
            processes.confirmed_at(two.source, given.group, given.topic, [5, first])
        stopped, well = processes.status(given.config, code=1)["bridges"][given.name]["partitions"]
        assert (
            "raise its max.message.bytes = 100" in process.health()[1]["bridges"][given.name]["reasons"]["0"]
        )
        assert stopped["retried"] + well["retried"] == 0
        kafka.alter_topic(two.target, given.address, "max.message.bytes", "100000")
        got = given.settled([11, 500])
        process.wait_ready()

    assert "offset 5 is refused permanently" in stopped["error"]
    assert stopped["since"] is not None
    assert (stopped["lag"], well["error"]) == (6, None)
    assert len(got) == 511
    assert processes.status(given.config, code=0)["bridges"][given.name]["partitions"][0]["error"] is None


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


def test_header_name_that_is_not_utf_8(two: Two, tmp_path: Path) -> None:
    """B12: a record whose header name is not UTF-8 goes to quarantine, with the reason."""
    given = prepare(two, tmp_path)
    given.send(messages(3))
    asyncio.run(unusual.send(two.source, given.topic, [unusual.MALFORMED]))
    given.send(messages(3, first=3))
    with processes.bridge(given.config, given.name):
        got = given.settled([7])
    (kept,) = kafka.read_all(two.target, f"{given.name}.quarantine", 1)

    assert sorted(numbers(processes.passed(got))) == list(range(6))
    assert b"is not UTF-8" in (dict(kept.headers)["_RF_REASON"] or b"")


def test_filter_and_headers(two: Two, tmp_path: Path) -> None:
    """The bridge forwards only records with one of the values, with the added headers; it confirms and counts the rest."""
    given = prepare(
        two, tmp_path, filter_header="land", filter_values=["fr", "be"], add_headers={"by": "bridge"}
    )
    lands = [b"fr", b"de", b"be", None]
    given.send(
        [Sent(None, b"g", b"%d" % index, (("land", lands[index % 4]), ("by", b"me"))) for index in range(40)]
    )
    with processes.quick(given.config):
        got = given.settled([40])
    (row,) = processes.status(given.config, code=0)["bridges"][given.name]["partitions"]

    assert numbers(got) == [index for index in range(40) if index % 2 == 0]
    assert {tuple(value for name, value in item.headers if name == "by") for item in got} == {(b"bridge",)}
    assert (row["filtered"], row["forwarded"], row["lag"]) == (20, 20, 0)


def test_drain(two: Two, tmp_path: Path) -> None:
    """--drain forwards the present messages, stops exactly there, and ends."""
    given = prepare(two, tmp_path, source_partitions=2)
    given.send(messages(500), 0)
    kafka.send_in_transaction(two.source, given.topic, messages(10, first=500), commit=True, partition=1)
    done = run_verb(
        "bridge", given.name, "--drain", "--web-port", "0", "--config", str(given.config), check=False
    )

    assert done.returncode == 0, done.stderr
    assert kafka.committed(two.source, given.group, given.topic, 2) == kafka.end_offsets(
        two.source, given.topic, 2
    )
    assert sorted(numbers(given.got())) == list(range(510))


def test_drain_with_what_stands(two: Two, tmp_path: Path) -> None:
    """A partition that makes no progress ends the drain with its reason, when all others are drained."""
    given = prepare(two, tmp_path, source_partitions=2)
    given.send(messages(10), 0)
    given.send(messages(10, first=10), 1)
    kafka.commit(two.source, given.group, given.topic, 50)
    done = run_verb("bridge", "--drain", "--web-port", "0", "--config", str(given.config), check=False)

    assert done.returncode == 1, done.stderr
    assert (
        f"ringfence: bridge {given.name}: not drained: stopped: group {given.group} has committed 50 of"
        in done.stderr
    )
    assert kafka.committed(two.source, given.group, given.topic, 2) == [50, 10]


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
    ends = await drains.ends_of(found)
    assert ends == {given.name: {0: 10, 1: 20}}
    kafka.commit(two.source, given.group, given.topic, 20, 1)
    await _commit_as_bridge(two.source, given, 0, 10)
    assert not await drains.reached(found, ends), "the second offset is not a bridge's"
    await _commit_as_bridge(two.source, given, 1, 20)
    assert await drains.reached(found, ends)
    kafka.delete_topics(two.source, [given.topic])
    with pytest.raises(MissingTopicError, match="nothing to drain"):
        await drains.ends_of(found)


def test_killed_is_seen(two: Two, tmp_path: Path) -> None:
    """Status reports messages that wait while no bridge forwards them, for people too, and its exit code is 1."""
    given = prepare(two, tmp_path)
    with processes.bridge(given.config, given.name) as process:
        given.send(messages(10))
        given.settled([10])
        assert process.stop() == 0
    assert processes.status(given.config, code=0)["bridges"][given.name]["partitions"][0]["member"] is None
    given.send(messages(7, first=10))
    done = run_verb("bridge", "status", "--config", str(given.config), check=False)

    assert done.returncode == 1
    assert "NOBODY forwards it, and messages wait: run 'ringfence bridge'" in done.stdout
    assert processes.status(given.config)["bridges"][given.name]["partitions"][0]["lag"] == 7


def test_taken_out_of_the_configuration(two: Two, tmp_path: Path) -> None:
    """``bridge status`` and ``status`` find a bridge that left the configuration with unforwarded messages.

    They do not report one that somebody has put back.
    """
    given = prepare(two, tmp_path)
    with processes.bridge(given.config, given.name) as process:
        given.send(messages(10))
        given.settled([10])

        def configured(name: str, topic: str) -> Path:
            """Return the same application with another bridge."""
            return processes.configure(
                tmp_path, two.source, two.target,
                app_id=f"{given.name}-app", name=name, source_topic=topic, address=given.address,
            )  # fmt: skip

        kafka.create_topics(two.source, {f"{given.topic}-else": (1, {})})
        renamed = configured(f"{given.name}-new", given.topic)
        config = configured(f"{given.name}-other", f"{given.topic}-else")
        assert processes.status(config, code=0)["left"] == []
        given.send(messages(3, first=10))
        given.settled([13])
        assert processes.status(config, code=0)["left"] == []
        assert process.stop() == 0
    given.send(messages(7, first=13))
    (left,) = processes.status(config, code=1)["left"]
    shown = run_verb("bridge", "status", "--config", str(config), check=False).stdout
    whole = run_verb("status", "--json", "--config", str(config), check=False)
    told = json.loads(whole.stdout)["findings"]
    assert [item["where"] for item in told if item["where"].startswith("bridge")] == [
        f"bridge {given.name}"
    ], told
    (finding,) = [item for item in told if item["where"].startswith("bridge")]
    (taken_over,) = processes.status(renamed)["left"]

    assert (left["bridge"], left["lag"], left["read_by"]) == (given.name, 7, None)
    assert (
        f"{given.name}: it is no longer in this configuration, and up to 7 messages wait in {given.topic}"
        in shown
    )
    assert f"--delete --group {given.group}" in shown
    assert (whole.returncode, finding["where"], finding["stands"]) == (1, f"bridge {given.name}", True)
    assert "up to 7 messages wait" in finding["what"]
    assert taken_over["read_by"] == f"{given.name}-new"
    assert processes.status(given.config)["left"] == []


def test_target_topic_missing_and_made(two: Two, tmp_path: Path) -> None:
    """A target topic that is missing at the start gives one line with the remedy, and exit code 2."""
    given = prepare(two, tmp_path)
    kafka.delete_topics(two.target, [given.address])
    done = run_verb("bridge", "--config", str(given.config), check=False)

    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ringfence:")]
    assert f"{given.address} does not exist" in line
    assert "run 'ringfence topics create' there" in line


def test_source_topic_missing(two: Two, tmp_path: Path) -> None:
    given = prepare(two, tmp_path)
    kafka.delete_topics(two.source, [given.topic])
    done = run_verb("bridge", "--config", str(given.config), check=False)

    assert done.returncode == 2
    assert f"{given.topic} does not exist" in done.stderr


def test_names(two: Two, tmp_path: Path) -> None:
    """The error for an unknown name lists the known names, and names the lack of bridges if there are none."""
    given = prepare(two, tmp_path)
    done = run_verb("bridge", "other", "--config", str(given.config), check=False)

    assert (done.returncode, done.stderr) == (
        2, f"ringfence: unknown bridge 'other': the configuration has {given.name}\n",
    )  # fmt: skip


@pytest.mark.parametrize("at_once", [False, True])
def test_processes_with_another_filter(
    two: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, at_once: bool
) -> None:
    """A second process with another filter forwards nothing and names the difference at each look.

    When the first has ended it begins by itself.
    """
    given = prepare(two, tmp_path, source_partitions=2, filter_header="land", filter_values=["fr"])
    newer = tmp_path / "newer.toml"
    newer.write_text(given.config.read_text().replace('["fr"]', '["be"]'))
    sent = [
        Sent(b"%d" % index, None, b"%d" % index, (("land", (b"fr", b"be")[index % 2]),))
        for index in range(40)
    ]
    with processes.quick(given.config) as (first,):
        if at_once:
            monkeypatch.setattr(group_terms, "unlike", _alike_at_first(group_terms.unlike))
        second = processes.BridgeProcess(newer, f"{given.name}-newer") if not at_once else None
        with ThreadPoolExecutor(1) as pool:
            stop = threading.Event()
            told: list[str] = []
            running = pool.submit(_run_until, stop, newer, told) if second is None else None
            try:
                if second is not None:
                    second.start()
                    wait_for(lambda: "filter_values" in second.log(), second.log)
                else:
                    wait_for(lambda: any("filter_values" in name for name in told), lambda: str(told[-3:]))
                wait_for(
                    lambda: first.state.ready and len(first.state.partitions) == 2,
                    lambda: str(first.state.reasons),
                )
                given.send(sent[:20], 0)
                given.send(sent[20:], 1)
                got = given.settled([20, 20])
                reasons = told[-1] if second is None else str(second.health()[1])
            finally:
                stop.set()
                if running is not None:
                    running.result(60)
                elif second is not None and not second.running:
                    second.destroy()
    if second is not None:
        try:
            second.wait_ready()
            given.send([Sent(b"late", None, b"99", (("land", b"be"),))])
            late = given.settled([21, 20])
            assert second.stop() == 0
        finally:
            second.destroy()
        assert sorted(numbers(late)) == [*range(0, 40, 2), 99]

    assert sorted(numbers(got)) == list(range(0, 40, 2))
    assert "filter_values = [" in reasons
    assert "starts when the last one has stopped" in reasons


def _alike_at_first(unlike: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
    """Let both look before either has joined."""
    asked = 0

    async def looked(*arguments: Any) -> str:
        nonlocal asked
        asked += 1
        return "" if asked == 1 else await unlike(*arguments)

    return looked


def _run_until(stop: threading.Event, config: Path, told: list[str]) -> None:
    async def run() -> None:
        async with processes.in_this_process(config, first=1) as (own,):
            while not stop.is_set():
                told.append(str(own.state.reasons))
                await asyncio.sleep(0.05)

    asyncio.run(run())

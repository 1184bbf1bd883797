"""What may happen to a bridge's source, target and processes; what passes at the target is each message once, in order."""

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support import bridges, kafka, malformed
from tests.support.bridges import PARTITIONS, Set, Two, messages, numbers, prepare
from tests.support.kafka import Sent
from tests.support.linked import LinkedBroker, linked_broker
from tests.support.worker import run_verb, wait_for


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedBroker]:
    """The target, which the tests' bridges reach over a link."""
    with linked_broker(tmp_path_factory.mktemp("target"), links=1, properties=bridges.FOREVER) as target:
        yield target


@pytest.fixture
def two(broker: object, bootstrap: str, linked: LinkedBroker) -> Iterator[Two]:
    """The run's broker is the source."""
    linked.heal()
    yield Two(bootstrap, linked.bootstrap)
    linked.heal()


def _passed(given: Set, count: int) -> None:
    passed = bridges.passed(given.got())
    assert sorted(numbers(passed)) == list(range(count))
    for partition in range(PARTITIONS):
        found = numbers(each for each in passed if each.partition == partition)
        assert found == sorted(found)


def test_link_cut_again_and_again(two: Two, linked: LinkedBroker, tmp_path: Path) -> None:
    """The link to the target breaks under traffic: all arrives, in order, and passes once."""
    given = prepare(two, tmp_path, target=linked.links[0].bootstrap, window=200)
    with bridges.bridge(given.config, given.name):
        for first in range(0, 2_000, 500):
            given.send(messages(500, first=first))
            linked.links[0].cut()
            time.sleep(0.3)  # how long it is away, not a wait for anything
            linked.links[0].open()
        given.settled([2_000])

    _passed(given, 2_000)


def test_answers_are_lost(two: Two, linked: LinkedBroker, tmp_path: Path) -> None:
    """The target gets what is sent and its answers are lost, past every time-out: sent again, known."""
    given = prepare(two, tmp_path, target=linked.links[0].bootstrap, window=200)
    with bridges.bridge(given.config, given.name) as process:
        given.send(messages(100))
        given.settled([100])
        linked.links[0].lose_answers()
        given.send(messages(300, first=100))
        wait_for(lambda: process.health()[0] == 503, process.log, 60.0)
        _, report = process.health()
        assert "target: " in str(report["bridges"][given.name]["reasons"]["all"])
        shown = bridges.status(given.config, code=1)["bridges"][given.name]["partitions"][0]
        assert "target: " in shown["error"]
        assert shown["lag"] == 300
        linked.links[0].open()
        given.settled([400])
        process.wait_ready()
        shown = bridges.status(given.config, code=0)["bridges"][given.name]["partitions"][0]
        assert (shown["error"], shown["lag"]) == (None, 0)
        assert shown["retried"] > 0

    _passed(given, 400)
    assert len(given.got()) > 400


def test_stopped_with_messages_in_hand(two: Two, linked: LinkedBroker, tmp_path: Path) -> None:
    """B4: stopped before a cycle goes out; another takes over and forwards all; woken, what it had in hand is known."""
    given = prepare(two, tmp_path, window=100)
    given.send(messages(2_000))
    first = bridges.BridgeProcess(given.config, "first")
    try:
        first.start(RINGFENCE_FAILPOINTS=f"before-send:{given.name}=stop@5")
        wait_for(lambda: first.frozen, first.log)
        with bridges.bridge(given.config, "second"):
            given.settled([2_000])
            before = len(given.got())
            first.signal(signal.SIGCONT)
            wait_for(lambda: len(given.got()) > before, first.log)
            assert first.stop() == 0
            given.settled([2_000])
    finally:
        first.destroy()

    _passed(given, 2_000)


def test_partitions_change_hands(two: Two, tmp_path: Path) -> None:
    """Who gives partitions away waits for what is under way: nothing is sent twice when a second process comes and goes."""
    given = prepare(two, tmp_path, source_partitions=4, window=300)
    with bridges.bridge(given.config, "first"):
        for turn in range(3):
            for partition in range(4):
                given.send(messages(500, first=turn * 2_000 + partition * 500), partition)
            with bridges.bridge(given.config, "second") as second:
                assert second.stop() == 0
        got = given.settled([1_500] * 4)

    assert sorted(numbers(got)) == list(range(6_000))


def test_target_topic_missing_and_made(two: Two, tmp_path: Path) -> None:
    """Missing at the start: one line that says what to do, exit code 2."""
    given = prepare(two, tmp_path)
    kafka.delete_topics(two.target, [given.address])
    done = run_verb("bridge", "--config", str(given.config), check=False)

    assert done.returncode == 2
    (line,) = [each for each in done.stderr.splitlines() if each.startswith("ringfence:")]
    assert f"{given.address} does not exist" in line
    assert "run 'ringfence topics create' there" in line


def test_source_topic_missing(two: Two, tmp_path: Path) -> None:
    """The same of the source."""
    given = prepare(two, tmp_path)
    kafka.delete_topics(two.source, [given.topic])
    done = run_verb("bridge", "--config", str(given.config), check=False)

    assert done.returncode == 2
    assert f"{given.topic} does not exist" in done.stderr


def test_names(two: Two, tmp_path: Path) -> None:
    """An unknown name is told with those that there are; without bridges it says so."""
    given = prepare(two, tmp_path)
    done = run_verb("bridge", "other", "--config", str(given.config), check=False)

    assert (done.returncode, done.stderr) == (
        2, f"ringfence: unknown bridge 'other': the configuration has {given.name}\n",
    )  # fmt: skip


def test_target_away_at_start(two: Two, linked: LinkedBroker, tmp_path: Path) -> None:
    """It is no error: messages wait, health names it; when it is there they are forwarded."""
    given = prepare(two, tmp_path, target=linked.links[0].bootstrap)
    given.send(messages(50))
    linked.links[0].cut()
    process = bridges.BridgeProcess(given.config, given.name)
    try:
        process.start()
        wait_for(lambda: "all" in str(process.health()[1]), process.log)
        wait_for(lambda: "target: no broker answers" in str(process.health()[1]), process.log)
        linked.heal()
        given.settled([50])
        process.wait_ready()
    finally:
        process.destroy()

    _passed(given, 50)


def test_source_recreated_under_it(two: Two, tmp_path: Path) -> None:
    """B11: the source is deleted and created again: its messages are others, and all are forwarded, also where it began at the latest."""
    given = prepare(two, tmp_path, start="latest")
    with bridges.bridge(given.config, given.name):
        given.send(messages(100))
        given.settled([100])
        kafka.recreate_topic(two.source, given.topic)
        given.send(messages(40, first=100))
        bridges.wait_values(two.target, given.address, 140, PARTITIONS)
        got = given.settled([40])

    assert sorted(numbers(bridges.passed(got))) == list(range(140))
    assert len({bridges.hop_of(each).source.topic_id for each in got}) == 2


def test_latest(two: Two, tmp_path: Path) -> None:
    """It begins with what comes from then on, and that is written down at once."""
    given = prepare(two, tmp_path, start="latest")
    given.send(messages(30))
    with bridges.bridge(given.config, given.name):
        given.settled([30])
    given.send(messages(5, first=30))
    with bridges.bridge(given.config, given.name):
        got = given.settled([35])

    assert sorted(numbers(got)) == list(range(30, 35))


def test_partition_added(two: Two, tmp_path: Path) -> None:
    """Under 'latest' too a partition that is added is forwarded from its beginning."""
    given = prepare(two, tmp_path, start="latest")
    with bridges.bridge(given.config, given.name):
        given.settled([0])
    kafka.grow_topic(two.source, given.topic, 2)
    given.send(messages(20), 1)
    with bridges.bridge(given.config, given.name):
        got = given.settled([0, 20])

    assert sorted(numbers(got)) == list(range(20))


def test_gap(two: Two, tmp_path: Path) -> None:
    """B11: retention took what was not forwarded yet: it says so, counts it, and goes on."""
    given = prepare(two, tmp_path)
    given.send(messages(50))
    with bridges.bridge(given.config, given.name):
        given.settled([50])
    given.send(messages(50, first=50))
    _delete_records(two.source, given.topic, 80)
    with bridges.bridge(given.config, given.name) as process:
        got = given.settled([100])
        assert "GAP: retention deleted 30 offsets" in process.log()
        assert (
            f'ringfence_bridge_gap_records_total{{bridge="{given.name}",partition="0"}} 30.0'
            in process.page("/metrics")
        )

    assert sorted(numbers(got)) == [*range(50), *range(80, 100)]
    assert bridges.status(given.config, code=0)["bridges"][given.name]["partitions"][0]["gap_records"] == 30


def _delete_records(bootstrap: str, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        future.result(kafka.WAIT_S)


def test_offsets_deleted(two: Two, tmp_path: Path) -> None:
    """B11: without its offsets it begins at the start, and what comes again is known."""
    given = prepare(two, tmp_path)
    given.send(messages(60))
    with bridges.bridge(given.config, given.name):
        given.settled([60])
    admin = AdminClient({"bootstrap.servers": two.source})
    for future in admin.delete_consumer_groups([given.group]).values():
        future.result(kafka.WAIT_S)
    given.send(messages(10, first=60))
    with bridges.bridge(given.config, given.name):
        got = given.settled([70])

    assert len(got) == 130
    _passed(given, 70)


def test_offset_beyond_the_end(two: Two, tmp_path: Path) -> None:
    """The log ends before what was confirmed: it stops, says what to do, and other partitions go on; set back, it goes on."""
    given = prepare(two, tmp_path, source_partitions=2)
    given.send(messages(10), 0)
    kafka.commit(two.source, given.group, given.topic, 50)
    process = bridges.BridgeProcess(given.config, given.name)
    try:
        process.start()
        wait_for(lambda: "which ends at 10" in str(process.health()[1]), process.log)
        assert process.health()[0] == 503
        given.send(messages(10, first=10), 1)
        wait_for(lambda: kafka.committed(two.source, given.group, given.topic, 2)[1] == 10, process.log)
        given.send(messages(90, first=100), 0)  # beyond where it stands: still not believed
        assert process.stop() == 0
    finally:
        process.destroy()
    assert sorted(numbers(given.got())) == list(range(10, 20))


def test_too_large(two: Two, tmp_path: Path) -> None:
    """B12: what the target does not take goes to quarantine there, by size and digest where it must; the rest flows."""
    given = prepare(two, tmp_path, settings={"max.message.bytes": "20000"})
    given.send([*messages(5), Sent(b"large", b"g1", b"x" * 50_000), *messages(5, first=5)])
    with bridges.bridge(given.config, given.name) as process:
        got = given.settled([11])
        assert (
            f'ringfence_bridge_quarantined_total{{bridge="{given.name}",partition="0"}} 1.0'
            in process.page("/metrics")
        )
    (kept,) = kafka.read_all(two.target, f"{given.name}.quarantine", 1)

    assert sorted(numbers(got)) == list(range(10))
    assert (kept.key, kept.value, kept.source) == (b"g1", b"x" * 50_000, f"{given.topic}/0/5")
    assert b"takes max.message.bytes = 20000" in (dict(kept.headers)["_RF_REASON"] or b"")


def test_refused_by_the_broker(two: Two, tmp_path: Path) -> None:
    """What only the broker knows, such as a timestamp, is found among hundreds and set aside."""
    given = prepare(two, tmp_path, settings={"message.timestamp.before.max.ms": "3600000"})
    now = round(time.time() * 1000)
    records = [Sent(b"%d" % each, b"g", b"%d" % each, timestamp=now) for each in range(300)]
    records[137] = records[137]._replace(timestamp=1_600_000_000_000)
    given.send(records)
    with bridges.bridge(given.config, given.name) as process:
        got = given.settled([300])
        process.wait_ready()
    (kept,) = kafka.read_all(two.target, f"{given.name}.quarantine", 1)

    assert numbers(bridges.passed(got)) == [each for each in range(300) if each != 137]
    assert kept.source == f"{given.topic}/0/137"


def test_header_name_that_is_not_utf_8(two: Two, tmp_path: Path) -> None:
    """B12: it cannot be written as it is: to quarantine, with the reason."""
    given = prepare(two, tmp_path)
    given.send(messages(3))
    asyncio.run(malformed.send(two.source, given.topic, [malformed.MALFORMED]))
    given.send(messages(3, first=3))
    with bridges.bridge(given.config, given.name):
        got = given.settled([7])
    (kept,) = kafka.read_all(two.target, f"{given.name}.quarantine", 1)

    assert sorted(numbers(got)) == list(range(6))
    assert b"is not UTF-8" in (dict(kept.headers)["_RF_REASON"] or b"")


def test_without_detection(two: Two, linked: LinkedBroker, tmp_path: Path) -> None:
    """B9: no hops; under a link that breaks nothing is lost."""
    given = prepare(
        two, tmp_path, target=linked.links[0].bootstrap, use_duplicate_detection=False, window=100
    )
    with bridges.bridge(given.config, given.name):
        for first in range(0, 900, 300):
            given.send(messages(300, first=first))
            linked.links[0].cut()
            time.sleep(0.3)  # how long it is away, not a wait for anything
            linked.links[0].open()
        got = given.settled([900])

    assert set(numbers(got)) == set(range(900))
    assert not [each for each in got if bridges.HOP in dict(each.headers)]


def test_filter_and_headers(two: Two, tmp_path: Path) -> None:
    """Only what has one of the values is forwarded, with what is to be added; the rest is confirmed and counted."""
    given = prepare(
        two, tmp_path, filter_header="land", filter_values=["fr", "be"], add_headers={"by": "bridge"}
    )
    lands = [b"fr", b"de", b"be", None]
    given.send(
        [Sent(None, b"g", b"%d" % each, (("land", lands[each % 4]), ("by", b"me"))) for each in range(40)]
    )
    with bridges.bridge(given.config, given.name):
        got = given.settled([40])
    (row,) = bridges.status(given.config, code=0)["bridges"][given.name]["partitions"]

    assert numbers(got) == [each for each in range(40) if each % 2 == 0]
    assert {tuple(value for name, value in each.headers if name == "by") for each in got} == {(b"bridge",)}
    assert (row["filtered"], row["forwarded"], row["lag"]) == (20, 20, 0)


def test_killed_is_seen(two: Two, tmp_path: Path) -> None:
    """Messages wait and nobody forwards them: status says so, for people too, and its exit code is 1."""
    given = prepare(two, tmp_path)
    with bridges.bridge(given.config, given.name) as process:
        given.send(messages(10))
        given.settled([10])
        assert process.stop() == 0
    assert bridges.status(given.config, code=0)["bridges"][given.name]["partitions"][0]["member"] is None
    given.send(messages(7, first=10))
    done = run_verb("bridge", "status", "--config", str(given.config), check=False)

    assert done.returncode == 1
    assert "NOBODY forwards it, and messages wait: run 'ringfence bridge'" in done.stdout
    assert bridges.status(given.config)["bridges"][given.name]["partitions"][0]["lag"] == 7


def test_drain(two: Two, tmp_path: Path) -> None:
    """--drain forwards what is there, stops exactly there, and ends."""
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

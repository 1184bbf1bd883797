"""A bridge between two clusters: what comes out, and what does not come out twice. The target's input is judged by the rule of hops."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.embedded.broker import EmbeddedBroker
from tests.support import bridges, kafka
from tests.support.bridges import PARTITIONS, Two, hop_of, messages, prepare


@pytest.fixture(scope="module")
def two(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """The run's broker is the source."""
    with EmbeddedBroker(tmp_path_factory.mktemp("target"), properties=bridges.FOREVER) as target:
        yield Two(broker.bootstrap_servers, target.bootstrap_servers)


def test_forwards_as_it_is(two: Two, tmp_path: Path) -> None:
    """Key, value, headers and timestamp stay; each record names its hop; each group is in one partition, in order."""
    given = prepare(two, tmp_path, source_partitions=2)
    sent = messages(500)
    given.send(sent[:250], 0)
    given.send(sent[250:], 1)
    with bridges.bridge(given.config, given.name) as process:
        got = given.settled([250, 250])
        assert process.stop() == 0

    assert sorted((each.key, each.value, each.id, each.timestamp) for each in got) == sorted(
        (each.key, each.value, each.id, each.timestamp) for each in sent
    )
    by_group: dict[tuple[Any, int], list[int]] = {}
    for each in got:
        by_group.setdefault((each.key, hop_of(each).source.partition), []).append(int(each.value or b""))
        assert hop_of(each).source.bridge == given.name
        assert hop_of(each).offset == int(each.value or b"") % 250
    assert all(each == sorted(each) for each in by_group.values())
    homes = {each.key: each.partition for each in got}
    assert all(homes[each.key] == each.partition for each in got)


def test_offset_set_back(two: Two, tmp_path: Path) -> None:
    """B1: 100 of 1,000 are forwarded, the group's offset is set to 0: exactly the other 900 pass, in order."""
    given = prepare(two, tmp_path)
    sent = messages(1_000)
    given.send(sent[:100])
    with bridges.bridge(given.config, given.name) as process:
        given.settled([100])
        assert process.stop() == 0
    kafka.commit(two.source, given.group, given.topic, 0)
    given.send(sent[100:])
    with bridges.bridge(given.config, given.name) as process:
        got = given.settled([1_000])

    assert len(got) == 1_100
    passed = bridges.passed(got)
    assert sorted(int(each.value or b"") for each in passed) == list(range(1_000))
    for partition in range(PARTITIONS):
        numbers = [int(each.value or b"") for each in passed if each.partition == partition]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("point", ["before-send", "mid-send", "after-send", "before-commit", "after-commit"])
def test_killed(two: Two, tmp_path: Path, point: str) -> None:
    """B3: killed at each point; the next process goes on, nothing is lost, nothing passes twice."""
    given = prepare(two, tmp_path, window=100)
    given.send(messages(400))
    process = bridges.BridgeProcess(given.config, given.name)
    try:
        process.start(RINGFENCE_FAILPOINTS=f"{point}:{given.name}=kill@2")
        assert process.wait_end() == -signal.SIGKILL
        process.start()
        got = given.settled([400])
    finally:
        process.destroy()

    passed = bridges.passed(got)
    assert sorted(int(each.value or b"") for each in passed) == list(range(400))


def test_rest_behind_markers(two: Two, tmp_path: Path) -> None:
    """Aborted transactions and markers at the end leave no lag; what was aborted is not forwarded."""
    given = prepare(two, tmp_path)
    kafka.send_in_transaction(two.source, given.topic, messages(5), commit=True)
    kafka.send_in_transaction(two.source, given.topic, messages(5, first=5), commit=False)
    with bridges.bridge(given.config, given.name):
        got = given.settled(kafka.end_offsets(two.source, given.topic))

    assert [each.value for each in sorted(got, key=lambda each: int(each.value or b""))] == [
        b"%d" % each for each in range(5)
    ]

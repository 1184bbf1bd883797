"""Bridges with workers at their ends: the target's lane gives each message of the source once."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.embedded.broker import EmbeddedBroker
from tests.support import kafka
from tests.support.bridges import processes
from tests.support.bridges.processes import BridgeProcess, Two, messages, numbers
from tests.support.kafka import Got, Sent
from tests.support.worker import configure, run_verb, table, wait_for, worker

PARTITIONS = 2
MORE = 4
"""Partitions of the address whose bridge has the wrong partitioner."""


@pytest.fixture(scope="module")
def two(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """Workers at both clusters; the source is the test run's broker. The addresses ``there`` and ``back`` make a circle."""
    with EmbeddedBroker(tmp_path_factory.mktemp("target"), properties=processes.FOREVER) as target:
        found = Two(broker.bootstrap_servers, target.bootstrap_servers)
        extras: dict[str, dict[str, Any]] = {
            "plain": {}, "check": {}, "drop": {}, "forward": {}, "twice": {}, "wrong": {"partitions": MORE},
            "one-lane": {"partitions": MORE, "lanes": 1, "duplicates": "divert"},
        }  # fmt: skip
        addresses: list[dict[str, Any]] = [
            {"name": f"to-worker-{name}", "partitions": PARTITIONS, **extra} for name, extra in extras.items()
        ]
        here = configure(tmp_path_factory.mktemp("here"), found.source, "to-worker", addresses)
        there = configure(tmp_path_factory.mktemp("there"), found.target, "to-worker", addresses)
        with worker(here, "here"), worker(there, "there"):
            yield found


def _bridge(folder: Path, source: str, target: str, name: str, topic: str, address: str, **keys: Any) -> Path:
    folder.mkdir(exist_ok=True)
    return processes.configure(
        folder, source, target, app_id="to-worker", name=name, source_topic=topic, address=address, **keys
    )


def _group(name: str) -> str:
    return f"to-worker-bridge-{name}"


def _accepted(bootstrap: str, address: str, count: int, partitions: int = PARTITIONS) -> list[Got]:
    """Return the accepted records, once all inputs and forwarded records are processed."""
    waiting = [address, f"to-worker-{address}-forward"]
    wait_for(
        lambda: (
            all(kafka.consumed(bootstrap, "to-worker", name, partitions) for name in waiting)
            and len(kafka.read_all(bootstrap, f"{address}.accepted", partitions)) >= count
        ),
        lambda: (
            f"{len(kafka.read_all(bootstrap, f'{address}.accepted', partitions))} of {count} in {address}"
        ),
    )
    return kafka.read_all(bootstrap, f"{address}.accepted", partitions)


def _require_exact(got: list[Got], count: int) -> None:
    assert sorted(numbers(got)) == list(range(count))
    for group in {item.key for item in got}:
        found = numbers(item for item in got if item.key == group)
        assert found == sorted(found)


def test_offset_set_back(two: Two, tmp_path: Path) -> None:
    """B1, B7: exactly the other 900 messages follow when the group's offset is set to 0 after 100 of 1,000."""
    name, topic, target = "set-back", "set-back-source", "to-worker-plain"
    kafka.create_topics(two.source, {topic: (1, {})})
    sent = [message._replace(id=None) for message in messages(1_000)]
    kafka.send(two.source, topic, sent[:100])
    config = _bridge(tmp_path, two.source, two.target, name, topic, target)
    with processes.quick(config):
        processes.confirmed_at(two.source, _group(name), topic, [100])
    kafka.commit(two.source, _group(name), topic, 0)
    kafka.send(two.source, topic, sent[100:])
    with processes.quick(config):
        processes.confirmed_at(two.source, _group(name), topic, [1_000])

    assert len(kafka.read_all(two.target, target, PARTITIONS)) == 1_100
    _require_exact(_accepted(two.target, target, 1_000), 1_000)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"user_ids": "check"}, [0, 0, 20]),
        ({"user_ids": "check", "returns": "drop"}, [20, 20, 0]),
        ({"user_ids": "ignore", "returns": "forward"}, [20, 0, 20]),
    ],
    ids=["check", "drop", "forward"],
)
def test_there_and_back(two: Two, tmp_path: Path, keys: dict[str, str], told: list[int]) -> None:
    """B6: ignored IDs pass again, as often as they come, from here to there and back; IDs that count are duplicates here.

    With ``returns``, the log reports the returned messages, or nothing comes back.
    """
    name = keys.get("returns", keys["user_ids"])
    address = f"to-worker-{name}"
    out = _bridge(
        tmp_path / "out", two.source, two.target, f"out-{name}", f"{address}.accepted", address, **keys
    )
    topic = f"back-of-{name}"
    kafka.create_topics(two.source, {topic: (1, {})})
    back = _bridge(
        tmp_path / "back", two.target, two.source, f"back-{name}", f"{address}.accepted", address,
        target_topic=address, filter_header="turn", filter_values=["1"], **keys,
    )  # fmt: skip
    with processes.quick(out):
        kafka.send(
            two.source,
            address,
            [
                Sent(b"id-%d" % index, kafka.at_home(0, PARTITIONS), b"%d" % index, (("turn", b"1"),))
                for index in range(20)
            ],
        )
        assert sorted(numbers(_accepted(two.target, address, 20))) == list(range(20))
    with processes.quick(back):
        ends = kafka.data_ends(two.target, f"{address}.accepted", PARTITIONS)
        wait_for(
            lambda: all(
                at >= end
                for at, end in zip(
                    kafka.committed(two.target, _group(f"back-{name}"), f"{address}.accepted", PARTITIONS),
                    ends,
                    strict=True,
                )
            ),
            lambda: str(ends),
        )
    expected = 20 if keys["user_ids"] == "check" else 40
    got = _accepted(two.source, address, expected)

    assert len(got) == expected
    assert {item.id for item in got} == {b"id-%d" % index for index in range(20)}
    rows = processes.status(back)["bridges"][f"back-{name}"]["partitions"]
    assert [sum(row[key] for row in rows) for key in ("returned", "filtered", "forwarded")] == told
    shown = run_verb("bridge", "status", "--config", str(back), check=False).stdout
    assert ("bridges form a cycle" in shown) == ("returns" in keys)


@pytest.mark.long
def test_wrong_partitioner(two: Two, tmp_path: Path) -> None:
    """B10: nothing is lost or doubled when lanes forward most of a bridge's records, and it is killed with messages on their way."""
    name, address, count = "wrong", "to-worker-wrong", 3_000
    topic = f"{name}-source"
    kafka.create_topics(two.source, {topic: (2, {})})
    sent = [message._replace(id=None) for message in messages(count, groups=40)]
    config = _bridge(tmp_path, two.source, two.target, name, topic, address, window=200)
    config.write_text(config.read_text() + table("[[addresses]]", {"name": address, "partitioner": "crc32"}))
    for partition in range(2):
        kafka.send(two.source, topic, sent[partition::2], partition)
    process = BridgeProcess(config, name)
    try:
        process.start(RINGFENCE_FAILPOINTS=f"mid-send:{name}=kill@20")
        assert process.wait_end() == -signal.SIGKILL, process.log()
    finally:
        process.destroy()
    with processes.quick(config):
        processes.confirmed_at(two.source, _group(name), topic, [count // 2] * 2)
    got = _accepted(two.target, address, count, MORE)
    arrived = kafka.read_all(two.target, address, MORE)
    forwarded = kafka.read_all(two.target, f"to-worker-{address}-forward", MORE)

    assert len(arrived) > count
    assert len(forwarded) > len(arrived) / 2
    _require_exact(got, count)

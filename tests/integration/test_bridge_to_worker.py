"""Bridges with workers at their ends: what comes out of the target's lane is what the source has, once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.embedded.broker import EmbeddedBroker
from tests.support import bridges, kafka
from tests.support.bridges import Two, messages, numbers
from tests.support.envelopes import envelope, part
from tests.support.kafka import Got, Sent
from tests.support.worker import configure, wait_for, worker

PARTITIONS = 2
SIZES = {"plain": 2_000, "off": 0}


@pytest.fixture(scope="module")
def two(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """Workers at both; the source is the run's broker. The addresses ``there`` and ``back`` make a circle."""
    with EmbeddedBroker(tmp_path_factory.mktemp("target"), properties=bridges.FOREVER) as target:
        found = Two(broker.bootstrap_servers, target.bootstrap_servers)
        extras: dict[str, dict[str, Any]] = {
            "plain": {}, "off": {"id_cache_size": 0}, "check": {}, "ignore": {}, "parts": {"group_header": "G"},
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
    return bridges.configure(
        folder, source, target, app_id="to-worker", name=name, source_topic=topic, address=address, **keys
    )


def _group(name: str) -> str:
    return f"to-worker-bridge-{name}"


def _accepted(bootstrap: str, address: str, count: int) -> list[Got]:
    """What the lanes have accepted, once their input is processed."""
    wait_for(
        lambda: (
            kafka.consumed(bootstrap, "to-worker", address, PARTITIONS)
            and len(kafka.read_all(bootstrap, f"{address}.accepted", PARTITIONS)) >= count
        ),
        lambda: (
            f"{len(kafka.read_all(bootstrap, f'{address}.accepted', PARTITIONS))} of {count} in {address}"
        ),
    )
    return kafka.read_all(bootstrap, f"{address}.accepted", PARTITIONS)


@pytest.mark.parametrize("address", SIZES)
def test_offset_set_back(two: Two, tmp_path: Path, address: str) -> None:
    """B1, B7, B8: 100 of 1,000 are forwarded, the group's offset is set to 0: exactly the others follow; with detection off all pass again."""
    name, topic, target = f"back-{address}", f"back-source-{address}", f"to-worker-{address}"
    kafka.create_topics(two.source, {topic: (1, {})})
    sent = [each._replace(id=None) for each in messages(1_000)]
    kafka.send(two.source, topic, sent[:100])
    config = _bridge(tmp_path, two.source, two.target, name, topic, target)
    with bridges.bridge(config, name):
        bridges.confirmed_at(two.source, _group(name), topic, [100])
    kafka.commit(two.source, _group(name), topic, 0)
    kafka.send(two.source, topic, sent[100:])
    with bridges.bridge(config, name):
        bridges.confirmed_at(two.source, _group(name), topic, [1_000])
    got = _accepted(two.target, target, 1_000 if SIZES[address] else 1_100)

    again = [] if SIZES[address] else range(100)
    assert sorted(numbers(got)) == sorted([*range(1_000), *again])
    if SIZES[address]:
        for each in range(10):
            found = [number for number in numbers(got) if number % 10 == each]
            assert found == sorted(found)


@pytest.mark.parametrize("user_ids", ["check", "ignore"])
def test_there_and_back(two: Two, tmp_path: Path, user_ids: str) -> None:
    """B6: from here to there and back. IDs that are not looked at pass again, as often as they come; those that are, are duplicates here."""
    address = f"to-worker-{user_ids}"
    out = _bridge(
        tmp_path / "out",
        two.source,
        two.target,
        f"out-{user_ids}",
        f"{address}.accepted",
        address,
        user_ids=user_ids,
    )
    topic = f"back-of-{user_ids}"
    kafka.create_topics(two.source, {topic: (1, {})})
    back = _bridge(
        tmp_path / "back", two.target, two.source, f"back-{user_ids}", f"{address}.accepted", address,
        user_ids=user_ids, target_topic=address, filter_header="turn", filter_values=["1"],
    )  # fmt: skip
    with bridges.bridge(out, "out"):
        kafka.send(
            two.source,
            address,
            [
                Sent(b"id-%d" % each, kafka.at_home(0, PARTITIONS), b"%d" % each, (("turn", b"1"),))
                for each in range(20)
            ],
        )
        assert sorted(numbers(_accepted(two.target, address, 20))) == list(range(20))
    with bridges.bridge(back, "back"):
        ends = kafka.data_ends(two.target, f"{address}.accepted", PARTITIONS)
        wait_for(
            lambda: all(
                at >= end
                for at, end in zip(
                    kafka.committed(
                        two.target, _group(f"back-{user_ids}"), f"{address}.accepted", PARTITIONS
                    ),
                    ends,
                    strict=True,
                )
            ),
            lambda: str(ends),
        )
    expected = 20 if user_ids == "check" else 40
    got = _accepted(two.source, address, expected)

    assert len(got) == expected
    assert {each.id for each in got} == {b"id-%d" % each for each in range(20)}


def test_envelopes(two: Two, tmp_path: Path) -> None:
    """B14: through the input's bridge transactions stay whole, set back or not."""
    name, topic, address = "envelopes", "envelopes-source", "to-worker-parts"
    kafka.create_topics(two.source, {topic: (1, {})})
    sent = [
        envelope(part(value=f"{each}a"), part(value=f"{each}b"), key=b"k%d" % (each % 5))
        for each in range(30)
    ]
    kafka.send(two.source, topic, sent[:20])
    config = _bridge(tmp_path, two.source, two.target, name, topic, address)
    with bridges.bridge(config, name):
        bridges.confirmed_at(two.source, _group(name), topic, [20])
    kafka.commit(two.source, _group(name), topic, 5)
    kafka.send(two.source, topic, sent[20:])
    with bridges.bridge(config, name):
        bridges.confirmed_at(two.source, _group(name), topic, [30])
    got = _accepted(two.target, address, 60)

    assert sorted(each.value or b"" for each in got) == sorted(
        f"{each}{half}".encode() for each in range(30) for half in "ab"
    )
    assert {dict(each.headers)["_RF_TX_PART"] for each in got} == {b"1/2", b"2/2"}

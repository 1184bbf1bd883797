"""Bridges with workers at their ends: the target's lane gives each message of the source once."""

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.process import failpoints
from tests.support import kafka
from tests.support.bridges import processes
from tests.support.bridges.processes import BridgeProcess, Two, messages, numbers
from tests.support.kafka import Got, Sent
from tests.support.records.envelopes import envelope, part
from tests.support.worker import configure, run_verb, wait_for, worker

PARTITIONS = 2
MORE = 4
"""Partitions of the address whose bridge has the wrong partitioner."""
BOTH_LIMIT_S = 20.0
SIZES = {"plain": 2_000, "off": 0}


@pytest.fixture(scope="module")
def two(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """Workers at both clusters; the source is the test run's broker. The addresses ``there`` and ``back`` make a circle."""
    with EmbeddedBroker(tmp_path_factory.mktemp("target"), properties=processes.FOREVER) as target:
        found = Two(broker.bootstrap_servers, target.bootstrap_servers)
        extras: dict[str, dict[str, Any]] = {
            "plain": {}, "off": {"id_cache_size": 0}, "check": {}, "ignore": {}, "drop": {}, "forward": {}, "parts": {"group_header": "G"},
            "twice": {}, "set-back": {"partitions": MORE}, "killed": {"partitions": MORE},
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


@pytest.mark.parametrize("address", SIZES)
def test_offset_set_back(two: Two, tmp_path: Path, address: str) -> None:
    """B1, B7, B8: exactly the other 900 messages follow when the group's offset is set to 0 after 100 of 1,000.

    With detection off all pass again.
    """
    name, topic, target = f"back-{address}", f"back-source-{address}", f"to-worker-{address}"
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
    got = _accepted(two.target, target, 1_000 if SIZES[address] else 1_100)

    again = [] if SIZES[address] else range(100)
    assert sorted(numbers(got)) == sorted([*range(1_000), *again])
    if SIZES[address]:
        _require_exact(got, 1_000)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"user_ids": "check"}, [0, 0, 20]),
        ({"user_ids": "ignore"}, [0, 0, 20]),
        ({"user_ids": "check", "returns": "drop"}, [20, 20, 0]),
        ({"user_ids": "ignore", "returns": "forward"}, [20, 0, 20]),
    ],
    ids=["check", "ignore", "drop", "forward"],
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


def test_envelopes(two: Two, tmp_path: Path) -> None:
    """B14: transactions stay whole through the input's bridge, set back or not."""
    name, topic, address = "envelopes", "envelopes-source", "to-worker-parts"
    kafka.create_topics(two.source, {topic: (1, {})})
    sent = [
        envelope(part(value=f"{index}a"), part(value=f"{index}b"), key=b"k%d" % (index % 5))
        for index in range(30)
    ]
    kafka.send(two.source, topic, sent[:20])
    config = _bridge(tmp_path, two.source, two.target, name, topic, address)
    with processes.quick(config):
        processes.confirmed_at(two.source, _group(name), topic, [20])
    kafka.commit(two.source, _group(name), topic, 5)
    kafka.send(two.source, topic, sent[20:])
    with processes.quick(config):
        processes.confirmed_at(two.source, _group(name), topic, [30])
    got = _accepted(two.target, address, 60)

    assert sorted(item.value or b"" for item in got) == sorted(
        f"{index}{half}".encode() for index in range(30) for half in "ab"
    )
    assert {dict(item.headers)["_RF_TX_PART"] for item in got} == {b"1/2", b"2/2"}


class Both:
    """A fail point where each of two waits for the other."""

    def __init__(self) -> None:
        self.met = 0
        self._barrier = asyncio.Barrier(2)

    async def __call__(self, point: str, name: str) -> None:
        async with asyncio.timeout(BOTH_LIMIT_S):
            await self._barrier.wait()
        self.met += 1


async def test_two_at_one_instant(two: Two, tmp_path: Path) -> None:
    """B2: each message passes once when two instances of one bridge hold it together, and wait again until both have sent it."""
    name, topic, address, count = "twice", "twice-source", "to-worker-twice", 60
    kafka.create_topics(two.source, {topic: (1, {})})
    kafka.send(two.source, topic, [message._replace(id=None) for message in messages(count)])
    configs = []
    for app in ("one", "other"):  # two groups, so that both are given the partition
        (tmp_path / app).mkdir()
        configs.append(
            processes.configure(
                tmp_path / app, two.source, two.target, app_id=app, name=name, source_topic=topic, address=address,
                window=2,
            )
        )  # fmt: skip
    points = {point: Both() for point in ("before-send", "mid-send")}
    remove = [failpoints.install(point, name, both) for point, both in points.items()]
    try:
        async with processes.in_this_process(*configs):
            for app in ("one", "other"):
                await asyncio.to_thread(
                    processes.confirmed_at, two.source, f"{app}-bridge-{name}", topic, [count]
                )
    finally:
        for item in remove:
            item()
    got = await asyncio.to_thread(_accepted, two.target, address, count)
    arrived = numbers(kafka.read_all(two.target, address, PARTITIONS))

    assert {point: both.met for point, both in points.items()} == dict.fromkeys(points, 2 * count)
    assert Counter(arrived) == dict.fromkeys(range(count), 2)
    _require_exact(got, count)


@pytest.mark.parametrize("how", ["set back", pytest.param("killed", marks=pytest.mark.long)])
def test_wrong_partitioner(two: Two, tmp_path: Path, how: str) -> None:
    """B10: nothing is lost or doubled when lanes forward most of a bridge's records.

    The bridge is killed with messages on their way, or its offset is set back.
    """
    name, address, count = f"wrong-{how.replace(' ', '-')}", f"to-worker-{how.replace(' ', '-')}", 3_000
    topic = f"{name}-source"
    kafka.create_topics(two.source, {topic: (2, {})})
    sent = [message._replace(id=None) for message in messages(count, groups=40)]
    config = _bridge(tmp_path, two.source, two.target, name, topic, address, window=200)
    config.write_text(
        config.read_text() + processes.table("[[addresses]]", {"name": address, "partitioner": "crc32"})
    )
    for partition in range(2):
        kafka.send(two.source, topic, sent[partition::2], partition)
    if how == "killed":
        _kill_on_the_way(config, name)
    else:
        with processes.quick(config):
            processes.confirmed_at(two.source, _group(name), topic, [count // 2] * 2)
        for partition in range(2):
            kafka.commit(two.source, _group(name), topic, 700, partition)
    with processes.quick(config):
        processes.confirmed_at(two.source, _group(name), topic, [count // 2] * 2)
    got = _accepted(two.target, address, count, MORE)
    arrived = kafka.read_all(two.target, address, MORE)
    forwarded = kafka.read_all(two.target, f"to-worker-{address}-forward", MORE)

    assert len(arrived) > count
    assert len(forwarded) > len(arrived) / 2
    _require_exact(got, count)


def _kill_on_the_way(config: Path, name: str, nth: int = 20) -> None:
    process = BridgeProcess(config, name)
    try:
        process.start(RINGFENCE_FAILPOINTS=f"mid-send:{name}=kill@{nth}")
        assert process.wait_end() == -signal.SIGKILL, process.log()
    finally:
        process.destroy()


def test_one_lane(two: Two, tmp_path: Path) -> None:
    """The ring of the address knows a resend under another group in another partition. The bridge is killed while it sends."""
    name, address, count = "one-lane", "to-worker-one-lane", 600
    topic = f"{name}-source"
    kafka.create_topics(two.source, {topic: (2, {})})
    groups = [kafka.at_home(partition, MORE) for partition in range(MORE)]
    for again in range(2):
        sent = [Sent(b"i-%d" % n, groups[(n + again) % MORE], b"%d" % n) for n in range(count)]
        kafka.send(two.source, topic, sent, again)
    config = _bridge(tmp_path, two.source, two.target, name, topic, address, window=200)
    _kill_on_the_way(config, name, nth=3)
    before = kafka.end_offsets(two.target, address, MORE)
    with processes.quick(config):
        processes.confirmed_at(two.source, _group(name), topic, [count, count])
    wait_for(
        lambda: kafka.consumed(two.target, "to-worker", address, MORE),
        lambda: f"{kafka.end_offsets(two.target, address, MORE)}",
    )
    arrived = kafka.read_all(two.target, address, MORE)
    got = kafka.read_all(two.target, f"{address}.accepted", MORE)
    diverted = kafka.read_all(two.target, f"{address}.duplicates", MORE)

    assert 0 < sum(before) < len(arrived)
    assert sorted(numbers(got)) == list(range(count))
    assert len(arrived) == len(got) + len(diverted)
    originals = {item.source: item for item in got}
    named = [(item, original) for item in diverted if (original := dict(item.headers)["_RF_ORIGINAL"])]
    # What the killed bridge had sent is known by its hop, and has no original.
    assert len(named) == count
    for item, original in named:
        first = originals[original.decode()]
        assert (first.value, first.key != item.key) == (item.value, True)
    assert f"to-worker-{address}-forward" not in kafka.topics(two.target)
    came_from = {
        f"{address}/{item.partition}/{item.offset}": (dict(item.headers)[processes.HOP] or b"").split(b"/")[2]
        for item in arrived
    }
    for partition in (b"0", b"1"):
        own = [item for item in got if came_from[item.source] == partition]
        for group in groups:
            found = numbers(item for item in own if item.key == group)
            assert found == sorted(found)

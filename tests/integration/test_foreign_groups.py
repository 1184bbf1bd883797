"""Foreign members of a group: they are named, and their offsets skip nothing."""

import asyncio
from pathlib import Path

import pytest

from ringfence_kafka.errors import ConfigurationError
from tests.support import kafka
from tests.support.bridges import processes
from tests.support.bridges.processes import PARTITIONS, Two, messages, numbers, prepare
from tests.support.consumers.foreign_member import CLIENT_ID, foreigner, wait_until
from tests.support.consumers.in_process import Bench, Recorder, Running, consuming, numbered
from tests.support.kafka import Sent
from tests.support.lanes import until
from tests.support.worker import WorkerProcess, configure, run_verb, worker

NAMED_WITHIN_S = 10.0
OTHERS = (
    rf"has members that are not Ringfence's and assign partitions in another way: client\.id {CLIENT_ID} on host "
    r"127\.0\.0\.1 \(classic protocol\)\. Stop them or give them another group\.id"
)


def _named(text: str) -> bool:
    return f"client.id {CLIENT_ID} on host 127.0.0.1" in text


def _ids(partition: int, begin: int, end: int) -> list[bytes]:
    return [b"%d-%d" % (partition, index) for index in range(begin, end)]


def _with_ids(partition: int, begin: int, end: int) -> list[Sent]:
    return [Sent(id_, kafka.at_home(partition, 2)) for id_ in _ids(partition, begin, end)]


async def _handled(running: Running, bench: Bench, count: int) -> list[tuple[int, int]]:
    """Wait for this count in every partition, and return the finished messages."""
    for partition in range(bench.partitions):
        await bench.until_next(running, count, partition)
    return sorted(running.handler.done)


def _everything(bench: Bench, count: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in range(bench.partitions) for offset in range(count)]


async def test_a_member_of_the_new_protocol_skips_nothing(bootstrap: str) -> None:
    """Handlers get every message once, although a foreign member reads and commits half of the partitions."""
    async with consuming(bootstrap, 4) as bench:
        for partition in range(4):
            bench.send(*numbered(b"g", 10), partition=partition)
        running = await bench.start(Recorder())
        await _handled(running, bench, 10)
        with foreigner(bootstrap, bench.group, bench.accepted) as other:
            async with asyncio.timeout(NAMED_WITHIN_S):
                await until(
                    lambda: bool(running.consumer.group_watch.foreign), lambda: str(running.consumer.faults)
                )
            named = running.consumer.faults
            for partition in range(4):
                await asyncio.to_thread(bench.send, *numbered(b"g", 10), partition=partition)
            await until(lambda: len(other.read) == 20, lambda: str(other.read))
        handled = await _handled(running, bench, 20)
        await until(lambda: running.consumer.ready, lambda: str(running.consumer.faults))

        assert handled == _everything(bench, 20)
        assert [_named(name) for name in named] == [True]


@pytest.mark.parametrize("protocol", ["consumer", "range"])
async def test_a_foreign_consumer_that_came_and_went(bootstrap: str, protocol: str) -> None:
    """Handlers resume at their own progress after a foreign consumer read and committed all while none of ours ran."""
    async with consuming(bootstrap, 2) as bench:
        for partition in range(2):
            bench.send(*numbered(b"g", 5), partition=partition)
        first = await bench.start(Recorder())
        await _handled(first, bench, 5)
        await first.stop()
        for partition in range(2):
            bench.send(*numbered(b"g", 5), partition=partition)
        with foreigner(bootstrap, bench.group, bench.accepted, protocol) as other:
            await until(lambda: len(other.read) == 10, lambda: str(other.read))
        second = await bench.start(Recorder())
        handled = await _handled(second, bench, 10)

        assert handled == [(partition, offset) for partition in range(2) for offset in range(5, 10)]


async def test_a_group_that_is_another_programs(bootstrap: str) -> None:
    """Our consumer names the group's owner and ends if a classic consumer with another assignor is there first."""
    async with consuming(bootstrap) as bench:
        with foreigner(bootstrap, bench.group, bench.accepted, "range") as other:
            await until(lambda: other.assigned == {0}, lambda: str(other.assigned))
            running = bench.launch(Recorder())
            with pytest.raises(ConfigurationError, match=OTHERS):
                await running.finished()


def test_a_foreign_consumer_while_no_worker_ran(bootstrap: str, tmp_path: Path) -> None:
    """A worker that starts beside a foreign consumer names it, and accepts every message once.

    The foreign consumer had read and committed all of an input.
    """
    name = kafka.unique("foreign")
    config = configure(tmp_path, bootstrap, f"{name}-app", [{"name": name, "partitions": 2}])
    with worker(config, f"{name}-one") as first:
        for partition in range(2):
            kafka.send(bootstrap, name, _with_ids(partition, 0, 10), partition)
        kafka.wait_count(bootstrap, f"{name}.accepted", 20, 2)
        assert first.stop() == 0
    for partition in range(2):
        kafka.send(bootstrap, name, _with_ids(partition, 10, 20), partition)
    process = WorkerProcess(config, f"{name}-two")
    try:
        with foreigner(bootstrap, f"{name}-app", name) as other:
            wait_until(lambda: len(other.read) == 20, lambda: other.read)
            process.start()
            wait_until(lambda: bool(process.health()[1].get("foreign_members")), process.health)
            code, told = process.health()
            wait_until(lambda: "refuses this worker" in process.log(), process.log)
            shown = run_verb("status", "--config", str(config), check=False)
        process.wait_ready()
        got = kafka.wait_count(bootstrap, f"{name}.accepted", 40, 2)
        log = process.log()
    finally:
        process.destroy()

    assert code == 503
    assert _named(told["foreign_members"][0])
    assert _named(" ".join(shown.stdout.split()))
    assert shown.returncode == 1
    assert log.count("refuses this worker") < 5
    assert sorted(item.id or b"" for item in got) == sorted([*_ids(0, 0, 20), *_ids(1, 0, 20)])


def test_a_foreign_consumer_while_no_bridge_ran(two: Two, tmp_path: Path) -> None:
    """A bridge whose position is lost begins at the start of the log, and the target drops known messages."""
    given = prepare(two, tmp_path)
    given.send(messages(20))
    with processes.quick(given.config):
        given.settled([20])
    given.send(messages(20, first=20))
    with foreigner(two.source, given.group, given.topic, "range") as other:
        wait_until(lambda: len(other.read) >= 20, lambda: other.read)
    shown = processes.status(given.config, 1)
    with processes.bridge(given.config, given.name):
        got = processes.wait_values(two.target, given.address, 40, PARTITIONS)
        processes.confirmed_at(two.source, given.group, given.topic, [40])

    (row,) = shown["bridges"][given.name]["partitions"]
    assert (row["lag"], row["confirmed"]) == (40, None)
    assert "a foreign consumer committed the offset 40" in row["error"]
    assert sorted(numbers(processes.passed(got))) == list(range(40))

"""The state of a group is exact over failures, takeovers and restarts; a cache that follows ``first_here`` and ``lost`` is never older."""

import asyncio
import json
from collections.abc import Collection
from pathlib import Path

import pytest

from app.commands.consumers.forget import forget
from ringfence_client import Message
from ringfence_kafka.protocol import wire_names
from tests.support import kafka
from tests.support.consumers.in_process import Bench, Recorder, consuming, numbered
from tests.support.consumers.leases import take
from tests.support.consumers.processes import ConsumerProcess, consumers, noted
from tests.support.kafka import Sent
from tests.support.lanes import until
from tests.support.worker import one_address, wait_for

PARTITIONS = 4


def state_topic(bench: Bench) -> str:
    return wire_names.state_topic(bench.settings.app.id, bench.group, bench.accepted)


async def states(bench: Bench) -> dict[bytes | None, bytes | None]:
    """Return the last state record of each group."""
    return {record.key: record.value for record in await bench.read(state_topic(bench), bench.partitions)}


async def add(message: Message) -> None:
    """Keep a running total of the group."""
    message.state = b"%d" % (int(message.state or 0) + int(message.value or 0))


async def test_a_running_total_over_restarts(bootstrap: str) -> None:
    """Each holder continues at its predecessor's state. The topic is compacted and has as many partitions as the accepted one.

    Forgetting the consumer group deletes it.
    """
    async with consuming(bootstrap, PARTITIONS) as bench:
        for turn in range(3):
            for partition in range(PARTITIONS):
                group = kafka.at_home(partition, PARTITIONS)
                bench.send(
                    *(Sent(None, group, b"%d" % (partition + 1)) for _ in range(10)), partition=partition
                )
            running = await bench.start(Recorder(add))
            for partition in range(PARTITIONS):
                await bench.until_next(running, 10 * (turn + 1), partition)
            await running.stop()

        found = await bench.read(state_topic(bench), PARTITIONS)
        assert await states(bench) == {
            kafka.at_home(partition, PARTITIONS): b"%d" % (30 * (partition + 1))
            for partition in range(PARTITIONS)
        }
        assert {kafka.home(record.key or b"", PARTITIONS) - record.partition for record in found} == {0}
        assert kafka.topic_config(bootstrap, state_topic(bench), "cleanup.policy") == "compact"
        assert await asyncio.to_thread(forget, bench.settings, bench.group, yes=True) == 0
        assert state_topic(bench) not in await asyncio.to_thread(kafka.topics, bootstrap)


async def test_states_that_were_deleted_while_no_consumer_ran(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The next consumer says that they are lost, once. If an operator has set the offsets back, it computes them again."""
    lost = "was deleted: its states are lost"
    async with consuming(bootstrap, 1) as bench:
        for turn in range(3):
            bench.send(*(Sent(None, b"g", b"1") for _ in range(5)))
            running = await bench.start(Recorder(add))
            await bench.until_next(running, 5 * (turn + 1))
            await running.stop()
            assert await states(bench) == {b"g": b"15" if turn == 2 else b"5"}
            assert caplog.text.count(lost) == min(turn, 1)
            if turn < 2:
                await asyncio.to_thread(kafka.delete_topics, bootstrap, [state_topic(bench)])
            if turn == 1:
                await asyncio.to_thread(kafka.commit, bootstrap, bench.group, bench.accepted, 0)


async def test_a_failed_attempt_changes_no_state(bootstrap: str) -> None:
    """Each attempt gets the state of the message before it."""
    seen: list[tuple[int, int, bytes | None]] = []

    async def work(message: Message) -> None:
        seen.append((message.offset, message.attempt, message.state))
        await add(message)
        if message.attempt < 3 and message.offset == 1:
            raise ValueError("not yet")

    async with consuming(bootstrap) as bench:
        bench.send(*(Sent(None, b"group", b"1") for _ in range(3)))
        running = await bench.start(Recorder(work), retry_delay=0.01, max_attempts=5)
        await bench.until_next(running, 3)
        await running.stop()

        assert seen == [(0, 1, None), (1, 1, b"1"), (1, 2, b"1"), (1, 3, b"1"), (2, 1, b"2")]
        assert await states(bench) == {b"group": b"3"}


async def test_a_total_over_a_takeover(bootstrap: str) -> None:
    """A holder that lost its lease writes nothing more. The state is the one that a stranger wrote since."""
    seen: list[bytes | None] = []

    async def work(message: Message) -> None:
        seen.append(message.state)
        await add(message)

    async with consuming(bootstrap) as bench:
        bench.send(*(Sent(None, b"group", b"1") for _ in range(5)))
        running = await bench.start(Recorder(work))
        await bench.until_committed(5)
        await take(bench)
        # As a successor might have, before it gave the partition back.
        kafka.send(bootstrap, state_topic(bench), [Sent(None, b"group", b"100")])
        bench.send(Sent(None, b"group", b"1"))
        await until(lambda: len(seen) == 6, lambda: str(seen))
        await running.stop()

        assert seen[-1] == b"100"
        assert await states(bench) == {b"group": b"101"}


class Cache:
    """A running total of each group in this process, from the state at its first message; checked against the state each time."""

    def __init__(self) -> None:
        self.totals: dict[bytes, int] = {}
        self.lost: list[frozenset[bytes]] = []
        self.stale: list[str] = []

    async def work(self, message: Message) -> None:
        assert message.group is not None
        await asyncio.sleep(0.002)
        if message.first_here:
            self.totals[message.group] = int(message.state or 0)
        if self.totals.get(message.group) != int(message.state or 0):
            self.stale.append(
                f"{message.offset} of {message.group!r}: {self.totals.get(message.group)} is cached, {message.state!r} is true"
            )
        self.totals[message.group] += 1
        message.state = b"%d" % self.totals[message.group]

    async def forget(self, groups: Collection[bytes]) -> None:
        self.lost.append(frozenset(groups))
        for group in groups:
            del self.totals[group]


async def test_caches_over_a_rebalance(bootstrap: str) -> None:
    """Each of two consumers that come and go learns of all lost groups of a partition before another one handles them."""
    async with consuming(bootstrap, PARTITIONS) as bench:
        groups = [kafka.at_home(partition, PARTITIONS) for partition in range(PARTITIONS)]
        each = 0

        def send(count: int) -> None:
            nonlocal each
            each += count
            for partition, group in enumerate(groups):
                bench.send(*numbered(group, count), partition=partition)

        async def written() -> None:
            for partition in range(PARTITIONS):
                await bench.until_committed(each, partition)

        first, second = Cache(), Cache()
        send(20)
        running = await bench.start(Recorder(first.work), lost=first.forget)
        await written()
        send(200)
        other = await bench.start(Recorder(second.work), lost=second.forget)
        await running.ready(PARTITIONS // 2)
        await other.ready(PARTITIONS // 2)
        send(50)
        await written()
        await other.stop()
        send(50)
        await running.ready(PARTITIONS)
        await written()
        await running.stop()

    assert first.stale == second.stale == []
    assert second.totals == first.totals == {}
    assert sorted(group for groups_of_one in second.lost for group in groups_of_one) == sorted(
        group for groups_of_one in first.lost[:2] for group in groups_of_one
    )
    assert len(first.lost) == 2 + PARTITIONS


def test_lost_of_a_module(bootstrap: str, tmp_path: Path) -> None:
    """The consumer calls the function ``lost`` beside the handler, also when the process ends."""
    name, config = one_address(tmp_path, bootstrap, "lost", 2)
    process = ConsumerProcess(
        config, "c", name, f"{name}-group", handler="tests.support.consumers.owning_handlers:handle"
    )
    with consumers(process):
        kafka.send(
            bootstrap,
            f"{name}.accepted",
            [Sent(None, b"a", b""), Sent(None, b"b", b""), Sent(None, b"a", b"")],
        )
        wait_for(lambda: len(noted(process.handled)) == 3, process.log)
        assert process.stop() == 0

    *handled, lost = map(json.loads, noted(process.handled))
    assert sorted(handled) == [["a", False], ["a", True], ["b", True]]
    assert lost == {"lost": ["a", "b"]}

"""``first_here`` and ``lost``: a cache that is filled and dropped with them is never older than the group's state."""

import asyncio
import json
import threading
from collections.abc import Collection
from pathlib import Path

import pytest

from ringfence_client import Message
from tests.support import kafka
from tests.support.consumers.in_process import Recorder, consuming, interleaved, numbered
from tests.support.consumers.leases import take
from tests.support.consumers.processes import ConsumerProcess, consumers, noted
from tests.support.kafka import Sent
from tests.support.lanes import until
from tests.support.worker import configure, wait_for

PARTITIONS = 4


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


async def test_first_here_until_the_first_acknowledgement(bootstrap: str) -> None:
    """A failed attempt may have filled nothing, so the next attempt is the first one too."""
    seen: list[tuple[int, int, bool]] = []

    async def work(message: Message) -> None:
        seen.append((message.offset, message.attempt, message.first_here))
        if message.offset == 0 and message.attempt == 1:
            raise ValueError("once")

    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 2))
        running = await bench.start(Recorder(work), retry_delay=0.01)
        await bench.until_next(running, 2)
        await running.stop()

    assert seen == [(0, 1, True), (0, 2, True), (1, 1, False)]


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_lost_after_a_lost_lease(bootstrap: str, kind: str) -> None:
    """The groups of a partition that somebody took are lost, and first again when it comes back. A plain function runs in a thread."""
    lost: list[tuple[set[bytes], bool]] = []
    firsts: list[tuple[int, bool]] = []

    def forget(groups: Collection[bytes]) -> None:
        lost.append((set(groups), threading.current_thread() is threading.main_thread()))

    async def forget_soon(groups: Collection[bytes]) -> None:
        forget(groups)

    async def work(message: Message) -> None:
        firsts.append((message.offset, message.first_here))

    async with consuming(bootstrap) as bench:
        bench.send(*interleaved(3, 1))
        running = await bench.start(Recorder(work), lost=forget_soon if kind == "async" else forget)
        await bench.until_committed(3)
        await take(bench)
        bench.send(Sent(None, b"group-1", b""))
        await until(lambda: len(firsts) == 4, lambda: str(firsts))
        told = list(lost)
        await running.stop()

    groups = {b"group-0", b"group-1", b"group-2"}
    assert told == [(groups, kind == "async")]
    assert lost[1:] == [({b"group-1"}, kind == "async")]
    assert [first for _, first in firsts] == [True] * 4


async def test_lost_that_fails_holds_nothing_up(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """A failing ``lost`` delays nothing: the partition is given away as if it had returned, and the log reports it."""

    async def forget(groups: Collection[bytes]) -> None:
        raise ValueError("no cache")

    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 1))
        running = await bench.start(Recorder(), lost=forget)
        await bench.until_committed(1)
        await running.stop()
        progress = await bench.progress()

    assert progress is not None
    assert progress.released
    assert "lost(groups) failed, so caches of 1 groups may be old" in caplog.text


def test_lost_of_a_module(bootstrap: str, tmp_path: Path) -> None:
    """The consumer calls the function ``lost`` beside the handler, also when the process ends."""
    name = kafka.unique("lost")
    config = configure(tmp_path, bootstrap, name, [{"name": name, "partitions": 2}])
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

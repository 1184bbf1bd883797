"""The link to the broker is cut at each step of a handover: who loses a partition, and who gets it."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

import pytest

from app.embedded.link import TcpProxy
from ringfence_client import Message
from ringfence_kafka.process import failpoints
from tests.harness.checker.groups import Disturbance, judge
from tests.support.brokers.linked import LinkedBroker
from tests.support.consumers.in_process import Bench, Running, consuming
from tests.support.consumers.leases import Journal, values
from tests.support.lanes import until

CUT_S = 1.5
LEASE_S = 3.0
LONG_LEASE_S = 30.0
"""More than a cut, and what one needs after it to write again."""
SESSION_S = 6.0
END_LIMIT_S = 75.0
GROUPS = {f"g{partition}-{number}": 12 for partition in range(2) for number in range(3)}
MESSAGES = sum(GROUPS.values())
Step = Callable[[Running, Running, asyncio.Event, Callable[[], None]], Awaitable[Callable[[], None]]]
"""Arranges for the cut, with the holder, the newcomer, what lets handlers end, and what cuts; returns what takes away the
arrangement."""


def _nothing() -> None:
    pass


async def _suspended(
    first: Running, second: Running, gate: asyncio.Event, cut: Callable[[], None]
) -> Callable[[], None]:
    """The holder's, between its loss of all partitions and the next assignment."""
    held_partitions = first.consumer.held_partitions
    # It may last for two answers of the broker only: who looks less often may miss it.
    while held_partitions.assigned is not None:  # noqa: ASYNC110
        await asyncio.sleep(0)
    cut()
    return _nothing


async def _draining(
    first: Running, second: Running, gate: asyncio.Event, cut: Callable[[], None]
) -> Callable[[], None]:
    """The holder's, while messages run that it may still acknowledge."""
    gate.clear()
    partitions = first.consumer.partitions
    await until(
        lambda: any(partition.ending and partition.window.running for partition in partitions.values()),
        lambda: "nothing is let go",
    )
    cut()
    gate.set()
    return _nothing


async def _waiting(
    first: Running, second: Running, gate: asyncio.Event, cut: Callable[[], None]
) -> Callable[[], None]:
    """The newcomer's, while it reads the lease again and again: the holder lets go only of what its handlers have ended."""
    gate.clear()
    await until(lambda: bool(second.consumer.reasons), lambda: "nobody is waited for")
    cut()
    gate.set()
    return _nothing


async def _fence(
    first: Running, second: Running, gate: asyncio.Event, cut: Callable[[], None]
) -> Callable[[], None]:
    """The newcomer's, as it fences."""
    reached = asyncio.Event()

    async def at(point: str, lane: str) -> None:
        if not reached.is_set():
            cut()
            reached.set()

    remove = failpoints.install("before-fence", "*", at)
    await reached.wait()
    return remove


async def _first_write(
    first: Running, second: Running, gate: asyncio.Event, cut: Callable[[], None]
) -> Callable[[], None]:
    """The newcomer's, in the middle of the transaction that says whose the partition is now."""
    reached, fenced = asyncio.Event(), set[str]()

    async def after_fence(point: str, lane: str) -> None:
        fenced.add(lane)

    async def at(point: str, lane: str) -> None:
        if lane in fenced and not reached.is_set():
            cut()
            reached.set()

    removes = [
        failpoints.install("after-fence", "*", after_fence),
        failpoints.install("before-commit", "*", at),
    ]
    await reached.wait()

    def remove() -> None:
        for item in removes:
            item()

    return remove


def _opened() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


async def _handed_over(
    bench: Bench, linked: LinkedBroker, journal: Journal, lease_s: float, gate: asyncio.Event
) -> tuple[Running, Running]:
    """A holder at work on two partitions, and a newcomer that gets one of them; no message ends while the gate is closed."""

    async def work(message: Message) -> None:
        await asyncio.sleep(0.3)
        await gate.wait()

    for label, size in GROUPS.items():
        bench.send(*values(label, size), partition=int(label[1]))
    first, second = (
        (journal.handler(number, work), {"through": link.bootstrap, "lease_timeout": lease_s})
        for number, link in enumerate(linked.links)
    )
    options = {"session_timeout": SESSION_S, "concurrency": 6}
    holder = bench.launch(first[0], **first[1], **options)
    await holder.ready(2)
    await until(lambda: len(journal.ended) >= 6, lambda: str(journal.runs))
    return holder, bench.launch(second[0], **second[1], **options)


async def _until_ended(journal: Journal, *running: Running) -> None:
    def ended() -> bool:
        for item in running:
            item.check()
        return len(journal.ended) == MESSAGES

    await until(
        ended,
        lambda: f"{len(journal.ended)} ended, {[item.consumer.reasons for item in running]}",
        END_LIMIT_S,
    )


@pytest.mark.parametrize(
    ("step", "whose", "harm"),
    [
        (_suspended, 0, TcpProxy.cut),
        (_draining, 0, TcpProxy.blackhole),
        (_waiting, 1, TcpProxy.cut),
        (_fence, 1, TcpProxy.cut),
        (_first_write, 1, TcpProxy.cut),
        (_first_write, 1, TcpProxy.lose_answers),
    ],
    ids=["suspended", "draining-blackhole", "waiting", "fence", "first-write", "first-write-unanswered"],
)
async def test_link_cut_for_a_moment(
    linked: LinkedBroker, step: Step, whose: int, harm: Callable[[TcpProxy], None]
) -> None:
    """Cut, or dumb, for less than the lease and healed, at whatever step: nothing is lost, nothing is repeated."""
    journal, link, gate = Journal(), linked.links[whose], _opened()
    async with consuming(linked.bootstrap, 2) as bench:
        first, second = await _handed_over(bench, linked, journal, LONG_LEASE_S, gate)
        async with asyncio.timeout(END_LIMIT_S):
            remove = await step(first, second, gate, lambda: harm(link))
        try:
            await asyncio.sleep(CUT_S)
        finally:
            link.open()
            remove()
        await _until_ended(journal, first, second)
        await asyncio.gather(first.stop(), second.stop())

        assert link.struck > 0
        assert judge(journal.runs, GROUPS) == []
        assert {run.attempt for run in journal.runs} == {1}
        assert [(await bench.agreed(index)).released for index in range(2)] == [True, True]


async def test_holder_cut_past_its_lease(linked: LinkedBroker) -> None:
    """A holder that drains and cannot write any more is taken from when its lease has run out; what it ran comes again."""
    journal, link, gate = Journal(), linked.links[0], _opened()
    async with consuming(linked.bootstrap, 2) as bench:
        first, second = await _handed_over(bench, linked, journal, LEASE_S, gate)
        await _draining(first, second, gate, link.cut)
        cut = time.monotonic()
        await second.ready(2)
        link.open()
        await _until_ended(journal, first, second)
        await asyncio.gather(first.stop(), second.stop())

        assert judge(journal.runs, GROUPS, [Disturbance(0, cut, math.inf, lease=LEASE_S - 1.5)]) == []
        assert {run.attempt for run in journal.runs} <= {1, 2}

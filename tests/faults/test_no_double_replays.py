"""Replays of a batch: neither a failed output nor a lost answer makes a record a duplicate of itself."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.lane import transactions
from agents.lane.lane import Lane
from ringfence_kafka.process import failpoints
from ringfence_kafka.producer import transactional
from tests.support import kafka
from tests.support.brokers.link import TcpProxy
from tests.support.brokers.linked import LinkedBroker
from tests.support.kafka import Sent
from tests.support.lanes import Bench, Gate, bench, ids, until

LIMIT_S = 180.0
SMALL_BYTES = 2_000
"""A limit of the accepted topic under which the batch does not fit."""
LARGE_BYTES = 1_000_000

BATCH = [
    *ids(0, 10),
    *ids(3, 5),  # resends within the batch
    *(Sent(None, b"group", b"%d" % index) for index in range(10)),
    Sent(b"large", b"group", b"x" * 2 * SMALL_BYTES),
]
DUE = [*range(10), *range(12, 23)]
"""Offsets of the records that are to be accepted."""

TRANSACTION_LIMIT_S = 3.0
DISCARD_LIMIT_S = 1.0


@pytest.fixture
def _short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a lane abandon a transaction sooner than in production; nothing else differs."""
    monkeypatch.setattr(transactions, "TRANSACTION_LIMIT_S", TRANSACTION_LIMIT_S)
    monkeypatch.setattr(transactional, "DISCARD_TIMEOUT_S", DISCARD_LIMIT_S)


class Strike:
    """Does something to a lane's link or topics the first time that the lane is at a fail point.

    From then on the lane is held before it opens again, until :meth:`release`.
    """

    def __init__(self, point: str, lane: Lane, act: Callable[[], None]) -> None:
        self._done = False
        self._act = act
        self._lane = lane
        self._reopening = Gate()
        self._remove = [failpoints.install(point, lane.name, self)]

    async def __call__(self, point: str, lane: str) -> None:
        if not self._done:
            self._remove.append(failpoints.install("opening", lane, self._reopening))
            await asyncio.to_thread(self._act)
            self._done = True

    async def failed(self) -> str:
        await until(self._reopening.reached.is_set, lambda: _state(self._lane), LIMIT_S)
        return self._lane.reason

    def release(self) -> None:
        for item in self._remove:
            item()
        self._reopening.open()


async def _redelivered(lanes: Bench, where: str) -> Lane:
    lane = await lanes.opened("one" if where == "disk" else "another worker")
    await lane.offer(await lanes.fetch(0, len(BATCH)))
    return lane


async def _through(lane: Lane) -> None:
    await until(lambda: lane.next == len(BATCH), lambda: _state(lane), LIMIT_S)


async def _judge(lanes: Bench, lane: Lane) -> None:
    """Require each input once, in order, and later copies of an ID as duplicates."""
    lanes.send(*BATCH)
    await lanes.feed(lane, len(BATCH), 2 * len(BATCH))

    again = [len(BATCH) + offset for offset, item in enumerate(BATCH) if item.id is None]
    assert [item.source for item in lanes.output()] == [f"{lanes.name}/0/{item}" for item in [*DUE, *again]]
    assert kafka.read_all(lanes.bootstrap, f"{lanes.name}.quarantine", 1) == []


def _state(lane: Lane) -> str:
    return f"next {lane.next}, {lane.state}: {lane.reason}, {lane.counts}"


@pytest.mark.usefixtures("_short_limits")
@pytest.mark.parametrize(
    ("how", "where"),
    [
        ("refused", "memory"),
        pytest.param("refused", "disk", marks=pytest.mark.long),
        ("refused", "another worker"),
        pytest.param("cut", "memory", marks=pytest.mark.long),
        ("cut", "disk"),
        pytest.param("cut", "another worker", marks=pytest.mark.long),
    ],
)
async def test_failed_output_is_no_duplicate_of_itself(
    linked: LinkedBroker, tmp_path: Path, how: str, where: str
) -> None:
    """A record whose output failed after the ring was consulted is accepted once when it comes again, on any worker."""
    link = linked.links[0]
    cut_before = link.connections_cut
    async with bench(linked.bootstrap, tmp_path) as lanes:
        lanes.send(*BATCH)
        lane = await lanes.opened(cluster=await lanes.reached_at(link.bootstrap))
        if how == "refused":
            strike = Strike("before-send", lane, lambda: _limit(lanes, SMALL_BYTES))
        else:
            strike = Strike("before-commit", lane, link.cut)
        await lane.offer(await lanes.fetch(0, len(BATCH)))
        reason = await strike.failed()
        output_before = lanes.output()
        _limit(lanes, LARGE_BYTES)
        if where != "memory":
            await lane.dispose()
        link.open()
        strike.release()
        if where != "memory":
            lane = await _redelivered(lanes, where)
        await _through(lane)

        assert output_before == []
        if how == "refused":
            assert "refuses a record batch for its size" in reason
        else:
            assert link.connections_cut > cut_before
        await _judge(lanes, lane)


@pytest.mark.usefixtures("_short_limits")
@pytest.mark.parametrize("then", ["silence", "cut", "cut and healed at once"])
async def test_lost_answer_to_a_commit_is_no_failure(linked: LinkedBroker, tmp_path: Path, then: str) -> None:
    """A lane whose commit reached the broker does not accept the batch again, although the answer was lost."""
    link = linked.links[0]
    async with bench(linked.bootstrap, tmp_path) as lanes:
        lane, strike = await _committed_unheard(lanes, link)
        if then == "cut and healed at once":
            link.cut()
            link.open()
            strike.release()
        else:
            if then == "cut":
                link.cut()
            reason = await strike.failed()
            assert "TimeoutError" in reason
            link.open()
            strike.release()
        await _through(lane)

        await _judge(lanes, lane)


async def _committed_unheard(lanes: Bench, link: TcpProxy) -> tuple[Lane, Strike]:
    lanes.send(*BATCH)
    lane = await lanes.opened(cluster=await lanes.reached_at(link.bootstrap))
    withheld = link.bytes_withheld
    strike = Strike("before-commit", lane, link.lose_answers)
    await lane.offer(await lanes.fetch(0, len(BATCH)))
    deadline = time.monotonic() + LIMIT_S
    while await asyncio.to_thread(lanes.committed) < len(BATCH) or link.bytes_withheld == withheld:
        assert time.monotonic() < deadline, _state(lane)
        await asyncio.sleep(0.05)
    assert lane.next == 0
    return lane, strike


def _limit(lanes: Bench, size: int) -> None:
    kafka.alter_topic(lanes.bootstrap, lanes.accepted, "max.message.bytes", str(size))

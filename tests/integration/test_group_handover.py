"""Partitions that go and come while messages run: nothing runs twice at once, order is kept, nothing hangs."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import NotCoordinatorForGroupError
from aiokafka.protocol.group import HeartbeatRequest

from ringfence_client import Message, Reject, Retry
from tables import failpoints
from tests.support.consuming import Recorder, consuming, interleaved, numbered
from tests.support.lanes import LIMIT_S, Gate, until
from tests.support.leases import take

TIMEOUT_S = 3.0


class Held:
    """A handler that is held in the first message of each partition the first time, until it is let go."""

    def __init__(self, kind: str) -> None:
        """``kind``: "async" ends when it is cancelled, "stubborn" does not, "thread" cannot."""
        self.kind = kind
        self.recorder = Recorder(self._async)
        self.free = threading.Event()
        self.rejects = False
        self._lock = threading.Lock()
        self._held: set[int] = set()
        """Partitions whose first message was held."""

    @property
    def handler(self) -> Callable[[Message], Any]:
        return self._thread if self.kind == "thread" else self.recorder

    def _holds(self, message: Message) -> bool:
        if message.offset or message.partition in self._held:
            return False
        self._held.add(message.partition)
        return True

    async def _async(self, message: Message) -> None:
        holds = self._holds(message)
        deadline = time.monotonic() + LIMIT_S  # a test that fails must end
        while holds and not self.free.is_set() and time.monotonic() < deadline:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                if self.kind == "async":
                    raise
        if holds and self.rejects:
            raise Reject("too late")

    def _thread(self, message: Message) -> None:
        observed = self.recorder.observed(message)
        with self._lock:
            observed.__enter__()
        try:
            if self._holds(message):
                self.free.wait(LIMIT_S)
        finally:
            with self._lock:
                observed.__exit__(None, None, None)


@pytest.mark.parametrize("kind", ["async", "thread", "stubborn"])
async def test_lost_and_regained(bootstrap: str, kind: str) -> None:
    """Who loses a partition while a message runs, and gets it again, does not run that message beside itself."""
    held = Held(kind)
    recorder = held.recorder
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 4))
        running = await bench.start(held.handler, concurrency=2, prefetch=2)
        await until(lambda: len(recorder.begun) == 1, lambda: str(recorder.begun))
        claimed = running.consumer.claims[0]
        await take(bench)
        bench.send(*numbered(b"other", 1))  # something to write, which is refused
        await until(
            lambda: running.consumer.claims.get(0, claimed) is not claimed,
            lambda: str(running.consumer.reasons),
        )
        if kind != "async":
            bench.send(*numbered(b"third", 1))
            await until(lambda: 5 in recorder.offsets, lambda: str(recorder.begun))

            assert len(recorder.attempts(0)) == 1

        held.free.set()
        await bench.until_next(running, 6 if kind != "async" else 5)
        await running.stop()

        assert recorder.wrong == []
        assert recorder.by_group()[b"group"][-4:] == [0, 1, 2, 3]
        # A thread that returned has done its work. What was cancelled may have done anything.
        assert len(recorder.attempts(0)) == (1 if kind == "thread" else 2)


async def test_thread_ends_in_a_rebalance(bootstrap: str) -> None:
    """What a thread of a former claim does in a rebalance counts as what any handler does: it is not done again."""
    held = Held("thread")
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 2))
        running = await bench.start(held.handler, concurrency=2)
        await until(lambda: len(held.recorder.begun) == 1, lambda: str(held.recorder.begun))
        claimed = running.consumer.claims[0]
        await take(bench)
        bench.send(*numbered(b"other", 1))
        await until(
            lambda: running.consumer.claims.get(0, claimed) is not claimed,
            lambda: str(running.consumer.reasons),
        )
        window = running.consumer.claims[0].window
        await until(
            lambda: any(each.acquired for each in window.groups() if each.group == b"group"),
            lambda: str(window.counts),
        )
        # What aiokafka says when the group is rebalanced.
        await running.consumer.holdings.revoked([TopicPartition(bench.accepted, 0)])
        held.free.set()
        await until(lambda: 0 in held.recorder.offsets, lambda: str(held.recorder.begun))
        running.consumer.holdings.given([TopicPartition(bench.accepted, 0)])
        await bench.until_next(running, 3)

        assert held.recorder.attempts(0) == [1]


@pytest.mark.parametrize("kind", ["async", "thread", "stubborn"])
async def test_member_comes_and_goes(bootstrap: str, kind: str) -> None:
    """A second member comes and leaves while messages run: nothing is lost, and no one runs a message beside itself.

    What cannot be ended keeps its partition from the second member for the whole of the lease's time-out.
    """
    first, second = Held(kind), Held("async")
    second.free.set()
    async with consuming(bootstrap, 2) as bench:
        for partition in range(2):
            bench.send(*interleaved(3, 4), partition=partition)
        one = await bench.start(first.handler, concurrency=6, drain_timeout=0.3)
        await until(lambda: len(first.recorder.done) == 16, lambda: str(first.recorder.done))
        two = bench.launch(second.handler, lease_timeout=TIMEOUT_S)
        await until(lambda: bool(two.consumer.holdings.assigned), lambda: "the second is assigned nothing")
        other = next(iter(two.consumer.holdings.assigned or ()))
        await until(lambda: other not in one.consumer.claims, lambda: "it is not let go")
        begun = time.monotonic()
        await two.ready(1)
        await one.ready(1)

        assert kind == "async" or time.monotonic() - begun > TIMEOUT_S / 2

        # Nobody else waits for what is left of a former holder: the fence keeps its end from counting.
        await bench.until_next(two, 12, other)
        await two.stop()
        await one.ready(2)
        again = one.consumer.claims[1 - other].window
        # Until its turn has come again: a run that ends before is not known to be the same.
        if kind != "async":
            await until(lambda: any(each.acquired for each in again.groups()), lambda: str(again.counts))
        first.free.set()
        for partition in range(2):
            await bench.until_next(one, 12, partition)
        await one.stop()

        assert first.recorder.wrong == second.recorder.wrong == []
        kept = [
            attempt
            for partition, offset, attempt in first.recorder.begun
            if (partition, offset) == (1 - other, 0)
        ]
        assert kept == [1]
        assert [(await bench.agreed(each)).next for each in range(2)] == [12, 12]
        assert await bench.letters() == []


async def test_left_behind_and_rejecting(bootstrap: str) -> None:
    """A handler that outlives its claim and then decides something takes nobody's place for good."""
    held = Held("stubborn")
    held.rejects = True
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 3))
        running = await bench.start(held.handler, concurrency=1)
        await until(lambda: len(held.recorder.begun) == 1, lambda: str(held.recorder.begun))
        claimed = running.consumer.claims[0]
        await take(bench)
        bench.send(*numbered(b"other", 1))
        await until(
            lambda: running.consumer.claims.get(0, claimed) is not claimed,
            lambda: str(running.consumer.reasons),
        )
        held.free.set()
        await bench.until_next(running, 4)

        assert len(held.recorder.attempts(0)) == 2
        assert await bench.letters() == []


async def test_fenced_while_opening(bootstrap: str) -> None:
    """Who is fenced while it opens a partition that is its own opens it again."""
    fenced = 0

    async def fence_once(point: str, lane: str) -> None:
        nonlocal fenced
        fenced += 1
        if fenced == 1:
            await take(bench)

    handler = Recorder()
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 3))
        remove = failpoints.install("before-send", bench.claim_name(), fence_once)
        try:
            running = await bench.start(handler)
        finally:
            remove()
        await bench.until_next(running, 3)

        assert fenced > 1
        assert handler.offsets == [0, 1, 2]


async def test_coordinator_away_while_opening(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that cannot say whether we are a member has not said that we are none: it is asked again."""
    original = GroupCoordinator._send_req
    planted = 0

    async def away_once(self: Any, request: Any) -> Any:
        nonlocal planted
        response = await original(self, request)
        if isinstance(request, HeartbeatRequest) and not planted:
            planted += 1
            return SimpleNamespace(error_code=NotCoordinatorForGroupError.errno)
        return response

    monkeypatch.setattr(GroupCoordinator, "_send_req", away_once)
    handler = Recorder()
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 3))
        # Heartbeats of its own come later than those of the opening.
        running = await bench.start(handler, session_timeout=30.0)
        await bench.until_next(running, 3)

        assert planted == 1


async def test_write_fails_in_a_rebalance(bootstrap: str) -> None:
    """Who is asked to give its partitions away holds them until it has: a write that fails then is made again."""
    free = asyncio.Event()
    failed = 0

    async def fail_once(point: str, lane: str) -> None:
        nonlocal failed
        failed += 1
        if failed == 1:
            raise OSError("planted")

    async def work(message: Message) -> None:
        if message.offset == 0:
            await free.wait()

    handler = Recorder(work)
    async with consuming(bootstrap, 2) as bench:
        for partition in range(2):
            bench.send(*numbered(b"group", 3), partition=partition)
        first = await bench.start(handler, drain_timeout=20)
        await until(lambda: len(handler.begun) == 2, lambda: str(handler.begun))
        claimed = first.consumer.claims[0]
        second = bench.launch(handler)
        await until(lambda: claimed.draining, lambda: "nothing is drained")
        remove = failpoints.install("before-commit", bench.claim_name(), fail_once)
        try:
            await until(lambda: failed > 1, lambda: "it is not written again")
            free.set()
            await second.ready(1)
        finally:
            remove()
        await first.ready(1)
        holders = {number: each for each in (first, second) for number in each.consumer.claims}
        for partition in range(2):
            await bench.until_next(holders[partition], 3, partition)

        assert failed > 1
        assert handler.wrong == []
        assert len(handler.begun) == len(handler.done) == 6


async def test_assigned_while_it_is_dropped(bootstrap: str) -> None:
    """A partition that comes back while what ran of it is still being cancelled waits for that."""
    cleaning = asyncio.Event()

    async def work(message: Message) -> None:
        if not cleaning.is_set():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cleaning.set()
                await asyncio.sleep(1.5)
                raise

    handler = Recorder(work)
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 3))
        running = await bench.start(handler)
        await until(lambda: len(handler.begun) == 1, lambda: str(handler.begun))
        await take(bench)
        bench.send(*numbered(b"other", 1))
        await until(cleaning.is_set, lambda: "nothing is cancelled")
        # What aiokafka says when the group is rebalanced.
        partitions = [TopicPartition(bench.accepted, 0)]
        await running.consumer.holdings.revoked(partitions)
        running.consumer.holdings.given(partitions)
        await bench.until_next(running, 4)

        assert handler.wrong == []
        assert handler.by_group()[b"group"] == [0, 1, 2]


async def test_regained_when_a_handler_ends(bootstrap: str) -> None:
    """A partition that comes back in the tick in which one of its handlers ends goes on at once: it waits for no other."""
    free = asyncio.Event()

    async def wait(message: Message) -> None:
        await free.wait()

    handler = Recorder(wait)
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 3))
        running = await bench.start(handler, drain_timeout=300.0)
        await until(lambda: len(handler.begun) == 1, lambda: str(handler.begun))
        claimed, holdings = running.consumer.claims[0], running.consumer.holdings
        partitions = [TopicPartition(bench.accepted, 0)]
        # What aiokafka says when the group is rebalanced, twice.
        await holdings.revoked(partitions)
        holdings.given([])
        await asyncio.sleep(0)
        await holdings.revoked(partitions)
        holdings.given(partitions)
        claimed.ended.set()
        await until(lambda: not claimed.draining, lambda: "it does not go on")
        free.set()
        await bench.until_next(running, 3)

        assert {each.fence for each in handler.messages} == {1}


@pytest.mark.parametrize("when", ["before", "meanwhile", "at its end"])
async def test_failed_and_regained(bootstrap: str, when: str) -> None:
    """A claim that failed before or in a rebalance does not go on after it: what runs ends and counts, the rest is opened anew."""
    free = asyncio.Event()

    async def wait(message: Message) -> None:
        await free.wait()

    handler = Recorder(wait)
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 3))
        running = await bench.start(handler, drain_timeout=300.0)
        await until(lambda: len(handler.begun) == 1, lambda: str(handler.begun))
        holdings, partitions = running.consumer.holdings, [TopicPartition(bench.accepted, 0)]
        claimed = running.consumer.claims[0]
        if when == "before":
            claimed.fail()
        # What aiokafka says when the group is rebalanced.
        await holdings.revoked(partitions)
        if when == "meanwhile":
            claimed.fail()
        await claimed.writer.persisted()
        gate = Gate()
        remove = failpoints.install("before-send", bench.claim_name(), gate)
        holdings.given(partitions)
        if when == "at its end":
            await gate.wait()  # in the write before it goes on
            claimed.fail()
        gate.open()
        remove()
        free.set()
        await running.ready(1)
        await bench.until_next(running, 3)

        assert handler.wrong == []
        assert [each.fence for each in handler.messages] == [1, 2, 2]


async def test_delays_outlast_a_rebalance(bootstrap: str) -> None:
    """What waits to be tried again waits on where its partition comes back: neither does it come early, nor while nothing may."""
    delays = {0: 1.0, 1: 1.0, 2: 0.05}
    """Of a message that fails before, of one that fails meanwhile, of one whose delay ends meanwhile."""
    failed: dict[int, float] = {}
    again: dict[int, float] = {}
    free = asyncio.Event()

    async def work(message: Message) -> None:
        if message.attempt > 1:
            again[message.offset] = time.monotonic()
            return
        if message.offset:
            await free.wait()
        failed[message.offset] = time.monotonic()
        raise Retry("later", delays[message.offset])

    handler = Recorder(work)
    async with consuming(bootstrap) as bench:
        bench.send(*interleaved(3, 1))
        running = await bench.start(handler)
        claimed, holdings = running.consumer.claims[0], running.consumer.holdings
        await until(lambda: len(handler.begun) == 3 and 0 in failed, lambda: str(handler.begun))
        # What aiokafka says when the group is rebalanced.
        await holdings.revoked([TopicPartition(bench.accepted, 0)])
        free.set()
        await until(lambda: len(failed) == 3, lambda: str(failed))
        await asyncio.sleep(2 * delays[2])

        assert again == {}
        assert claimed.window.running == set()

        holdings.given([TopicPartition(bench.accepted, 0)])
        await bench.until_next(running, 3)

        assert all(again[offset] >= failed[offset] + delay for offset, delay in delays.items())
        assert {each.fence for each in handler.messages} == {1}


# -- the end ------------------------------------------------------------------------------------------------------


async def test_drained(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """A stop waits for what runs, begins nothing more, not even what is held already, and says that all has ended."""
    caplog.set_level(logging.INFO)
    free = asyncio.Event()

    async def wait(message: Message) -> None:
        await free.wait()

    handler = Recorder(wait)
    async with consuming(bootstrap) as bench:
        bench.send(*interleaved(2, 6))
        running = await bench.start(handler, concurrency=2, prefetch=3, drain_timeout=20)
        await until(lambda: len(handler.begun) == 2, lambda: str(handler.begun))
        stopped = asyncio.create_task(running.stop())
        await until(lambda: running.consumer.claims[0].draining, lambda: "it is not drained")
        free.set()
        await stopped
        progress = await bench.agreed()

        assert sorted(handler.offsets) == [0, 1]
        assert (progress.next, progress.released, progress.attempts) == (2, True, {})
        assert f"{bench.accepted}/0 is released" in caplog.text


async def test_stopped_while_it_opens(bootstrap: str) -> None:
    """From a stop on nothing new is begun, however long what was only being opened takes to end."""
    opening, free = asyncio.Event(), asyncio.Event()

    async def work(message: Message) -> None:
        await free.wait()

    async def end_late(point: str, lane: str) -> None:
        opening.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            free.set()
            await until(lambda: bool(handler.done), lambda: str(handler.begun))
            await asyncio.sleep(0.1)  # that nothing is begun is seen after a while only
            raise

    handler = Recorder(work)
    async with consuming(bootstrap, 2) as bench:
        bench.send(*numbered(b"group", 3))
        remove = failpoints.install("opening", bench.claim_name(1), end_late)
        try:
            running = bench.launch(handler)
            await until(lambda: len(handler.begun) == 1, lambda: str(handler.begun))
            await opening.wait()
            await running.stop()
        finally:
            remove()

        assert handler.offsets == [0]
        assert (await bench.agreed()).next == 1


async def test_stopped_while_it_comes_back(bootstrap: str) -> None:
    """A partition that was about to go on when everything ends is released as all others are."""
    free = asyncio.Event()

    async def work(message: Message) -> None:
        await free.wait()

    handler = Recorder(work)
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 1))
        running = await bench.start(handler, drain_timeout=300.0)
        await until(lambda: len(handler.begun) == 1, lambda: str(handler.begun))
        holdings, partitions = running.consumer.holdings, [TopicPartition(bench.accepted, 0)]
        # What aiokafka says when the group is rebalanced, twice.
        await holdings.revoked(partitions)
        holdings.given([])
        leaving = running.consumer.claims[0].leaving
        assert leaving is not None
        await asyncio.sleep(0)
        await holdings.revoked(partitions)
        holdings.given(partitions)
        await asyncio.sleep(0)
        assert leaving.cancelling()
        assert not leaving.done()
        # And as close() does.
        again = holdings._let_go(running.consumer.claims[0])
        await holdings.revoked(partitions)
        free.set()
        await asyncio.wait([again])

        assert (await bench.agreed()).released


async def test_leaver_keeps_only_what_it_runs(bootstrap: str) -> None:
    """Who stops leaves the group at once: a slow handler holds up its own partition, and no other; what it does counts."""
    free = asyncio.Event()

    async def work(message: Message) -> None:
        if message.partition == 0 and message.fence == 1:
            await free.wait()

    handler = Recorder(work)
    async with consuming(bootstrap, 2) as bench:
        for partition in range(2):
            bench.send(*numbered(b"group", 2), partition=partition)
        leaver = await bench.start(handler, drain_timeout=300.0)
        await until(lambda: len(handler.begun) == 3, lambda: str(handler.begun))
        stopped = asyncio.create_task(leaver.stop())
        await until(lambda: leaver.consumer.claims[0].draining, lambda: "nothing is drained")
        other = bench.launch(handler, lease_timeout=300.0, lease_idle=300.0)
        bench.send(*numbered(b"more", 1), partition=1)
        await bench.until_next(other, 3, 1)

        assert not stopped.done()
        assert other.consumer.holdings.assigned == {0, 1}
        assert "draining" in other.consumer.reasons[0]

        free.set()
        await bench.until_next(other, 2)
        await stopped

        assert handler.wrong == []
        assert {attempt for _, _, attempt in handler.begun} == {1}
        assert len(handler.begun) == len(handler.done) == 5


async def test_drain_ends(bootstrap: str) -> None:
    """What does not end within the drain time-out is cancelled; when that has ended it, nothing is held any more."""
    cancelled = asyncio.Event()

    async def wait(message: Message) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    handler = Recorder(wait)
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 2))
        running = await bench.start(handler, drain_timeout=0.5)
        await until(lambda: len(handler.begun) == 1, lambda: str(handler.begun))
        begun = time.monotonic()
        await running.stop()
        progress = await bench.agreed()

        assert time.monotonic() - begun >= 0.5
        assert cancelled.is_set()
        assert (progress.next, progress.released, progress.attempts) == (0, True, {})


async def test_left_behind_at_the_end(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """A handler that ignores its cancellation does not hold up a stop; when it ends, nothing is left of it."""
    held = Held("stubborn")
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 2))
        running = await bench.start(held.handler, drain_timeout=0.2)
        await until(lambda: len(held.recorder.begun) == 1, lambda: str(held.recorder.begun))
        await running.stop()

        assert not (await bench.agreed()).released
        assert "is let go and not released: a handler still runs" in caplog.text

        held.free.set()
        await until(
            lambda: not any(each.get_name().startswith("handler ") for each in asyncio.all_tasks()),
            lambda: str(asyncio.all_tasks()),
            5,
        )


async def test_waits_for_its_thread(bootstrap: str) -> None:
    """What was cancelled before a thread was free for it never runs: somebody else may be running it."""
    held = Held("thread")
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 1), *numbered(b"other", 1))
        running = await bench.start(held.handler, concurrency=1, drain_timeout=0.2)
        await until(lambda: len(held.recorder.begun) == 1, lambda: str(held.recorder.begun))
        claimed = running.consumer.claims[0]
        await take(bench)
        bench.send(*numbered(b"third", 1))
        await until(
            lambda: running.consumer.claims.get(0, claimed) is not claimed,
            lambda: str(running.consumer.reasons),
        )
        # The one thread is still in the first message; the second waits for it.
        await until(
            lambda: 1 in running.consumer.claims[0].window.attempts, lambda: "the second is not begun"
        )
        await running.stop()
        held.free.set()
        for thread in threading.enumerate():
            if thread.name.startswith("ringfence-handler"):
                await asyncio.to_thread(thread.join, LIMIT_S)

        assert [offset for _, offset, _ in held.recorder.begun] == [0]


async def test_retrying_when_it_stops(bootstrap: str) -> None:
    """A message that waits for its next attempt does not hold up a stop, and goes on counting after it."""

    async def fail_once(message: Message) -> None:
        if message.attempt == 1:
            raise Retry("later", 3600)

    handler = Recorder(fail_once)
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 2))
        running = await bench.start(handler, drain_timeout=30)
        await until(lambda: running.consumer.dispatcher.counts["retries"] == 1, lambda: str(handler.begun))
        begun = time.monotonic()
        await running.stop()

        assert time.monotonic() - begun < 10
        assert (await bench.agreed()).released

        handler.behaviour = Recorder().behaviour
        running = await bench.start(handler)
        await bench.until_next(running, 2)

        assert handler.attempts(0) == [1, 2]

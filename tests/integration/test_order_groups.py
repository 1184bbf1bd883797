"""Group-ordered consumer: order within a group, groups in parallel, and decisions of handlers."""

import asyncio
from typing import Any

import pytest
from aiokafka.errors import GroupAuthorizationFailedError

from ringfence_client import Message, Reject, Retry
from tests.support import kafka
from tests.support.consumers.in_process import Recorder, consuming, interleaved
from tests.support.kafka import Sent
from tests.support.lanes import until


@pytest.mark.parametrize("how", ["raises", "Retry", "retry", "cancelled"])
async def test_tried_again(bootstrap: str, how: str) -> None:
    """A message whose handler raises any error is tried again after a delay, for which only its own group waits."""
    slow = asyncio.Event()

    async def fail_twice(message: Message) -> None:
        if message.offset or message.attempt > 2:
            return
        if message.attempt == 2:
            await slow.wait()
        if how == "raises":
            raise ValueError("planted")
        if how == "Retry":
            raise Retry("planted", 0.3)
        if how == "retry":
            message.retry("planted", delay=0.2)
        own = asyncio.get_running_loop().create_future()
        own.cancel()
        await own

    handler = Recorder(fail_twice)
    async with consuming(bootstrap) as bench:
        bench.send(*interleaved(2, 50))
        running = await bench.start(handler, concurrency=1 if how == "cancelled" else 2)
        if how != "cancelled":
            # The others' is all done while the first of this group waits.
            await until(lambda: len(handler.done) == 50, lambda: str(handler.done))
        slow.set()
        await bench.until_next(running, 100)
        await running.stop()

        assert handler.wrong == []
        assert handler.attempts(0) == [1, 2, 3]
        assert [offset for offset in handler.offsets if offset % 2 == 0] == list(range(0, 100, 2))
        assert sorted(handler.offsets) == list(range(100))
        assert await bench.letters() == []
        assert (await bench.agreed()).attempts == {}


@pytest.mark.parametrize("task", ["heartbeat", "coordination"])
async def test_membership_that_fails(
    bootstrap: str, task: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer joins again after a right is revoked for a moment, or an unexpected error ends one of aiokafka's tasks."""
    handler = Recorder()
    async with consuming(bootstrap) as bench:
        bench.send(*interleaved(2, 10))
        running = await bench.start(handler)
        await bench.until_next(running, 10)
        coordinator: Any = running.consumer._consumer._coordinator
        before = coordinator.generation
        broken, error = {
            "heartbeat": ("_do_heartbeat", GroupAuthorizationFailedError("planted")),
            "coordination": ("_maybe_do_autocommit", RuntimeError("planted")),
        }[task]

        async def fail(*_: Any) -> None:
            monkeypatch.undo()
            raise error

        monkeypatch.setattr(coordinator, broken, fail)
        if task == "coordination":
            coordinator.request_rejoin()
        told = {"heartbeat": "heartbeats of group", "coordination": "membership of group"}[task]
        text = f"{told} {bench.group} ended, joining again: {error!r}"
        await until(
            lambda: text in caplog.text and coordinator.generation > before and running.consumer.ready,
            lambda: caplog.text,
        )
        bench.send(*interleaved(2, 10))
        await bench.until_next(running, 20)

        assert not coordinator._coordination_task.done()
        assert not coordinator._heartbeat_task.done()
        assert sorted(handler.offsets) == list(range(20))
        await running.stop()


async def test_rejected(bootstrap: str) -> None:
    """A rejected message becomes a dead letter at once, as it was, with the reason; its group continues."""

    async def reject(message: Message) -> None:
        if message.offset == 1:
            raise Reject("no such customer")
        if message.offset == 2:
            message.reject()

    handler = Recorder(reject)
    async with consuming(bootstrap) as bench:
        bench.send(
            Sent(None, b"group"), Sent(b"id", b"group", b"value", (("h", b"1"), ("h", None))), Sent(None, b"group"),
            Sent(None, b"group"),
        )  # fmt: skip
        await bench.handle(handler, 4)

        assert handler.wrong == []
        assert handler.offsets == [0, 3]
        assert handler.attempts(1) == [1]
        first, second = await bench.letters()
        assert (first.key, first.value) == (b"group", b"value")
        assert first.headers == [
            ("h", b"1"),
            ("h", None),
            ("_AMQ_DUPL_ID", b"id"),
            ("_RF_REASON", b"no such customer"),
            ("_RF_CONSUMER_GROUP", bench.group.encode()),
            ("_RF_ATTEMPTS", b"1"),
            ("__dlq.errors.topic", bench.accepted.encode()),
            ("__dlq.errors.partition", b"0"),
            ("__dlq.errors.offset", b"1"),
            ("__dlq.errors.group", bench.group.encode()),
            ("__dlq.errors.delivery.count", b"1"),
            ("__dlq.errors.message", b"no such customer"),
        ]
        assert dict(second.headers)["_RF_REASON"] == b"rejected by the handler"
        assert (await bench.agreed()).next == 4


async def test_headers_too_large_for_the_dead_letters(bootstrap: str) -> None:
    """A dead letter that its topic does not take is cut until it fits: first its value, then its headers."""

    async def reject(message: Message) -> None:
        if message.offset < 2:
            raise Reject("x" * 5_000)

    async with consuming(bootstrap) as bench:
        kafka.create_topics(bootstrap, {bench.dead_letters: (1, {"max.message.bytes": "10000"})})
        bench.send(
            Sent(None, b"group", b"v" * 20_000, (("h", b"1"),)), Sent(None, b"group", b"v", (("h", b"h" * 20_000),)),
            Sent(None, b"group"),
        )  # fmt: skip
        running = await bench.start(Recorder(reject))
        await bench.until_next(running, 3)

        cut, bare = await bench.letters()
        assert (cut.key, dict(cut.headers)["h"]) == (b"group", b"1")
        assert b'"bytes": 20000' in (cut.value or b"")
        assert bare.key == b"group"
        assert b'"bytes": 1,' in (bare.value or b"")
        assert {name.partition(".")[0] for name, _ in bare.headers} == {
            "_RF_REASON", "_RF_CONSUMER_GROUP", "_RF_ATTEMPTS", "__dlq",
        }  # fmt: skip
        assert dict(bare.headers)["__dlq.errors.offset"] == b"1"
        assert dict(bare.headers)["_RF_REASON"] == b"x" * 2_000

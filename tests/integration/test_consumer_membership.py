"""Members of a consumer group: how they leave, and which partitions the others get."""

import asyncio
import time
from typing import Any

import pytest

from ringfence_client import Message
from ringfence_client.consumer import group_terms
from ringfence_kafka.errors import ConfigurationError
from tests.support.consumers.held_handler import Held
from tests.support.consumers.in_process import Recorder, Running, consuming, numbered
from tests.support.lanes import until


async def test_drain_ends(bootstrap: str) -> None:
    """Messages that do not end within the drain time-out are cancelled; when they have ended, nothing is held any more."""
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
        assert "ends without a release of its lease: a handler still runs" in caplog.text

        held.free.set()
        await until(
            lambda: not any(task.get_name().startswith("handler ") for task in asyncio.all_tasks()),
            lambda: str(asyncio.all_tasks()),
            5,
        )


async def _until_each(members: list[Running], count: int) -> None:
    await until(
        lambda: all(member.consumer.ready and len(member.consumer.partitions) == count for member in members),
        lambda: str([set(member.consumer.partitions) for member in members]),
    )


async def _nobody(_self: object, *_arguments: object) -> str:
    """Find no member, as if none were there yet."""
    return ""


@pytest.mark.parametrize(
    ("options", "error", "at_once"),
    [
        ({"app_id": "elsewhere"}, r"app\.id = elsewhere.*the same app\.id", False),
        ({"app_id": "elsewhere"}, r"app\.id = elsewhere.*the same app\.id", True),
        ({"on_dead_letter": "flow"}, r'on_dead_letter = "park" in the group and "flow" here', False),
        ({"on_dead_letter": "flow"}, r'on_dead_letter = "park" in the group and "flow" here', True),
    ],
)
async def test_members_that_do_not_go_together(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], error: str, at_once: bool
) -> None:
    """A consumer whose leases are in another app, or whose dead letters flow beside parked ones, ends at any of its checks.

    The members continue. It would run the same messages at the same time, or pass messages that the others park.
    """
    async with consuming(bootstrap, 2) as bench:
        running = await bench.start(Recorder(), on_dead_letter="park")
        await _until_each([running], 2)
        if at_once:
            monkeypatch.setattr(group_terms, "require_app_id", _nobody)
            monkeypatch.setattr(group_terms, "unlike", _nobody)
        other = bench.launch(Recorder(), **({"on_dead_letter": "park"} | options))
        with pytest.raises(ConfigurationError, match=error):
            await asyncio.wait_for(other.finished(), 60)
        await _until_each([running], 2)
        second = await bench.start(Recorder(), on_dead_letter="park")
        await _until_each([running, second], 1)

        assert other.handler.begun == []
        assert not other.consumer.partitions

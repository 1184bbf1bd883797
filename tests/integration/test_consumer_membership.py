"""Members of a consumer group: how they leave, and which partitions the others get."""

import asyncio
import logging
import time

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import InconsistentGroupProtocolError

from ringfence_client import Message
from ringfence_client.consumer import app_id_check, group_terms
from ringfence_kafka.errors import ConfigurationError
from tests.support.consumers.held_handler import Held
from tests.support.consumers.in_process import Bench, Recorder, Running, consuming, interleaved, numbered
from tests.support.lanes import until


async def test_drained(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """A stop waits for running messages, begins no others, not even held ones, and reports that all have ended."""
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
        await until(lambda: running.consumer.partitions[0].draining, lambda: "it is not drained")
        free.set()
        await stopped
        progress = await bench.agreed()

        assert sorted(handler.offsets) == [0, 1]
        assert (progress.next, progress.released, progress.attempts) == (2, True, {})
        assert f"{bench.accepted}/0 is released" in caplog.text


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


PARTITIONS = 12


def _held(running: Running) -> dict[int, int]:
    return {
        number: partition.fence.token
        for number, partition in running.consumer.partitions.items()
        if not partition.draining
    }


async def _until_each(members: list[Running], count: int) -> None:
    await until(
        lambda: all(member.consumer.ready and len(_held(member)) == count for member in members),
        lambda: str([_held(member) for member in members]),
    )


async def _start(bench: Bench, count: int) -> list[Running]:
    return [bench.launch(Recorder()) for _ in range(count)]


async def _nobody(_self: object, *_arguments: object) -> None:
    """Find no member, as if none were there yet."""


@pytest.mark.parametrize("at_once", [False, True])
async def test_members_of_another_app(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, *, at_once: bool
) -> None:
    """A consumer whose leases are in another app ends at any of its checks, and the members continue.

    It would run the same messages at the same time.
    """
    async with consuming(bootstrap, 2) as bench:
        [running] = await _start(bench, 1)
        await _until_each([running], 2)
        if at_once:
            monkeypatch.setattr(app_id_check, "require", _nobody)
        other = bench.launch(Recorder(), app_id="elsewhere")
        with pytest.raises(ConfigurationError, match=r"app\.id = elsewhere.*the same app\.id"):
            await asyncio.wait_for(other.finished(), 60)
        await _until_each([running], 2)
        second = await bench.start(Recorder())
        await _until_each([running, second], 1)

        assert other.handler.begun == []
        assert not other.consumer.partitions


async def _alike(_self: object, *_arguments: object) -> str:
    """Find no member, as if none were there yet."""
    return ""


async def test_members_of_another_kind(bootstrap: str) -> None:
    """A consumer with another assignor, which knows no leases, does not join; the members continue."""
    async with consuming(bootstrap, 4) as bench:
        [running] = await _start(bench, 1)
        await _until_each([running], 4)
        other = AIOKafkaConsumer(
            bench.accepted, bootstrap_servers=bootstrap, group_id=bench.group, enable_auto_commit=False
        )
        with pytest.raises(InconsistentGroupProtocolError):
            await asyncio.wait_for(other.start(), 60)
        await other.stop()
        await _until_each([running], 4)

        assert set(_held(running).values()) == {1}


@pytest.mark.parametrize("at_once", [False, True])
async def test_members_with_another_way_of_dead_letters(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, *, at_once: bool
) -> None:
    """A consumer whose dead letters flow ends beside one that parks them, and its error names both values.

    It would pass messages that the other one parks.
    """
    async with consuming(bootstrap, 2) as bench:
        running = await bench.start(Recorder(), on_dead_letter="park")
        await _until_each([running], 2)
        if at_once:
            monkeypatch.setattr(group_terms, "unlike", _alike)
        other = bench.launch(Recorder(), on_dead_letter="flow")
        with pytest.raises(ConfigurationError, match=r'on_dead_letter = "park" in the group and "flow" here'):
            await asyncio.wait_for(other.finished(), 60)
        await _until_each([running], 2)
        second = await bench.start(Recorder(), on_dead_letter="park")
        await _until_each([running, second], 1)

        assert other.handler.begun == []

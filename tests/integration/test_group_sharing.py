"""How the members of a consumer group share out partitions: who comes or goes moves no more of them than must."""

import asyncio

import pytest

from ringfence_client.consumer import app_id_check
from ringfence_kafka.errors import ConfigurationError
from tests.support.consumers.in_process import Bench, Recorder, Running, consuming
from tests.support.lanes import until

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


async def test_who_comes_and_goes_moves_no_more_than_must(bootstrap: str) -> None:
    """A fourth member gets one partition of each; when it goes they get its own; all else keeps holder and token."""
    async with consuming(bootstrap, PARTITIONS) as bench:
        three = await _start(bench, 3)
        await _until_each(three, 4)
        before = [_held(running) for running in three]
        fourth = await bench.start(Recorder())
        await _until_each([*three, fourth], 3)
        between = [_held(running) for running in three]
        moved = _held(fourth)
        await fourth.stop()
        await _until_each(three, 4)
        after = [_held(running) for running in three]

        assert all(now.items() <= then.items() for now, then in zip(between, before, strict=True))
        assert all(now.items() <= then.items() for now, then in zip(between, after, strict=True))
        tokens = {number: token for item in before for number, token in item.items()}
        assert {number: token - tokens[number] for number, token in moved.items()} == dict.fromkeys(moved, 1)


async def _nobody(_self: object, *_arguments: object) -> None:
    """As if no member were there yet."""


@pytest.mark.parametrize("at_once", [False, True])
async def test_members_of_another_app(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, *, at_once: bool
) -> None:
    """Who keeps leases elsewhere would run the same messages at once: it ends, whenever it looks, and who is in goes on."""
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

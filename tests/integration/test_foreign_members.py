"""Members of a group that are not Ringfence's: they are named, and what they commit skips nothing."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from ringfence_client.assignor import KeepingAssignor
from ringfence_kafka.errors import ConfigurationError
from tests.support import kafka
from tests.support.consuming import Bench, Recorder, Running, consuming, numbered
from tests.support.foreigners import CLIENT_ID, foreigner
from tests.support.lanes import until

NAMED_WITHIN_S = 10.0


async def _handled(running: Running, bench: Bench, count: int) -> list[tuple[int, int]]:
    """What the handler finished, once it is so much in every partition."""
    for partition in range(bench.partitions):
        await bench.until_next(running, count, partition)
    return sorted(running.handler.done)


def _everything(bench: Bench, count: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in range(bench.partitions) for offset in range(count)]


@pytest.mark.parametrize("epochs", [True, False], ids=["position", "named-offsets"])
async def test_a_member_of_the_new_protocol_skips_nothing(bootstrap: str, *, epochs: bool) -> None:
    """The broker gives it half of the partitions. It commits what it reads there; handlers get that all the same, once."""
    async with consuming(bootstrap, 4) as bench:
        for partition in range(4):
            bench.send(*numbered(b"g", 10), partition=partition)
        running = await bench.start(Recorder())
        await _handled(running, bench, 10)
        with foreigner(bootstrap, bench.group, bench.accepted, epochs=epochs) as other:
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
        assert [CLIENT_ID in each and "127.0.0.1" in each for each in named] == [True]


@pytest.mark.parametrize("protocol", ["consumer", "range"])
async def test_a_foreign_consumer_that_came_and_went(bootstrap: str, protocol: str) -> None:
    """While none of ours ran it read and committed all: handlers go on where their progress is."""
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


async def test_an_operator_sets_the_offset_of_an_empty_group(bootstrap: str) -> None:
    """Back and forth, as ever: also where a foreign consumer was there before."""
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"g", 10))
        first = await bench.start(Recorder())
        await _handled(first, bench, 10)
        await first.stop()
        with foreigner(bootstrap, bench.group, bench.accepted) as other:
            bench.send(*numbered(b"g", 5))
            await until(lambda: len(other.read) == 5, lambda: str(other.read))
        kafka.commit(bootstrap, bench.group, bench.accepted, 8)
        second = await bench.start(Recorder())
        await _handled(second, bench, 15)
        await second.stop()
        bench.send(*numbered(b"g", 5))
        kafka.commit(bootstrap, bench.group, bench.accepted, 18)
        third = await bench.start(Recorder())
        await _handled(third, bench, 20)

        assert second.handler.offsets == list(range(8, 15))
        assert third.handler.offsets == [18, 19]


async def test_a_group_that_is_another_programs(bootstrap: str) -> None:
    """A classic consumer with another assignor is there first: ours says whose group it is, and ends."""
    async with consuming(bootstrap) as bench:
        with foreigner(bootstrap, bench.group, bench.accepted, "range") as other:
            await until(lambda: other.assigned == {0}, lambda: str(other.assigned))
            running = bench.launch(Recorder())
            with pytest.raises(ConfigurationError, match=f"{CLIENT_ID} on host 127.0.0.1"):
                await running.finished()


class _Impostor(RoundRobinPartitionAssignor):  # type: ignore[misc]
    """Goes by the name of ours."""

    name = KeepingAssignor.name


async def test_a_member_with_the_name_of_our_assignor(bootstrap: str) -> None:
    """It gets into the group, and is given nothing there."""
    async with consuming(bootstrap, 2) as bench:
        running = await bench.start(Recorder())
        other = AIOKafkaConsumer(
            bench.accepted,
            bootstrap_servers=bootstrap,
            group_id=bench.group,
            client_id=CLIENT_ID,
            partition_assignment_strategy=[_Impostor],
        )
        await other.start()
        try:
            await until(
                lambda: bool(running.consumer.group_watch.foreign), lambda: str(running.consumer.faults)
            )
            assert other.assignment() == set()
            assert set(running.consumer.partitions) == {0, 1}
        finally:
            await other.stop()

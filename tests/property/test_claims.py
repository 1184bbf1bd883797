"""Random histories of one partition at a consumer: assigned, revoked, lost, broken, at any moment, in its own event loop.

Lease and writer are stand-ins that answer late; the tests of leases use a real cluster. All else is the real code.
"""

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition

from ringfence_client.consumer.partitions import HeldPartitions
from ringfence_client.dispatch.dispatcher import Dispatcher
from ringfence_client.handlers.message import Message
from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.progress.lease import Lease, LostError
from ringfence_client.progress.progress_record import Progress
from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_client.window.window import Window
from ringfence_kafka.ownership.partition_state import NotOwnerError
from tests.support.lanes import until

TOPIC = "orders.accepted"
OURS = [TopicPartition(TOPIC, 0)]
LIMIT_S = 60.0


class _Writer:
    """Writer that holds the lease until it has ended."""

    def __init__(self) -> None:
        self.held = True
        self.ended = ""
        self.lose: Any = None
        self.sends = SimpleNamespace(states=SimpleNamespace(close=lambda: None))

    def start(self, lost: Any, _refused: Any) -> None:
        self.lose = lost

    def hold(self, held: bool) -> None:
        self.held = held

    async def persisted(self) -> None:
        await asyncio.sleep(0.001)
        if self.ended:
            raise LostError("somebody has it")

    async def close(self, limit: float, *, released: bool) -> None:
        assert limit
        await asyncio.sleep(0)
        self.ended = self.ended or ("released" if released else "closed")

    async def abandon(self) -> None:
        await asyncio.sleep(0)
        self.ended = self.ended or "abandoned"

    def taken(self) -> None:
        """End as a writer does when it finds out that somebody else has the lease."""
        self.ended = "taken"
        self.lose()


class _Group:
    """Generation of the group, and the leases acquired as :class:`LeaseAcquisition` acquires them."""

    def __init__(self, options: ConsumerOptions) -> None:
        self.writers: list[_Writer] = []
        self.options = options
        self.refusing = 0
        """Number of the next leases that somebody else holds by the time they are written."""
        self.gap_records = 0
        """Number of missing records that each opening finds."""
        self.confirms: list[Any] = []
        """Calls with which leases confirm their ownership."""
        self._memory = MemoryBudget(options.memory_max)
        self._coordinator = SimpleNamespace(generation=0)

    def next_generation(self) -> None:
        self._coordinator.generation += 1

    def consumer(self) -> Any:
        """The part of an aiokafka consumer that is used when nothing is fetched."""
        ignored = dict.fromkeys(("pause", "seek", "resume"), lambda *_: None)
        return SimpleNamespace(_coordinator=self._coordinator, assignment=lambda: set(OURS), **ignored)

    async def confirm(self, generation: int) -> bool:
        await asyncio.sleep(0)
        return bool(generation == self._coordinator.generation)

    async def open(self, topic: str, partition: int, confirm: Any, _: Any) -> tuple[Lease, Window, _Writer]:
        if not await confirm():
            raise NotOwnerError(topic)
        await asyncio.sleep(0.001)
        assert [writer.ended for writer in self.writers if not writer.ended] == [], (
            "two leases of one consumer"
        )
        self.writers.append(_Writer())
        self.confirms.append(confirm)
        lease = Lease("readers", topic, partition, "me", token=len(self.writers))
        window = Window(Progress(0), memory=self._memory, prefetch=1, records_max=100, gap=self.gap_records)
        if self.refusing:
            self.refusing -= 1
            self.writers[-1].ended = "taken"
        return lease, window, self.writers[-1]

    def ended(self, lease: Lease) -> None:
        assert lease.holder == "me"


async def _nothing(message: Message) -> None:
    raise AssertionError(message)


def _begun() -> tuple[_Group, Dispatcher, HeldPartitions]:
    group = _Group(ConsumerOptions(drain_timeout=0.2))
    dispatcher = Dispatcher(_nothing, cast(Any, None), group.options)
    held_partitions = HeldPartitions(
        TOPIC, group.options, dispatcher, cast(Any, SimpleNamespace(read_parked=None)), None
    )
    held_partitions.attach(group.consumer(), cast(Any, group))
    held_partitions.membership = cast(Any, group)
    return group, dispatcher, held_partitions


async def _history(seed: int) -> None:
    chance = random.Random(seed)
    group, dispatcher, held_partitions = _begun()

    async def rebalance(*, ours: bool) -> None:
        group.next_generation()
        await held_partitions.revoked(OURS)
        open_writers = [writer for writer in group.writers if not writer.ended]
        assert not any(writer.held for writer in open_writers)
        assert not dispatcher._choice.partitions
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        held_partitions.given(OURS if ours else [])

    for _ in range(60):
        event = chance.random()
        if event < 0.5:
            await rebalance(ours=chance.random() < 0.6)
        elif event < 0.6 and held_partitions.partitions:
            held_partitions.partitions[0].fail()
        elif event < 0.7 and group.writers and not group.writers[-1].ended:
            group.writers[-1].taken()
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0 if chance.random() < 0.7 else 0.002)
    await rebalance(ours=True)
    await until(lambda: held_partitions.ready, lambda: str(held_partitions.reasons), LIMIT_S)
    held = held_partitions.partitions[0]

    assert [writer for writer in group.writers if not writer.ended] == [cast(Any, held.writer)]
    assert list(dispatcher._choice.partitions) == [held]
    assert (held.window.closed, held.failed, held.draining) == (False, False, False)
    await held_partitions.close()
    await asyncio.wait_for(held_partitions.end(), LIMIT_S)
    assert (group.writers[-1].ended, held_partitions.partitions) == ("released", {})


@pytest.mark.parametrize("seed", range(40))
async def test_histories(seed: int) -> None:
    """A consumer holds one lease at a time, hands out nothing of another's, and at the end holds its own and releases it."""
    await _history(seed)


async def test_what_retention_deleted_is_counted() -> None:
    """A gap counts once, when the lease gives the next offset: an opening that failed before finds the same gap again."""
    group, dispatcher, held_partitions = _begun()
    group.gap_records, group.refusing = 7, 2
    held_partitions.given(OURS)
    await until(lambda: held_partitions.ready, lambda: str(held_partitions.reasons), LIMIT_S)

    assert (len(group.writers), dispatcher.counts["gap_records"]) == (3, 7)
    await held_partitions.close()
    await asyncio.wait_for(held_partitions.end(), LIMIT_S)


@pytest.mark.parametrize("ours", [True, False])
async def test_asked_in_one_generation_and_given_in_the_next(ours: bool) -> None:
    """The latest assignment decides ownership: a lease that comes back while its holder asks is not lost."""
    group, _, held_partitions = _begun()
    group.next_generation()
    held_partitions.given(OURS)
    await until(lambda: held_partitions.ready, lambda: str(held_partitions.reasons), LIMIT_S)
    await held_partitions.revoked(OURS)
    asked = asyncio.create_task(group.confirms[-1]())
    await asyncio.sleep(0)  # it has asked, and is not answered
    group.next_generation()
    held_partitions.given(OURS if ours else [])

    assert await asked is ours
    await held_partitions.close()
    await asyncio.wait_for(held_partitions.end(), LIMIT_S)

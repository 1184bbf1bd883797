"""One bound for what all lanes of a worker have under way: nobody starves, and nothing is too large."""

import gc
import random
import threading
from collections import deque
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from aiokafka import TopicPartition
from aiokafka.protocol.fetch import FetchRequest

from agents.batch.batch import BATCH_RECORDS_MAX, JOINED_BYTES_MAX, FetchedBatch, Parcel
from agents.batch.inbox import Inbox
from app.worker.fetch.buffers import COPIES, RECORD_BYTES, STEP_RECORDS, Buffers, Held, cost
from app.worker.fetch.fetch_scheduler import BoundedFetches
from ringfence_kafka.aiokafka_patches.batch_parts import HEADER_BYTES

MIB = 2**20
BOUND = 16 * MIB
NODE = 1


class Record(NamedTuple):
    """The fields of a record that the buffers use."""

    offset: int = 0
    key: bytes | None = b"group"
    value: bytes | None = b"value"
    headers: tuple[tuple[str, bytes | None], ...] = ()


def tp(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


class Lying:
    """aiokafka's fetcher as far as reading goes."""

    def __init__(self, *records: Record) -> None:
        self.left = deque(records)
        self._records: dict[TopicPartition, Any] = {}

    async def fetched_records(
        self,
        partitions: set[TopicPartition],
        timeout: int,  # noqa: ASYNC109 - aiokafka's signature
        max_records: int,
    ) -> dict[TopicPartition, list[Record]]:
        assert timeout == 0
        found = [self.left.popleft() for _ in range(min(max_records, len(self.left)))]
        return {next(iter(partitions)): found} if found else {}


def shared(partitions: int, bytes_max: int = BOUND, **more: Any) -> Buffers:
    buffers = Buffers(bytes_max, **more)
    buffers.assign([tp(index) for index in range(partitions)])
    return buffers


async def test_read_up_to_a_batch() -> None:
    """A read takes as many records as make a batch, whatever their size. The rest comes next, without repetition."""
    parts = [Record(0, b"key", b"v" * 1_000, (("id", b"1234"), ("none", None))), Record(1, None, None)]
    assert cost(parts) == 2 * RECORD_BYTES + 2 * HEADER_BYTES + COPIES * (3 + 1_000 + 2 + 4 + 4)
    buffers = shared(1)
    records = [Record(index, None, b"v" * 10_000) for index in range(500)]
    lying = Lying(*records)
    read: list[Any] = []
    held = []
    while lying.left:
        before = buffers.batch_bytes_max(tp(0))
        some, each = await buffers.read(lying, tp(0))
        assert each is not None
        assert each.bytes == cost(some)
        assert each.bytes <= before + 50 * cost(records[:1])
        read += some
        held.append(each)

    assert read == records
    assert buffers.used == cost(records)
    assert len(held) > 1


async def test_sizes_of_records() -> None:
    """A read takes at most the records of one transaction, however small they are, and few large ones, which are reported."""
    told: list[bool] = []
    buffers = shared(1, 1024 * MIB, large=lambda: told.append(True))
    records, _ = await buffers.read(Lying(*([Record()] * (BATCH_RECORDS_MAX + 10))), tp(0))
    assert (len(records), told) == (BATCH_RECORDS_MAX, [])

    lying = Lying(*([Record()] * 200), *([Record(value=b"v" * MIB)] * 1_000))
    while lying.left:
        records, _ = await buffers.read(lying, tp(0))
        assert sum(len(record.value or b"") > 1_000 for record in records) <= STEP_RECORDS
    assert told


def test_given_back() -> None:
    """A batch gives its bytes back once, however often it is freed."""
    buffers = shared(1)
    mail = Inbox()
    for begin in (0, 1):
        held = buffers.hold(tp(0), 100)
        parcel = Parcel([FetchedBatch("orders", 0, begin, begin + 1, [], 0, bytes=100, held=(held,))])
        del held
        (batch,) = parcel.release()
        assert mail.add(batch)
        del batch

        assert not parcel.release()
    freed = FetchedBatch("orders", 0, 0, 1, [], 0, bytes=100, held=(buffers.hold(tp(0), 100),))
    freed.free()
    freed.free()
    buffers.apply_changes()
    before = buffers.used
    mail.clear()
    buffers.apply_changes()

    assert (before, buffers.used) == (200, 0)


def test_who_waits_is_told() -> None:
    """A reader that waits for room is notified once, by the thread that frees it.

    A message larger than the whole bound is fetched when its partition has nothing, and others continue beside it.
    """
    bounded = shared(2)
    huge = bounded.hold(tp(0), 10 * BOUND)
    assert [bounded.may_fetch(tp(number), wanted=True) for number in (0, 1)] == [False, True]
    huge.free()
    assert bounded.may_fetch(tp(0), wanted=True)

    buffers = shared(1)
    told: list[int] = []
    buffers.when_room(lambda: told.append(threading.get_ident()))
    held = [buffers.hold(tp(0), BOUND) for _ in range(2)]
    held.pop().free()
    assert told == []
    assert not buffers.has_room(tp(0))
    thread = threading.Thread(target=held.pop().free)
    thread.start()
    thread.join()

    assert told == [thread.ident]
    assert buffers.has_room(tp(0))


def test_partitions_that_went_away() -> None:
    """Bytes that lanes still hold of removed partitions are given back without harm, and new partitions get their share."""
    buffers = shared(2)
    old = buffers.hold(tp(0), BOUND)
    buffers.assign([tp(1), tp(2)])
    assert buffers.used == BOUND
    old.free()
    buffers.apply_changes()
    new = buffers.hold(tp(2), 100)
    buffers.apply_changes()

    assert buffers.used == new.bytes == 100
    assert buffers.memory.used == 100
    assert buffers.memory.limit(0) == shared(2).memory.limit(0)


@pytest.mark.parametrize("seed", range(20))
def test_bound_and_progress(seed: int) -> None:
    """The bound holds except for one batch a partition, in any order of reads."""
    rng = random.Random(seed)
    partitions = rng.choice([1, 4, 64])
    buffers = shared(partitions)
    held: dict[int, list[Held]] = {index: [] for index in range(partitions)}
    for _ in range(3_000):
        number = rng.randrange(partitions)
        if rng.random() < 0.7:
            if buffers.has_room(tp(number)):
                held[number].append(buffers.hold(tp(number), rng.choice([100, 10_000, 100_000])))
            else:
                assert held[number]
        elif held[number]:
            held[number].pop(0).free()
        own = BOUND * 3 // 4 // 2 // partitions
        assert buffers.used <= BOUND + partitions * max(0, 100_000 - own)
    held.clear()
    gc.collect()
    buffers.apply_changes()

    assert buffers.used == 0
    assert all(buffers.has_room(tp(index)) for index in range(partitions))


def test_joined_batches_have_a_size() -> None:
    """A joined batch is limited in size, because a transaction of large messages would exceed the memory of a worker."""
    mail = Inbox()
    large = JOINED_BYTES_MAX // 2 + 1
    for begin in (0, 1):
        assert mail.add(FetchedBatch("orders", 0, begin, begin + 1, [], 0, bytes=large))
    assert not mail.add(FetchedBatch("orders", 0, 2, 3, [], 0, bytes=large))


class Asked:
    """aiokafka's fetcher as far as asking goes: it wants all partitions of which nothing lies there."""

    def __init__(self, buffers: Buffers, partitions: int) -> None:
        self.assignment = SimpleNamespace(tps=[tp(index) for index in range(partitions)])
        self.lying: dict[TopicPartition, int] = {}
        self.wanted = set(self.assignment.tps)
        self.fetcher: Any = SimpleNamespace(_get_actions_per_node=self._actions, _records={})
        self.buffers = buffers
        BoundedFetches(self.fetcher, buffers, self.wanted.__contains__)

    def _actions(self, assignment: Any) -> tuple[Any, ...]:
        places = [
            (item.partition, 0, self.fetcher._max_partition_fetch_bytes)
            for item in assignment.tps
            if item not in self.fetcher._records
        ]
        request = FetchRequest(100, 1, self.fetcher._fetch_max_bytes, 1, [("orders", places)])
        return [(NODE, request)], {}, 0.2, False, []

    def lies(self, number: int, size: int) -> None:
        records = SimpleNamespace(size_in_bytes=lambda: size)
        self.fetcher._records[tp(number)] = SimpleNamespace(
            _partition_records=SimpleNamespace(_records=records)
        )

    def ask(self) -> tuple[list[int], int]:
        """Partitions that are asked for, and how long the broker may take; -1 = it is not asked."""
        fetches, resets, timeout, stale, resumed = self.fetcher._get_actions_per_node(self.assignment)
        assert (resets, timeout, stale, resumed) == ({}, 0.2, False, [])
        if not fetches:
            return [], -1
        ((node, request),) = fetches
        assert node == NODE
        return [place[0] for _, places in request.topics for place in places], request._max_wait_ms


def test_who_has_no_room_is_left_out() -> None:
    """A partition without room is left out."""
    clock = [100.0]
    buffers = shared(3, clock=lambda: clock[0])
    asked = Asked(buffers, 3)
    assert asked.ask() == ([0, 1, 2], 100)
    held = [buffers.hold(tp(1), BOUND)]

    assert asked.ask() == ([0, 2], 100)
    buffers.hold(tp(2), 10).free()
    assert asked.ask() == ([0, 2], 10)
    clock[0] += 10
    assert asked.ask() == ([0, 2], 100)
    held.clear()
    assert asked.ask() == ([0, 1, 2], 100)


def test_what_lies_there_is_bounded() -> None:
    """Only partitions without fetched records are asked for while many fetched records are unread.

    The size of an answer is bounded, in total and for each partition; more partitions get less each.
    """
    few, many = Asked(shared(1), 1), Asked(shared(200), 200)
    assert (few.ask()[0], len(many.ask()[0])) == ([0], 200)
    assert few.fetcher._fetch_max_bytes == many.fetcher._fetch_max_bytes == BOUND // 16
    assert (few.fetcher._max_partition_fetch_bytes, many.fetcher._max_partition_fetch_bytes) == (MIB, 2**16)
    buffers = shared(3)
    asked = Asked(buffers, 3)
    held = buffers.hold(tp(1), 1_000)
    asked.lies(0, 3 * MIB)

    assert asked.ask() == ([2], 100)
    assert buffers.used == 3 * MIB + held.bytes
    asked.wanted.discard(tp(1))
    asked.lies(0, MIB // 2)
    assert asked.ask()[0] == [1, 2]
    asked.lies(0, MIB + 1)
    assert asked.ask()[0] == [2]
    asked.wanted.add(tp(1))
    held.free()
    assert asked.ask()[0] == [1, 2]

"""Scripts like those of :mod:`tests.simulator.conformance.transactions`, about groups, retention and compaction."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, Protocol

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from ringfence_kafka.aiokafka_patches import membership
from tests.simulator.conformance.transactions import LIMIT_S

PARTITIONS: Final = 2


class Side(Protocol):
    """A cluster, real or simulated."""

    topic: str

    def member(self, listener: Any) -> Any: ...

    def reader(self) -> Any: ...

    async def send(self, key: bytes, value: bytes) -> None:
        """Write to partition 0 outside any transaction."""
        ...

    async def abort(self, key: bytes, value: bytes) -> None:
        """Write to partition 0 in a transaction that is aborted, its marker included."""
        ...

    async def bounds(self) -> tuple[int, int]: ...

    async def delete_below(self, offset: int) -> None: ...

    async def compact(self, count: int) -> None:
        """Return once compaction has left ``count`` committed records in partition 0."""
        ...


class _Told(ConsumerRebalanceListener):  # type: ignore[misc]
    """Rebalance callbacks of one member, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.assigned: set[int] = set()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", len(revoked)))

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.calls.append(("assigned", len(assigned)))
        self.assigned = {item.partition for item in assigned}


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - of a cluster, which tells nobody
            await asyncio.sleep(0.05)


async def members_share_out(side: Side) -> list[Any]:
    """A member loses its partitions before a newcomer is assigned any. With its old generation it is a member no longer."""
    one, other = _Told(), _Told()
    first, second = side.member(one), side.member(other)
    await first.start()
    await _until(lambda: len(one.calls) >= 2)
    generation = membership.generation(first)
    told: list[Any] = [list(one.calls), await membership.is_member(first, generation)]
    await second.start()
    await _until(lambda: len(one.calls) >= 4 and len(other.calls) >= 2)
    now = membership.generation(first)
    told += [list(one.calls), list(other.calls), sorted(one.assigned | other.assigned), now > generation]
    told += [
        membership.generation(second) == now,
        await membership.is_member(first, now),
        await membership.is_member(first, generation),
    ]
    await second.stop()
    await _until(lambda: len(one.calls) >= 6)
    told += [one.calls[4:], sorted(one.assigned)]
    await first.stop()
    return told


async def rebalance_is_no_no(side: Side) -> list[Any]:
    """A member that is asked to rejoin stays a member until it does, if the question allows ``rebalancing``."""
    hold, held = asyncio.Event(), asyncio.Event()

    class Holding(_Told):
        async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            if revoked:
                held.set()
                await hold.wait()

    first, second = side.member(Holding()), side.member(_Told())
    await first.start()
    generation = membership.generation(first)
    joining = asyncio.create_task(second.start())
    await _until(held.is_set)
    told: list[Any] = [
        await membership.is_member(first, generation),
        await membership.is_member(first, generation, rebalancing=True),
    ]
    hold.set()
    await joining
    told.append(await membership.is_member(first, generation, rebalancing=True))
    await first.stop()
    await second.stop()
    return told


async def _read(side: Side, offset: int) -> list[bytes]:
    reader, tp = side.reader(), TopicPartition(side.topic, 0)
    await reader.start()
    try:
        reader.assign([tp])
        reader.seek(tp, offset)
        found: list[bytes] = []
        _, end = await side.bounds()
        async with asyncio.timeout(LIMIT_S):
            while await reader.position(tp) < end:
                brought = await reader.getmany(tp, timeout_ms=100)
                found += [item.value for item in brought.get(tp, [])]
        return found
    finally:
        await reader.stop()


async def retention_moves_the_start(side: Side) -> list[Any]:
    """Retention deletes offsets below the start; a reader that asks for one of them gets an error."""
    for number in range(4):
        await side.send(b"k", b"%d" % number)
    told: list[Any] = [await side.bounds(), await _read(side, 1)]
    await side.delete_below(2)
    told += [await side.bounds(), await _read(side, 2)]
    try:
        told.append(await _read(side, 1))
    except OffsetOutOfRangeError as error:
        told.append(list(error.args[0].values()))
    await side.delete_below(4)
    await side.send(b"k", b"4")
    told += [await side.bounds(), await _read(side, 4)]
    return told


async def compaction_keeps_the_last(side: Side) -> list[Any]:
    """Compaction keeps the last committed record of each key at its offset; aborted records replace nothing."""
    await side.send(b"one", b"1")
    await side.send(b"other", b"2")
    await side.send(b"one", b"3")
    await side.abort(b"other", b"4")
    await side.compact(2)
    start, _ = await side.bounds()
    return [start, sorted(data for data in await _read(side, start) if data.isdigit())]


Script = Callable[[Side], Awaitable[list[Any]]]
SCRIPTS: Final[Mapping[str, tuple[Script, list[Any]]]] = {
    "members share out": (
        members_share_out,
        [
            [("revoked", 0), ("assigned", 2)], True,
            [("revoked", 0), ("assigned", 2), ("revoked", 2), ("assigned", 1)], [("revoked", 0), ("assigned", 1)],
            [0, 1], True, True, True, False,
            [("revoked", 1), ("assigned", 2)], [0, 1],
        ],
    ),
    "rebalance is no no": (rebalance_is_no_no, [False, True, False]),
    "retention moves the start": (
        retention_moves_the_start,
        [(0, 4), [b"1", b"2", b"3"], (2, 4), [b"2", b"3"], [1], (4, 5), [b"4"]],
    ),
}  # fmt: skip
SLOW: Final[Mapping[str, tuple[Script, list[Any]]]] = {
    "compaction keeps the last": (compaction_keeps_the_last, [0, [b"2", b"3"]])
}
"""Scripts that wait for a real broker's cleaner, which takes its time."""

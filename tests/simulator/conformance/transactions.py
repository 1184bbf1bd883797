"""Short scripts that a real and a simulated cluster must answer alike. They use aiokafka's interface and the product's own queries."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from aiokafka import TopicPartition
from aiokafka.errors import ProducerFenced
from aiokafka.structs import OffsetAndMetadata

LIMIT_S: Final = 30.0


class Side(Protocol):
    """A cluster, real or simulated."""

    topic: str
    group: str

    def producer(self, name: str) -> Any: ...

    async def ends(self) -> tuple[int, int]: ...

    async def committed(self) -> int | None: ...

    async def values(self) -> list[bytes]: ...


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not await condition():  # noqa: ASYNC110 - of a cluster, which tells nobody
            await asyncio.sleep(0.02)


async def _stable(side: Side) -> tuple[int, int]:
    async def reached() -> bool:
        stable, end = await side.ends()
        return stable == end

    await _until(reached)
    return await side.ends()


async def _send(side: Side, producer: Any, value: bytes) -> int:
    batch = producer.create_batch()
    batch.append(timestamp=None, key=None, value=value, headers=[])
    return int((await (await producer.send_batch(batch, side.topic, partition=0))).offset)


async def _started(side: Side, name: str) -> Any:
    producer = side.producer(name)
    await producer.start()
    return producer


async def _refused(work: Awaitable[Any]) -> bool:
    try:
        await work
    except ProducerFenced:
        return True
    return False


async def fence_ends_the_formers_transaction(side: Side) -> list[Any]:
    """A producer that takes over the transactional ID aborts the open transaction; the former owner's commit is refused."""
    former = await _started(side, "lane")
    await former.begin_transaction()
    told: list[Any] = [await _send(side, former, b"of the former")]
    later = await _started(side, "lane")
    told += [await _stable(side), await _refused(former.commit_transaction()), await side.values()]
    await later.begin_transaction()
    told.append(await _send(side, later, b"of the later"))
    await later.commit_transaction()
    told += [await _stable(side), await side.values()]
    await former.stop()
    await later.stop()
    return told


async def open_transaction_holds_readers_back(side: Side) -> list[Any]:
    """Records that are committed behind an open transaction cannot be read before it ends; the high watermark includes them."""
    slow, quick = await _started(side, "slow"), await _started(side, "quick")
    await slow.begin_transaction()
    told: list[Any] = [await _send(side, slow, b"slow")]
    await quick.begin_transaction()
    told.append(await _send(side, quick, b"quick"))
    await quick.commit_transaction()

    async def marked() -> bool:
        return (await side.ends())[1] == 3

    await _until(marked)
    told += [await side.ends(), await side.values()]
    await slow.commit_transaction()
    told += [await _stable(side), await side.values()]
    await slow.stop()
    await quick.stop()
    return told


async def readers_skip_what_was_aborted(side: Side) -> list[Any]:
    """The offsets of an aborted transaction stay unused, and its marker takes one more."""
    producer = await _started(side, "lane")
    await producer.begin_transaction()
    told: list[Any] = [await _send(side, producer, b"aborted")]
    await producer.abort_transaction()
    await producer.begin_transaction()
    told.append(await _send(side, producer, b"committed"))
    await producer.commit_transaction()
    told += [await _stable(side), await side.values()]
    await producer.stop()
    return told


async def _commit_offset(side: Side, producer: Any, offset: int) -> None:
    offsets: Mapping[TopicPartition, OffsetAndMetadata] = {
        TopicPartition(side.topic, 0): OffsetAndMetadata(offset, "")
    }
    await producer.send_offsets_to_transaction(offsets, side.group)


async def offsets_follow_their_transaction(side: Side) -> list[Any]:
    """Offsets appear once their transaction is committed, and never if it is aborted."""
    producer = await _started(side, "lane")
    await producer.begin_transaction()
    await _send(side, producer, b"committed")
    await _commit_offset(side, producer, 7)
    told: list[Any] = [await side.committed()]
    await producer.commit_transaction()

    async def shown() -> bool:
        return await side.committed() == 7

    await _until(shown)
    await producer.begin_transaction()
    await _commit_offset(side, producer, 9)
    await producer.abort_transaction()
    await producer.begin_transaction()  # not before all markers of the last are written
    await _send(side, producer, b"behind")
    told.append(await side.committed())
    await producer.commit_transaction()
    told.append(await _stable(side))
    await producer.stop()
    return told


async def fenced_write_is_refused(side: Side) -> list[Any]:
    """An owner that was idle when it was fenced writes nothing into the log: neither records nor offsets."""
    former = await _started(side, "lane")
    later = await _started(side, "lane")
    await former.begin_transaction()
    told: list[Any] = [await _refused(_send(side, former, b"of the former")), await side.ends()]
    await later.begin_transaction()
    told.append(await _send(side, later, b"of the later"))
    await later.commit_transaction()
    told += [await _stable(side), await side.values(), await side.committed()]
    await former.stop()
    await later.stop()
    return told


async def fence_after_the_commit_comes_too_late(side: Side) -> list[Any]:
    """An acknowledged commit stays, however soon another producer takes the ID."""
    former = await _started(side, "lane")
    await former.begin_transaction()
    await _send(side, former, b"of the former")
    await _commit_offset(side, former, 1)
    await former.commit_transaction()
    later = await _started(side, "lane")
    # The takeover of the ID has waited for the markers.
    told: list[Any] = [await side.committed(), await side.ends(), await side.values()]
    await former.stop()
    await later.stop()
    return told


SCRIPTS: Final[Mapping[str, tuple[Callable[[Side], Awaitable[list[Any]]], list[Any]]]] = {
    "fence ends the former's transaction": (
        fence_ends_the_formers_transaction,
        [0, (2, 2), True, [], 2, (4, 4), [b"of the later"]],
    ),
    "open transaction holds readers back": (
        open_transaction_holds_readers_back,
        [0, 1, (0, 3), [], (4, 4), [b"slow", b"quick"]],
    ),
    "readers skip what was aborted": (readers_skip_what_was_aborted, [0, 2, (4, 4), [b"committed"]]),
    "offsets follow their transaction": (offsets_follow_their_transaction, [None, 7, (4, 4)]),
    "fenced write is refused": (fenced_write_is_refused, [True, (0, 0), 0, (2, 2), [b"of the later"], None]),
    "fence after the commit comes too late": (
        fence_after_the_commit_comes_too_late,
        [1, (2, 2), [b"of the former"]],
    ),
}

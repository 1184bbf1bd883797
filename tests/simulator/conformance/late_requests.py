"""Scripts like those of :mod:`tests.simulator.conformance.transactions`, but made of single requests that arrive late or repeated."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

NOT_IN_ONE: Final = "not in a transaction"
FENCED: Final = "fenced"
OUT_OF_ORDER: Final = "out of order"
WELL: Final = "well"


class Side(Protocol):
    """A cluster (real or simulated), a topic with one partition, and a transactional ID; ``implicit``: a write adds itself to the transaction."""

    async def initialise(self) -> int: ...

    async def add(self, epoch: int) -> Any: ...

    async def write(self, epoch: int, sequence: int, value: bytes, *, implicit: bool = False) -> Any: ...

    async def add_group(self, epoch: int) -> Any: ...

    async def commit_offset(self, epoch: int, offset: int, *, implicit: bool = False) -> Any: ...

    async def end(self, epoch: int, *, commit: bool, implicit: bool = False) -> Any: ...

    async def values(self) -> list[bytes]: ...

    async def committed(self) -> int | None: ...


async def _ended(side: Side, epoch: int, *, implicit: bool = False) -> Any:
    """Commit twice: the second request is answered only after the markers are written."""
    await side.end(epoch, commit=True, implicit=implicit)
    return await side.end(epoch, commit=True, implicit=implicit)


async def end_comes_in_the_next(side: Side) -> list[Any]:
    """An end request that arrives in the next transaction ends it; the remaining writes are refused."""
    epoch = await side.initialise()
    told = [await side.add(epoch), await side.write(epoch, 0, b"one"), await side.end(epoch, commit=True)]
    told += [await side.end(epoch, commit=True), await side.end(epoch, commit=False)]
    told += [await side.add(epoch), await side.write(epoch, 1, b"two")]
    told += [await side.end(epoch, commit=True)]  # the first transaction's
    told += [await side.end(epoch, commit=True), await side.write(epoch, 2, b"three"), await side.values()]
    return told


async def partition_is_added_once_more(side: Side) -> list[Any]:
    """Adding the partition again after the end begins an empty transaction."""
    epoch = await side.initialise()
    told = [await side.add(epoch), await side.write(epoch, 0, b"one"), await side.end(epoch, commit=True)]
    told += [await side.add(epoch), await side.end(epoch, commit=False), await side.end(epoch, commit=True)]
    told += [await side.add_group(epoch), await side.end(epoch, commit=True), await side.values()]
    return told


async def offset_comes_in_the_next(side: Side) -> list[Any]:
    """An offset commit is refused between two transactions; within the next one it counts."""
    epoch = await side.initialise()
    told = [await side.add_group(epoch), await side.commit_offset(epoch, 7)]
    told += [await _ended(side, epoch), await side.commit_offset(epoch, 7)]
    told += [await side.add_group(epoch), await side.commit_offset(epoch, 9)]
    told += [await side.commit_offset(epoch, 7)]  # the first transaction's
    told += [await side.end(epoch, commit=True), await side.add_group(epoch), await side.committed()]
    return told


async def record_comes_once_more(side: Side) -> list[Any]:
    """A repeated record is written once, whichever transaction it arrives in; if it comes first, the real first record is taken for a gap."""
    epoch = await side.initialise()
    told = [await side.add(epoch), await side.write(epoch, 0, b"one"), await side.write(epoch, 0, b"one")]
    told += [await _ended(side, epoch), await side.add(epoch), await side.write(epoch, 1, b"two")]
    told += [await side.write(epoch, 0, b"one"), await _ended(side, epoch), await side.add(epoch)]
    told += [await side.write(epoch, 1, b"two"), await side.write(epoch, 2, b"three")]
    told += [await side.end(epoch, commit=True), await side.values()]
    return told


async def record_comes_between(side: Side) -> list[Any]:
    """A record between two transactions is refused, and so is the next transaction's first record, unless the epoch is another."""
    epoch = await side.initialise()
    told = [await side.add(epoch), await side.write(epoch, 0, b"one"), await _ended(side, epoch)]
    told += [await side.write(epoch, 0, b"one"), await side.add(epoch), await side.write(epoch, 1, b"two")]
    told += [await side.end(epoch, commit=False)]
    epoch = await side.initialise()
    told += [await side.add(epoch), await side.write(epoch, 0, b"two"), await side.end(epoch, commit=True)]
    told += [await side.values()]
    return told


async def initialised_once_more(side: Side) -> list[Any]:
    """A producer that continues with the earlier epoch is fenced, and its transaction is aborted."""
    epoch = await side.initialise()
    told = [await side.add(epoch), await side.write(epoch, 0, b"one")]
    later = await side.initialise()
    told += [await side.end(epoch, commit=True), await side.add(epoch), await side.write(epoch, 1, b"two")]
    told += [await side.add_group(epoch), await side.commit_offset(epoch, 7)]
    told += [await side.add(later), await side.write(later, 0, b"three"), await side.end(later, commit=True)]
    told += [await side.values()]
    return told


async def each_end_raises_the_epoch(side: Side) -> list[Any]:
    """A repeated end is answered until the next transaction begins; the opposite end is refused."""
    epoch = await side.initialise()
    write = partial(side.write, implicit=True)
    end = partial(side.end, implicit=True)
    told = [await write(epoch, 0, b"one"), await end(epoch, commit=True)]
    told += [await end(epoch, commit=True), await end(epoch, commit=False)]
    told += [await write(epoch + 1, 0, b"two")]
    told += [await end(epoch, commit=True), await end(epoch, commit=False)]
    told += [await end(epoch + 1, commit=False), await end(epoch + 1, commit=False)]
    told += [await end(epoch + 1, commit=True), await side.values()]
    return told


async def nothing_late_is_written(side: Side) -> list[Any]:
    """Late writes of the earlier epoch are refused, both after the end and in the next transaction."""
    epoch = await side.initialise()
    write = partial(side.write, implicit=True)
    end = partial(side.end, implicit=True)
    commit_offset = partial(side.commit_offset, implicit=True)
    told = [await write(epoch, 0, b"one"), await commit_offset(epoch, 7)]
    told += [await _ended(side, epoch, implicit=True), await write(epoch, 1, b"late")]
    told += [await commit_offset(epoch, 7), await write(epoch + 1, 0, b"two")]
    told += [await write(epoch, 0, b"one"), await commit_offset(epoch, 7)]
    told += [await write(epoch + 1, 0, b"two"), await commit_offset(epoch + 1, 9)]
    told += [await end(epoch + 1, commit=True), await commit_offset(epoch + 2, 11)]
    told += [await side.committed(), await end(epoch + 2, commit=False), await side.values()]
    return told


async def nothing_is_ended(side: Side) -> list[Any]:
    """If nothing was written, an abort raises the epoch and a commit is refused."""
    epoch = await side.initialise()
    write = partial(side.write, implicit=True)
    end = partial(side.end, implicit=True)
    told = [await write(epoch, 0, b"one"), await _ended(side, epoch, implicit=True)]
    told += [await end(epoch + 1, commit=True), await end(epoch + 1, commit=False)]
    told += [await write(epoch + 1, 0, b"two"), await write(epoch + 2, 0, b"two")]
    told += [await end(epoch + 2, commit=True), await side.values()]
    return told


Script = Callable[[Side], Awaitable[list[Any]]]
SCRIPTS: Final[Mapping[str, tuple[Script, list[Any]]]] = {
    "end comes in the next": (
        end_comes_in_the_next,
        [WELL, 0, WELL, WELL, NOT_IN_ONE, WELL, 2, WELL, WELL, NOT_IN_ONE, [b"one", b"two"]],
    ),
    "partition is added once more": (
        partition_is_added_once_more,
        [WELL, 0, WELL, WELL, WELL, NOT_IN_ONE, WELL, WELL, [b"one"]],
    ),
    "offset comes in the next": (
        offset_comes_in_the_next,
        [WELL, WELL, WELL, NOT_IN_ONE, WELL, WELL, WELL, WELL, WELL, 7],
    ),
    "record comes once more": (
        record_comes_once_more,
        [WELL, 0, 0, WELL, WELL, 2, 0, WELL, WELL, 2, OUT_OF_ORDER, WELL, [b"one", b"two"]],
    ),
    "record comes between": (
        record_comes_between,
        [WELL, 0, WELL, NOT_IN_ONE, WELL, OUT_OF_ORDER, WELL, WELL, 3, WELL, [b"one", b"two"]],
    ),
    "initialised once more": (
        initialised_once_more,
        [WELL, 0, FENCED, FENCED, FENCED, FENCED, FENCED, WELL, 2, WELL, [b"three"]],
    ),
    "each end raises the epoch": (
        each_end_raises_the_epoch,
        [0, 1, 1, NOT_IN_ONE, 2, FENCED, FENCED, 1, 1, NOT_IN_ONE, [b"one"]],
    ),
    "nothing late is written": (
        nothing_late_is_written,
        [0, WELL, 1, FENCED, FENCED, 2, FENCED, FENCED, 2, WELL, 1, WELL, 9, 1, [b"one", b"two"]],
    ),
    "nothing is ended": (nothing_is_ended, [0, 1, NOT_IN_ONE, 1, FENCED, 2, 1, [b"one", b"two"]]),
}  # fmt: skip

"""What stands in for a lane's RocksDB: the same contract, in memory of the simulated machine, which outlives its processes."""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ringfence_kafka.errors import PrerequisiteError
from ringfence_kafka.slices import Steps
from tables import codec
from tables.chunks import ChunkKeys
from tables.codec import Slot
from tables.store import StaleEpochError, StoredState

_epochs: Final = itertools.count(1)


class Disk:
    """Of one machine: what was written last, by path."""

    def __init__(self) -> None:
        self.files: dict[str, Files] = {}

    def lose(self) -> None:
        """All of it."""
        self.files.clear()


class Files:
    """Of one store."""

    def __init__(self) -> None:
        self.state: StoredState | None = None
        self.slots: dict[bytes, bytes] = {}
        self.hops: dict[bytes, bytes] = {}
        self.index: dict[bytes, int] = {}
        self.holder: Any = None
        """The life of a process that has it open."""


def _here() -> Any:
    """The loop of the process that calls."""
    return asyncio.get_running_loop()


class MemoryStore:
    """As :class:`tables.store.Store`. A write is all or nothing, and there after a crash."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.epoch = 0
        self.damaged = False
        self.broken = False
        loop = _here()
        self._files: Files = loop.process.disk.files.setdefault(str(path), Files())
        holder = self._files.holder
        if holder is not None and holder.alive:
            raise PrerequisiteError(f"{path} is in use")
        self._files.holder = loop

    @classmethod
    def create_afresh(cls, path: Path) -> "MemoryStore":
        """An empty one."""
        _here().process.disk.files.pop(str(path), None)
        return cls(path)

    def begin_epoch(self) -> int:
        self.epoch = next(_epochs)
        return self.epoch

    def state(self) -> StoredState | None:
        return self._files.state

    @property
    def unfinished(self) -> bool:
        """As the real one's."""
        return self._files.state is None and bool(self._files.slots or self._files.hops or self._files.index)

    def slots(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(list(self._files.slots.items()))

    def hops(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(list(self._files.hops.items()))

    def slots_of(self, ring_keys: Sequence[bytes]) -> list[Slot | None]:
        known = self._files.slots
        return [codec.decode_ring(each, known[each]) if each in known else None for each in ring_keys]

    def chunk_slots(self, capacity: int, sequences: Iterable[int]) -> dict[int, Slot]:
        """None: records are no bytes here, and so they are not the core's."""
        return {}

    def finding_chunks(self) -> Steps[None]:
        """Nothing."""
        yield

    def chunk_keys(self) -> ChunkKeys:
        """None, for the same reason."""
        return ChunkKeys(())

    def sequences(self, ids: Sequence[bytes]) -> list[int | None]:
        return [self._files.index.get(each) for each in ids]

    def write(self, epoch: int, state: StoredState | None, fill: "Callable[[Any], None]") -> None:
        """All or nothing.

        Raises:
            StaleEpochError: the lane has been opened again since ``epoch``.
        """
        if epoch != self.epoch:
            raise StaleEpochError(f"write of opening {epoch}, the lane is at opening {self.epoch}")
        writes = _Writes()
        fill(writes)
        for apply in writes.all:
            apply(self._files)
        if state is None:
            return
        self._files.state = state
        loop = _here()
        loop.process.rights.store(self.path.name, state.meta.head)

    def close(self) -> None:
        if self._files.holder is not None:
            self._files.holder = None


class _Writes:
    """As :class:`tables.store.Writes`."""

    def __init__(self) -> None:
        self.all: list[Callable[[Files], object]] = []

    def put_slots(self, slots: Iterable[tuple[bytes, bytes]]) -> None:
        found = list(slots)
        self.all.append(lambda files: files.slots.update(found))

    def delete_slot(self, ring_key: bytes) -> None:
        self.all.append(lambda files: files.slots.pop(ring_key, None))

    def put_hops(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        found = list(records)
        self.all.append(lambda files: files.hops.update(found))

    def delete_hops(self, key: bytes) -> None:
        self.all.append(lambda files: files.hops.pop(key, None))

    def put_index(self, encoded_id: bytes, sequence: int) -> None:
        self.all.append(lambda files: files.index.update({encoded_id: sequence}))

    def delete_index(self, encoded_id: bytes) -> None:
        self.all.append(lambda files: files.index.pop(encoded_id, None))

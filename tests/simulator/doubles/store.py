"""Double of a lane's RocksDB: the same contract, in memory of the simulated machine, which outlives its processes."""

import asyncio
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ringfence_kafka.concurrency.cooperative import Steps
from ringfence_kafka.errors import PrerequisiteError
from tables import codec
from tables.codec import Chunk, Slot
from tables.rocksdb import chunks
from tables.rocksdb.chunks import ChunkKeys
from tables.rocksdb.errors import StaleEpochError
from tables.rocksdb.store import StoredState

_epochs: Final = itertools.count(1)


class Disk:
    """Disk of one machine: the last writes, by path."""

    def __init__(self) -> None:
        self.files: dict[str, Files] = {}

    def lose(self) -> None:
        self.files.clear()


class Files:
    """Files of one store."""

    def __init__(self) -> None:
        self.state: StoredState | None = None
        self.slots: dict[bytes, bytes] = {}
        self.chunks: dict[bytes, bytes] = {}
        self.hops: dict[bytes, bytes] = {}
        self.holder: Any = None


def _here() -> Any:
    return asyncio.get_running_loop()


class MemoryStore:
    """Double of :class:`tables.rocksdb.store.Store` of a lane whose index is resident. A write survives a crash whole. The disk never fails."""

    def __init__(self, path: Path, *, indexed: bool = False, in_memory: bool = False) -> None:
        assert not in_memory
        assert not indexed
        self.path = path
        self.in_memory = self.indexed = False
        self.epoch = 0
        self.damaged = False
        self.broken = False
        loop = _here()
        self._files: Files = loop.process.disk.files.setdefault(str(path), Files())
        holder = self._files.holder
        if holder is not None and holder.alive:
            raise PrerequisiteError(f"{path} is in use")
        self._files.holder = loop
        self._chunk_keys = ChunkKeys(self._files.chunks)

    @classmethod
    def create_afresh(cls, path: Path, *, indexed: bool = False) -> "MemoryStore":
        _here().process.disk.files.pop(str(path), None)
        return cls(path, indexed=indexed)

    def begin_epoch(self) -> int:
        self.epoch = next(_epochs)
        return self.epoch

    def state(self) -> StoredState | None:
        return self._files.state

    @property
    def unfinished(self) -> bool:
        files = self._files
        return files.state is None and bool(files.slots or files.chunks or files.hops)

    def slots(self) -> Iterator[tuple[bytes, bytes]]:
        for key, value in sorted(self._files.slots.items()):
            yield key, value
        for key, value in self._files.chunks.items():
            yield from Chunk(chunks.capacity_of(key), value)

    def slot_values(self, capacity: int, first: int) -> Generator[bytes, None, None]:
        prefix, turn = codec.ring_key(capacity, 0)[:5], codec.ring_key(capacity, first)
        found = sorted(item for item in self._files.slots.items() if item[0].startswith(prefix))
        for whole in (True, False):
            yield from (value for key, value in found if (key >= turn) is whole)

    def slot_values_beside(self, capacity: int) -> Iterator[bytes]:
        own = codec.ring_key(capacity, 0)[:5]
        return iter([value for key, value in self._files.slots.items() if not key.startswith(own)])

    def chunks_rising(self) -> list[Generator[tuple[bytes, bytes], None, None]]:
        rising = sorted(self._files.chunks.items())
        capacities = dict.fromkeys(key[:5] for key, _ in rising)
        return [(item for item in rising if item[0].startswith(prefix)) for prefix in capacities]

    def set_chunk_keys(self, keys: Iterable[bytes]) -> None:
        self._chunk_keys = ChunkKeys(keys)

    def hops(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(list(self._files.hops.items()))

    def slots_of(self, ring_keys: Sequence[bytes]) -> list[Slot | None]:
        known = self._files.slots
        return [codec.decode_ring(key, known[key]) if key in known else None for key in ring_keys]

    def chunk_slots(self, capacity: int, sequences: Iterable[int]) -> dict[int, Slot]:
        wanted = set(sequences)
        return {
            codec.sequence_of(value): codec.decode_ring(ring_key, value)
            for key, chunk in self._files.chunks.items()
            if chunks.capacity_of(key) == capacity
            for ring_key, value in Chunk(capacity, chunk)
            if codec.sequence_of(value) in wanted
        }

    def finding_chunks(self) -> Steps[None]:
        yield

    def chunk_keys(self) -> ChunkKeys:
        return self._chunk_keys

    def write(self, epoch: int, state: StoredState | None, fill: "Callable[[Any], None]") -> None:
        """Write all or nothing. Raises StaleEpochError if the lane has been opened again since ``epoch``."""
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
    """Double of :class:`tables.rocksdb.store.Writes`."""

    def __init__(self) -> None:
        self.all: list[Callable[[Files], object]] = []

    def put_slots(self, slots: Iterable[tuple[bytes, bytes]]) -> None:
        found = list(slots)
        self.all.append(lambda files: files.slots.update(found))

    def put_chunk(self, key: bytes, chunk: Chunk) -> None:
        self.all.append(lambda files: files.chunks.update({key: chunk.encoded}))

    def delete_chunk(self, key: bytes) -> None:
        self.all.append(lambda files: files.chunks.pop(key, None))

    def put_hops(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        found = list(records)
        self.all.append(lambda files: files.hops.update(found))

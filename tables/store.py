"""A lane's RocksDB: slots, and for very large rings the index. The only module that touches rocksdict, but for :mod:`tables.store_options`.

RocksDB is a cache of the changelog: it is written after the transaction was committed, in one WriteBatch that
also holds the changelog position it reflects, so that it is always a prefix of the changelog and never ahead.

Keys: ``m`` → :class:`StoredState`; ``s`` capacity:u32 slot:u32 → ring value; ``i`` id → sequence:u64; ``h`` arrived:u32 source →
hops value; ``c``: see :mod:`tables.chunks`.
"""

import itertools
import json
import logging
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from rocksdict import AccessType, Rdict, WriteBatch

from ringfence_kafka.concurrency.cooperative import Steps
from ringfence_kafka.errors import PrerequisiteError
from tables import chunks, codec, store_options
from tables.chunks import ChunkKeys
from tables.codec import Chunk, FormatError, Meta, Slot
from tables.empty_store import EmptyStore

log: Final = logging.getLogger("ringfence.table")

_STATE_KEY: Final = b"m"
_SLOT_PREFIX: Final = b"s"
_INDEX_PREFIX: Final = b"i"
_HOPS_PREFIX: Final = b"h"
_SEQUENCE: Final = struct.Struct(">Q")
_POSITION: Final = "position"
_POSITION_CHUNKED: Final = "chunked_position"
"""The same, where there are chunks."""
_ENVIRONMENT: Final = (
    "permission denied", "operation not permitted", "read-only", "no space", "quota exceeded", "file too large",
    "too many open files", "not a directory",
)  # fmt: skip
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a folder with a random name is made in it
_epochs: Final = itertools.count(1)
_FOUND_AT_ONCE: Final = 8
"""Chunks; their values come with their keys."""


class StateFolderError(PrerequisiteError):
    """The folder of a lane's state cannot be used: a full or read-only disk, missing rights, no more open files."""

    def __init__(self, folder: Path, fault: str, way_out: str) -> None:
        """``fault``: what RocksDB or the system says of it."""
        super().__init__(f"{folder} cannot be written: {fault}: {way_out}")
        said = fault.replace(str(folder), "").lower()
        self.cause = next((item for item in _ENVIRONMENT if item in said), fault)
        """What lanes on one disk have in common."""


class StaleEpochError(Exception):
    """A write of an older opening of the lane: refused."""


class DamagedStoreError(Exception):
    """The files are no RocksDB any more: delete and rebuild from the changelog."""


class StoredState(NamedTuple):
    """What RocksDB says of itself."""

    meta: Meta
    position: int
    """Changelog offset after the last record that is reflected here."""
    written_at: float
    """Seconds since the epoch."""
    indexed: bool
    """The index ID → sequence is kept here too and complete."""


class Store:
    """RocksDB of one lane; open in one process only."""

    def __init__(
        self, path: Path, *, read_only: bool = False, indexed: bool = False, in_memory: bool = False
    ) -> None:
        """Open or create.

        Args:
            path: The folder.
            read_only: Another process may have it open.
            indexed: Keys are looked up that mostly are not there.
            in_memory: Files are in memory and gone when the store is closed; the folder is not touched. rocksdict needs a folder for a file of
                its own, of some hundred bytes.

        Raises:
            StateFolderError: the folder cannot be written.
            PrerequisiteError: another process has it open.
            DamagedStoreError: RocksDB refuses what it finds there.
        """
        self.path = path
        self.in_memory = in_memory
        self.epoch = 0
        self.damaged = False
        """Damage was met, which opening alone might not meet again."""
        self.broken = False
        """A write failed: RocksDB refuses all later ones until it is opened anew."""
        self._chunk_keys: ChunkKeys | None = None
        """None = not looked for yet."""
        self._open = False
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        try:
            if read_only:
                self._db = Rdict(
                    str(path),
                    options=store_options.options(indexed=indexed),
                    access_type=AccessType.read_only(),
                )
            elif in_memory:
                self._scratch = tempfile.TemporaryDirectory(prefix="ringfence-", dir=_memory_folder())
                self._db = Rdict(self._scratch.name, options=store_options.in_memory(indexed=indexed))
            else:
                path.mkdir(parents=True, exist_ok=True)
                _EMPTY.copy_to(path)
                self._db = Rdict(str(path), options=store_options.options(indexed=indexed))
        except OSError as error:  # mkdir: a file is in the way, or the parent cannot be written
            raise _unwritable(path, error.strerror or str(error)) from error
        except Exception as error:  # rocksdict raises plain Exception for every fault of RocksDB
            raise _fault(path, str(error)) from error
        self._open = True

    @classmethod
    def create_afresh(cls, path: Path, *, indexed: bool = False) -> "Store":
        """Delete what is there and open an empty store. Raises as opening does."""
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            # A mount point stays; what is in it must go.
            if not path.is_dir() or any(path.iterdir()):
                raise _unwritable(path, str(error.strerror)) from error
        return cls(path, indexed=indexed)

    def begin_epoch(self) -> int:
        """Start a new opening of the lane: writes of all earlier ones are refused from now on.

        Epochs are those of the process, so that a store made afresh does not begin with one that was used before.
        """
        self.epoch = next(_epochs)
        return self.epoch

    def state(self) -> StoredState | None:
        """What the store reflects; None when it is empty.

        Raises:
            FormatError: written by a later version, or damaged.
        """
        raw = self._many([_STATE_KEY])[0]
        if raw is None:
            return None
        try:
            outer = json.loads(raw)
            return StoredState(
                codec.decode_meta(outer["meta"].encode()),
                outer[_POSITION_CHUNKED if _POSITION_CHUNKED in outer else _POSITION],
                outer["written_at"],
                outer["indexed"],
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"{self.path}: state record is damaged: {error}") from error

    @property
    def unfinished(self) -> bool:
        """Whether there is something in it and no state: it was being built from a changelog, nobody knows which."""
        if self.state() is not None:
            return False
        iterator = self._db.iter()
        try:
            iterator.seek_to_first()
            return iterator.key() is not None
        finally:
            del iterator

    def slots(self) -> Iterator[tuple[bytes, bytes]]:
        """All slots, as ring key and value, of all capacities, in no particular order; live or not. Of one key the highest sequence counts.

        Checked and not decoded: a lane with a million of them waits for this when it opens.

        Raises:
            FormatError: written by a later version, or damaged.
        """
        for key, value in self._entries(_SLOT_PREFIX):
            ring_key = codec.KIND_RING + key
            codec.check_ring(ring_key, value)
            yield ring_key, value
        for key, value in self._entries(chunks.PREFIX):
            yield from chunks.entries(chunks.PREFIX + key, value)

    def slot_values(self, capacity: int, first: int) -> Iterator[bytes]:
        """Values of the slots of one capacity that have keys of their own, from a slot on and round.

        Raises:
            FormatError: written by a later version, or damaged.
        """
        ring_key = codec.ring_key(capacity, first)
        prefix, turn = _SLOT_PREFIX + ring_key[1:5], ring_key[5:]
        for _, value in self._entries(prefix, turn):
            codec.check_ring(ring_key, value)
            yield value
        for key, value in self._entries(prefix):
            if key >= turn:
                return
            codec.check_ring(ring_key, value)
            yield value

    def slot_values_beside(self, capacity: int) -> Iterator[bytes]:
        """The same of all other capacities, in no particular order."""
        own, behind = (number.to_bytes(4, "big") for number in (capacity, min(capacity + 1, 2**32 - 1)))
        for first in (b"", behind):
            for key, value in self._entries(_SLOT_PREFIX, first):
                if key[:4] == own or (key > own and not first):
                    break
                codec.check_ring(codec.KIND_RING + key, value)
                yield value

    def chunks_rising(self) -> Iterator[bytes] | None:
        """All chunks in the order of their sequences, read once; None = there are some of several capacities."""
        iterator = self._db.iter()
        try:
            iterator.seek(chunks.PREFIX)
            first: bytes | None = iterator.key()
            iterator.seek_for_prev(chunks.END)
            last: bytes | None = iterator.key()
        finally:
            del iterator
        if first is None or last is None or first[:1] != chunks.PREFIX or last[:1] != chunks.PREFIX:
            return iter(())  # none; damage is met by who looks for them
        return self._chunks_rising() if chunks.capacity_of(first) == chunks.capacity_of(last) else None

    def _chunks_rising(self) -> Iterator[bytes]:
        found = []
        for key, value in self._entries(chunks.PREFIX):
            found.append(chunks.PREFIX + key)
            yield value
        self._chunk_keys = ChunkKeys(found)

    def chunk_at(self, key: bytes) -> bytes:
        """A chunk as it was written.

        Raises:
            DamagedStoreError: it is not there, or cannot be read.
        """
        value = self._many([key])[0]
        if value is None:
            self.damaged = True
            raise DamagedStoreError(f"{self.path}: a chunk is missing")
        return value

    def chunk_slots(self, capacity: int, sequences: Iterable[int]) -> dict[int, Slot]:
        """Slots of these sequences, as far as they are in chunks.

        Raises:
            FormatError: a chunk is damaged.
        """
        iterator = self._db.iter()
        try:
            return chunks.find(iterator, capacity, sequences)
        finally:
            del iterator

    def finding_chunks(self) -> Steps[None]:
        """Ask which chunks there are, before anybody waits for :meth:`chunk_keys`."""
        if self._chunk_keys is not None:
            return
        found: list[bytes] = []
        entries = self._entries(chunks.PREFIX)
        while some := [chunks.PREFIX + key for key, _ in itertools.islice(entries, _FOUND_AT_ONCE)]:
            found += some
            yield
        self._chunk_keys = ChunkKeys(found)

    def chunk_keys(self) -> ChunkKeys:
        """Which chunks there are: asked of RocksDB once."""
        if self._chunk_keys is None:
            keys = (chunks.PREFIX + key for key, _ in self._entries(chunks.PREFIX))
            self._chunk_keys = ChunkKeys(keys)
        return self._chunk_keys

    def hops(self) -> Iterator[tuple[bytes, bytes]]:
        """The hops records, key and value as they stand in the changelog, in no particular order.

        Raises:
            FormatError: written by a later version, or damaged.
        """
        for key, value in self._entries(_HOPS_PREFIX):
            codec.check_hops(codec.KIND_HOPS + key, value)
            yield codec.KIND_HOPS + key, value

    def _entries(self, prefix: bytes, first: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All of a prefix, without it; from one on."""
        iterator = self._db.iter()
        try:
            iterator.seek(prefix + first)
            while (key := cast("bytes | None", iterator.key())) is not None:
                if not key.startswith(prefix):
                    return
                yield key[len(prefix) :], cast("bytes", iterator.value())
                iterator.next()
            try:
                iterator.status()  # an iterator that meets damage just ends
            except Exception as error:
                raise self._noted(error) from error
        finally:
            del iterator  # RocksDB keeps its lock while the trace of an exception holds the iterator

    def slots_of(self, ring_keys: Sequence[bytes]) -> list[Slot | None]:
        """The occupants of these slots; None = empty."""
        if not ring_keys:
            return []
        values = self._many([_SLOT_PREFIX + key[1:] for key in ring_keys])
        return [
            None if value is None else codec.decode_ring(key, value)
            for key, value in zip(ring_keys, values, strict=True)
        ]

    def slots_of_run(self, capacity: int, first_sequence: int, count: int) -> list[Slot]:
        """The occupants of the slots that so many sequences fall into, as far as there are any: no more of them than the ring has.

        Raises:
            FormatError: one is damaged, or of a later version.
        """
        begin = first_sequence % capacity
        runs = [(begin, min(begin + count, capacity))]
        if begin + count > capacity:
            runs.append((0, min(begin + count - capacity, begin)))
        found = []
        for first, end in runs:
            key = codec.ring_key(capacity, first)
            stop = end.to_bytes(5, "big")
            for slot, value in self._entries(_SLOT_PREFIX + key[1:5], key[5:]):
                if b"\0" + slot >= stop:
                    break
                found.append(codec.decode_ring(key[:5] + slot, value))
        return found

    def sequences(self, ids: Sequence[bytes]) -> list[int | None]:
        """Index entries; None = not there."""
        if not ids:
            return []
        return [
            None if raw is None else int(_SEQUENCE.unpack(raw)[0])
            for raw in self._many([_INDEX_PREFIX + id_ for id_ in ids])
        ]

    def _many(self, keys: list[bytes]) -> list[bytes | None]:
        try:
            return cast("list[bytes | None]", self._db.get(cast("Any", keys)))
        except Exception as error:  # rocksdict raises plain Exception for every fault of RocksDB
            raise self._noted(error) from error

    def _noted(self, error: Exception) -> Exception:
        fault = _fault(self.path, str(error))
        self.damaged = self.damaged or isinstance(fault, DamagedStoreError)
        return fault

    def write(self, epoch: int, state: StoredState | None, fill: "Callable[[Writes], None]") -> None:
        """Write slots, index entries and the state that they bring about, all or nothing.

        Without a state it is the beginning of what is built: see :attr:`unfinished`.

        Raises:
            StaleEpochError: the lane has been opened again since ``epoch``.
            StateFolderError: the folder cannot be written (any more).
            DamagedStoreError: files are missing or damaged.
        """
        if epoch != self.epoch:
            raise StaleEpochError(f"write of opening {epoch}, the lane is at opening {self.epoch}")
        batch = WriteBatch(raw_mode=True)
        fill(Writes(batch))
        if state is not None:
            outer = {
                "meta": codec.encode_meta(state.meta).decode(),
                _POSITION_CHUNKED if self.chunk_keys() else _POSITION: state.position,
                "written_at": state.written_at,
                "indexed": state.indexed,
            }
            batch.put(_STATE_KEY, json.dumps(outer).encode())
        try:
            self._db.write(batch)
        except Exception as error:  # rocksdict raises plain Exception for every fault of RocksDB
            self.broken = True
            raise self._noted(error) from error

    def close(self) -> None:
        """Close the files; a second call does nothing. What cannot be flushed any more, the changelog holds."""
        if self._open:
            self._open = False
            try:
                if not self.in_memory:
                    self._db.close()
            except Exception as error:
                log.warning("%s could not be closed properly: %s", self.path, error)
            del self._db  # lets go of its lock, whatever closing said
            if self._scratch is not None:
                self._scratch.cleanup()


class Writes:
    """Collects the puts and deletes of one :meth:`Store.write`."""

    def __init__(self, batch: WriteBatch) -> None:
        self._batch = batch

    def put_slots(self, slots: Iterable[tuple[bytes, bytes]]) -> None:
        """Ring records, key and value, as they stand in the changelog."""
        put = self._batch.put
        for ring_key, ring_value in slots:
            put(_SLOT_PREFIX + ring_key[1:], ring_value)

    def put_chunk(self, key: bytes, chunk: Chunk) -> None:
        """Ring records that follow one another."""
        self._batch.put(key, chunk.encoded)

    def delete_chunk(self, key: bytes) -> None:
        """One that holds nothing alive any more."""
        self._batch.delete(key)

    def delete_slot(self, ring_key: bytes) -> None:
        """A ring record whose changelog key got a tombstone."""
        self._batch.delete(_SLOT_PREFIX + ring_key[1:])

    def put_hops(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Hops records, key and value, as they stand in the changelog."""
        for key, value in records:
            self._batch.put(_HOPS_PREFIX + key[1:], value)

    def delete_hops(self, key: bytes) -> None:
        """A hops record whose changelog key got a tombstone."""
        self._batch.delete(_HOPS_PREFIX + key[1:])

    def put_index(self, encoded_id: bytes, sequence: int) -> None:
        """An index entry."""
        self._batch.put(_INDEX_PREFIX + encoded_id, _SEQUENCE.pack(sequence))

    def delete_index(self, encoded_id: bytes) -> None:
        """Forget an index entry."""
        self._batch.delete(_INDEX_PREFIX + encoded_id)


def _fault(path: Path, fault: str) -> Exception:
    """Tell apart what deleting the folder would fix and what it would not. A path in the text is no fault."""
    said = fault.replace(str(path), "").lower()
    if "lock hold by" in said or "while lock file" in said:
        return PrerequisiteError(
            f"{path} is in use by another process: end it, or give this worker its own app.instance"
        )
    if any(item in said for item in _ENVIRONMENT):
        return _unwritable(path, fault)
    return DamagedStoreError(f"{path}: {fault}")


def _memory_folder() -> str | None:
    """Return a folder of the system that is in memory; None = where temporary files go."""
    return _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None


def _unwritable(path: Path, fault: str) -> StateFolderError:
    way_out = "make room or allow it, or point app.data_dir to another folder"
    if "too many open files" in fault.lower():
        way_out = "raise the limit of open files of this process (ulimit -n)"
    return StateFolderError(path, fault, way_out)


def _make_empty(folder: Path) -> None:
    Rdict(str(folder), options=store_options.options(indexed=False)).close()


_EMPTY: Final = EmptyStore(_make_empty)

"""Options of a lane's RocksDB, and memory that all stores of a process share."""

import functools
from typing import Final

from rocksdict import BlockBasedOptions, Cache, Env, Options, WriteBufferManager

_BUFFER_BYTES: Final = 8 * 2**20
_ARENA_BYTES: Final = 2**16
"""Growth step of a write buffer, in bytes. With RocksDB's default of 1/8 of the buffer, 64 nearly empty lanes take 64 MiB."""
BUFFERS_BYTES_MAX: Final = 32 * 2**20
"""Approximate limit of data that all stores of the process keep in memory before it is flushed, in bytes."""
CACHE_BYTES_MAX: Final = 32 * 2**20
"""Limit of the shared cache of file blocks, in bytes, for stores without an index."""
INDEXED_CACHE_MIB: Final = 16
"""Cache of each store with an index, in MiB."""


class _Shared:
    def __init__(self) -> None:
        self.buffers = WriteBufferManager(BUFFERS_BYTES_MAX, False)
        self.cache = Cache(CACHE_BYTES_MAX)


@functools.cache
def shared() -> _Shared:
    """Return the shared memory, created at the first call."""
    return _Shared()


def options(*, indexed: bool) -> Options:
    """Return options for a small store: a lane has some MiB, and a worker has many lanes. ``indexed``: lookups by ID are frequent."""
    found = Options(raw_mode=True)
    if indexed:
        # Bloom filters. RocksDB writes those of set_bloom_filter(), but never uses them. A later set of the block factory undoes this.
        found.optimize_for_point_lookup(INDEXED_CACHE_MIB)
    else:
        blocks = BlockBasedOptions()
        blocks.set_block_cache(shared().cache)
        found.set_block_based_table_factory(blocks)
    found.set_write_buffer_manager(shared().buffers)
    found.create_if_missing(create_if_missing=True)
    found.set_write_buffer_size(_BUFFER_BYTES)
    found.set_arena_block_size(_ARENA_BYTES)
    found.set_max_write_buffer_number(2)
    found.set_max_background_jobs(2)
    # By default each store would start 16 threads for a handful of files, and write statistics.
    found.set_max_file_opening_threads(1)
    found.set_stats_dump_period_sec(0)
    found.set_stats_persist_period_sec(0)
    found.set_keep_log_file_num(2)
    found.set_max_total_wal_size(2 * _BUFFER_BYTES)
    return found


def in_memory(*, indexed: bool) -> Options:
    """Return the options of a store whose files are in a private memory file system."""
    found = options(indexed=indexed)
    found.set_env(Env.mem_env())
    return found

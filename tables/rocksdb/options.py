"""How a lane's RocksDB is set, and what all of a process share."""

import functools
from typing import Final

from rocksdict import BlockBasedOptions, Cache, Env, Options, WriteBufferManager

_BUFFER_BYTES: Final = 8 * 2**20
_ARENA_BYTES: Final = 2**16
"""By which such a buffer grows: with RocksDB's own eighth of it, 64 lanes have 64 MiB before much is in them."""
BUFFERS_BYTES_MAX: Final = 32 * 2**20
"""Bytes that all stores of the process have in memory and not in files yet, approximately."""
CACHE_BYTES_MAX: Final = 32 * 2**20
"""And what they keep of files, but for those with an index: ..."""
INDEXED_CACHE_MIB: Final = 16
"""... each of these has its own."""


class _Shared:
    """Memory of RocksDB that all stores of the process share."""

    def __init__(self) -> None:
        self.buffers = WriteBufferManager(BUFFERS_BYTES_MAX, False)
        self.cache = Cache(CACHE_BYTES_MAX)


@functools.cache
def shared() -> _Shared:
    """Made when the first store is opened."""
    return _Shared()


def options(*, indexed: bool) -> Options:
    """Small: a lane holds some MiB, and a worker has many lanes. ``indexed``: by ID, too."""
    found = Options(raw_mode=True)
    if indexed:
        # Bloom filters: those of set_bloom_filter() are written and never asked. Setting the block factory afterwards undoes this.
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
    # RocksDB's own 16 threads would be made for each store, for a handful of files, and statistics written down by each.
    found.set_max_file_opening_threads(1)
    found.set_stats_dump_period_sec(0)
    found.set_stats_persist_period_sec(0)
    found.set_keep_log_file_num(2)
    found.set_max_total_wal_size(2 * _BUFFER_BYTES)
    return found


def in_memory(*, indexed: bool) -> Options:
    """Return the options of a store whose files are in a memory file system of its own."""
    found = options(indexed=indexed)
    found.set_env(Env.mem_env())
    return found

"""State: the pure ring, its codec, the RocksDB store, the changelogged table, restore."""

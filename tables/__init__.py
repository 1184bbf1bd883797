"""State of a lane: the pure ring, its codec, the RocksDB store, the changelogged table, and restore."""

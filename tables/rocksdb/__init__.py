"""RocksDB of a lane: a cache of its changelog. The only folder that touches rocksdict."""

"""RocksDB of a lane: a cache of its changelog. Only this folder imports rocksdict."""

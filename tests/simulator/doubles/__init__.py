"""Simulated doubles of aiokafka's clients, Faust's transport, and RocksDB."""

"""Spark: its session and its JVM, its Kafka source, its files, and what it fails with."""

"""Spark frames: the Kafka source, columns and schemas, and files."""

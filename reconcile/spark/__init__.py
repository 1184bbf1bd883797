"""Spark frames: the Kafka source, the columns of each frame, and files."""

"""Executors on a cluster of Spark: whether any serves the run, and what the cluster offers."""

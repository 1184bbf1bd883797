"""Fetching of a worker: transport, buffers, intervals."""

"""Fetched, unfinished messages of one partition. No I/O."""

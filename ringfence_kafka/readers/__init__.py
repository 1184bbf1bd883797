"""Readers of ranges of a log and of compacted topics."""

"""Decisions about records: forward, accept, duplicate, quarantine. No I/O."""

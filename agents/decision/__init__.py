"""The decision about each record: forward, accept, duplicate, quarantine. No I/O."""

"""The messages of one partition that are fetched and not finished. No I/O."""

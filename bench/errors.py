"""What can go wrong with a benchmark."""


class BenchError(Exception):
    """The run cannot be used: it failed, or stood still. The text says what happened."""

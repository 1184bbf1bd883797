"""Errors of a benchmark."""

from typing import Final

EXIT_NOT_WELL: Final = 1
"""An output is not exact, or a contender failed."""


class BenchError(Exception):
    """The run cannot be used: it failed, or stood still. The text says what happened."""

"""Collects header names of messages without an ID: their producer may send the ID under another name."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from ringfence_kafka.protocol import wire_names

EVERY_S: Final = 1.0
"""Time between two messages whose header names are counted, in seconds."""
NAMES_MAX: Final = 32
NAME_CHARACTERS_MAX: Final = 80


class MissingIds:
    """Header names of one lane's messages without an ID."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._look_at = 0.0

    def note(self, header_names: Callable[[], Iterable[str]]) -> None:
        """Count the header names of one message, at most once a second, so that other batches cost nothing."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + EVERY_S
        for name in {name[:NAME_CHARACTERS_MAX] for name in header_names()}:
            if name.startswith(wire_names.RESERVED_PREFIX):
                continue
            if name in self._counts or len(self._counts) < NAMES_MAX:
                self._counts[name] += 1

    @property
    def names(self) -> list[str]:
        """Header names, most frequent first."""
        return [name for name, _ in self._counts.most_common()]

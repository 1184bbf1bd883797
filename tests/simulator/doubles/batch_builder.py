"""Double of aiokafka's BatchBuilder."""

import asyncio
from typing import Any, Final

from tests.simulator.kafka.logs import Headers

RECORD_BYTES: Final = 70
"""Bytes of a record besides its content."""


class Builder:
    """A record batch."""

    def __init__(self, limit: int, now_ms: int) -> None:
        self.records: list[tuple[int, bytes | None, bytes | None, Headers]] = []
        self._limit = limit
        self._bytes = 0
        self._now_ms = now_ms
        loop: Any = asyncio.get_running_loop()
        self.made_at: float = loop.time()
        self.by: Any = None
        self.epoch = self.sequence = -1

    def __repr__(self) -> str:
        return f"{self.records}"

    def append(
        self, *, timestamp: int | None, key: bytes | None, value: bytes | None, headers: Any
    ) -> object:
        size = RECORD_BYTES + len(key or b"") + len(value or b"")
        if self.records and self._bytes + size > self._limit:
            return None
        self._bytes += size
        self.records.append((self._now_ms if timestamp is None else timestamp, key, value, tuple(headers)))
        return self

    def size(self) -> int:
        return self._bytes

    def record_count(self) -> int:
        return len(self.records)

    def _set_producer_state(self, _producer_id: int, epoch: int, sequence: int) -> None:
        self.epoch, self.sequence = epoch, sequence
        if self.by is not None:
            self.by.begins()

    def _build(self) -> "Builder":
        return self

"""A reader of committed data that polls while faults strike, and reports whether it ever saw a transaction in part when it had read all."""

import threading
from collections.abc import Mapping
from typing import Any, Final, Self

from confluent_kafka import TopicPartition

from tests.support import kafka
from tests.support.kafka import WAIT_S

_POLL_S: Final = 0.2


class Watcher(threading.Thread):
    """Reads the accepted topics of transactions until the block ends, and keeps the parts that it has seen at rest."""

    def __init__(self, bootstrap: str, topics: Mapping[str, int]) -> None:
        super().__init__(daemon=True)
        self.torn: list[str] = []
        self.rests = 0
        self.whole: set[bytes] = set()
        self._parts: dict[bytes, set[bytes]] = {}
        self._reached = {(name, index): 0 for name, count in topics.items() for index in range(count)}
        self._ending = threading.Event()
        self._consumer = kafka.reader(bootstrap, wait_ms=50)
        self._consumer.assign([TopicPartition(*place, 0) for place in self._reached])
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join()
        self._consumer.close()

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                self._poll()
        except BaseException as error:
            self.error = error

    def _poll(self) -> None:
        messages = self._consumer.consume(5_000, _POLL_S)
        for message in messages:
            place = (message.topic() or "", message.partition() or 0)
            offset = message.offset() or 0
            if message.error():  # the end of a partition, as far as it may be read
                self._reached[place] = max(self._reached[place], offset)
                continue
            self._reached[place] = offset + 1
            headers: dict[str, Any] = dict(message.headers() or [])
            if "_RF_TX_PART" in headers:
                self._take(headers["_RF_SOURCE"], headers["_RF_TX_PART"])
        # Positions first, then ends: by then all parts of a transaction that was read stand in their partitions.
        if self._parts and all(self._reached[item] >= self._end(item) for item in self._reached):
            self.rests += 1
            self.torn += [
                f"{source.decode()}: {sorted(parts)}"
                for source, parts in self._parts.items()
                if source not in self.whole
            ]

    def _take(self, source: bytes, part: bytes) -> None:
        parts = self._parts.setdefault(source, set())
        parts.add(part)
        if len(parts) == int(part.partition(b"/")[2]):
            self.whole.add(source)

    def _end(self, place: tuple[str, int]) -> int:
        return int(self._consumer.get_watermark_offsets(TopicPartition(*place), WAIT_S)[1])

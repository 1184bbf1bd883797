"""A worker over several addresses, and what comes out of it."""

from dataclasses import dataclass
from typing import Any

from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.worker import WorkerProcess, wait_for


@dataclass(frozen=True)
class Running:
    """A worker and its broker."""

    bootstrap: str
    worker: WorkerProcess
    addresses: list[dict[str, Any]]
    app_id: str

    def outcome(self, address: str, records: list[Sent], partition: int = 0) -> list[Got]:
        """Send, wait until the lanes are through, and read what was accepted."""
        kafka.send(self.bootstrap, address, records, partition)
        return self.settled(address)

    def settled(self, address: str) -> list[Got]:
        """What was accepted, once the lanes are through."""
        self.through(address)
        return self.read(f"{address}.accepted", self.partitions(address))

    def through(self, address: str) -> None:
        """Wait until the lanes have committed all input and all that was forwarded."""
        count = self.partitions(address)
        for topic in (address, f"{self.app_id}-{address}-forward"):
            wait_for(
                lambda topic=topic: kafka.consumed(self.bootstrap, self.app_id, topic, count),  # type: ignore[misc]
                lambda topic=topic: f"{topic}\n{self.worker.health()}\n{self.worker.log()}",  # type: ignore[misc]
            )

    def read(self, topic: str, partitions: int | None = None) -> list[Got]:
        return kafka.read_all(self.bootstrap, topic, partitions or 1)

    def partitions(self, address: str) -> int:
        return int(next(item["partitions"] for item in self.addresses if item["name"] == address))

"""Lanes of several addresses of one partition each, as a worker has them, without Faust."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agents.batch.batch import FetchedBatch
from agents.lane.cursor import read_again
from agents.lane.lane import Lane
from agents.topic_checks.addresses import AddressFaults
from agents.worker.lanes import Lanes
from app.commands.topics import topics
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings
from tests.support import kafka
from tests.support.lanes import NOW, Group, until


class AddressLanes:
    """Lanes of these addresses, which a test assigns as a group would."""

    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        self.settings = settings
        self.cluster = cluster
        self.names = [address.name for address in settings.addresses]
        self.lanes = Lanes(settings, cluster, AddressFaults(settings, cluster))

    async def assign(self, *names: str, known: dict[str, list[str]] | None = None) -> None:
        """Assign the partitions of these addresses, or of all; ``known``: the known faults of addresses."""
        if known:
            faults = AddressFaults(self.settings, self.cluster, known=known)
            self.lanes = Lanes(self.settings, self.cluster, faults)
        app_id = self.settings.app.id
        mine = {(topic, 0) for name in names or self.names for topic in (name, f"{app_id}-{name}-forward")}
        await self.lanes.assigned(mine, Group())

    def state(self, name: str) -> tuple[str, str]:
        """State and reason, as ``/health`` shows them."""
        report = self.lanes.health.report()[f"{name}-0"]
        return report["state"], report.get("reason", "")

    async def until_state(self, state: str, *names: str) -> None:
        await until(
            lambda: all(self.state(name)[0] == state for name in names),
            lambda: str(self.lanes.health.report()),
        )

    async def feed(self, name: str, record: kafka.Sent) -> Lane:
        """Send the first record of an address, and wait until its lane has processed it."""
        (lane,) = [lane for lane in self.lanes.lanes if lane.name == f"{name}-0"]
        kafka.send(self.settings.kafka.bootstrap_servers, name, [record])
        batch = await read_again(self.cluster, FetchedBatch(name, 0, 0, 1, [], NOW))
        assert batch is not None
        await lane.offer(batch)
        await until(lambda: lane.next == 1, lambda: f"{lane.state}: {lane.reason}")
        return lane


@asynccontextmanager
async def address_lanes(
    bootstrap: str, folder: Path, *addresses: dict[str, Any]
) -> AsyncIterator[AddressLanes]:
    """Yield the lanes, with topics as ``topics create`` makes them."""
    settings = validate(
        {
            "kafka": {"bootstrap_servers": bootstrap},
            "app": {"id": kafka.unique("scene"), "data_dir": str(folder)},
            "addresses": [{"partitions": 1, **address} for address in addresses],
        }
    )
    await topics.ensure(settings)
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        made = AddressLanes(settings, cluster)
        try:
            yield made
        finally:
            await made.lanes.stop()

"""Lanes on a real broker, without Faust: the test is the consumer group and decides what is fetched when."""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka.admin import AdminClient

from agents.batch.batch import FetchedBatch
from agents.lane.lane import Lane, LaneState
from agents.lane.open import Opening
from agents.lane.opening.table_opening import SharedParts
from agents.rules.agreement import Agreement
from agents.worker.lanes import Lanes
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.process import failpoints
from ringfence_kafka.readers.log_reader import LogReader
from tests.support import kafka
from tests.support.records.stored_batches import raw_records

LIMIT_S = 180.0
NOW = 10**9
"""More rewinds than any test makes."""


def shared_parts(settings: Settings, cluster: Cluster) -> SharedParts:
    """Return the parts of a worker that has one lane, and is the only one."""
    return SharedParts(
        settings=settings, cluster=cluster, agreement=Agreement(settings), reader=LogReader(settings.kafka)
    )


class Group:
    """The test's answers to a lane's questions about its consumer group."""

    def __init__(self) -> None:
        self.member = True
        self.asked = 0
        self.rewinds: defaultdict[str, list[int]] = defaultdict(list)

    async def confirm(self) -> bool:
        self.asked += 1
        return self.member

    async def rewind(self, topic: str, partition: int, offset: int) -> int:
        self.rewinds[topic].append(offset)
        return len(self.rewinds[topic])


class Gate:
    """Holds a task at a fail point until it is opened."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._opened = asyncio.Event()

    async def __call__(self, point: str, lane: str) -> None:
        self.reached.set()
        await self._opened.wait()

    def open(self) -> None:
        self._opened.set()

    async def wait(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            await self.reached.wait()


@contextlib.contextmanager
def planted(point: str, lane: str, action: failpoints.Action) -> Iterator[None]:
    remove = failpoints.install(point, lane, action)
    try:
        yield
    finally:
        remove()


class Bench:
    """One address, and any number of lanes that compete for its partition 0."""

    def __init__(self, bootstrap: str, folder: Path, partitions: int, **address: Any) -> None:
        self.bootstrap = bootstrap
        self.partitions = partitions
        self.name = kafka.unique("lane")
        self.app_id = f"{self.name}-app"
        self.settings: Settings = validate(
            {
                "kafka": {"bootstrap_servers": bootstrap},
                "app": {"id": self.app_id, "data_dir": str(folder)},
                "addresses": [{"name": self.name, **address}],
            }
        )
        self.accepted = f"{self.name}.accepted"
        self.changelog = f"{self.app_id}-{self.name}-changelog"
        self.forward = f"{self.app_id}-{self.name}-forward"
        self.journal = f"{self.app_id}-journal"
        self.folder = folder
        self.cluster = Cluster(self.settings.kafka, self.app_id)
        self._clusters = [self.cluster]
        self._lanes: list[Lane] = []

    async def reached_at(self, bootstrap: str, properties: Mapping[str, str] | None = None) -> Cluster:
        """Return the cluster as a worker sees it with other bootstrap servers, or with properties of its own."""
        update = {"bootstrap_servers": bootstrap, "properties": dict(properties or {})}
        kafka_settings = self.settings.kafka.model_copy(update=update)
        cluster = Cluster(kafka_settings, self.app_id)
        await cluster.start()
        self._clusters.append(cluster)
        return cluster

    def lane(
        self,
        folder: str = "one",
        *,
        resident_ids_max: int = 1_000_000,
        cluster: Cluster | None = None,
        **address: Any,
    ) -> Lane:
        """Return a lane with its RocksDB in a folder of this name, with settings of the address for this lane alone."""
        cluster = cluster or self.cluster
        app = self.settings.app.model_copy(update={"instance": folder, "resident_ids_max": resident_ids_max})
        settings = self.settings.model_copy(update={"app": app, "kafka": cluster.kafka})
        own = settings.addresses[0].model_copy(update=address)
        lane = Lane(Opening(shared_parts(settings, cluster), own, 0))
        self._lanes.append(lane)
        return lane

    async def opened(
        self, folder: str = "one", group: Group | None = None, cluster: Cluster | None = None
    ) -> Lane:
        lane = self.lane(folder, cluster=cluster)
        lane.start(group or Group())
        await until(lambda: lane.state is LaneState.OPEN, lambda: f"{lane.state}: {lane.reason}")
        return lane

    def send(self, *records: kafka.Sent) -> None:
        kafka.send(self.bootstrap, self.name, records)

    async def fetch(
        self, begin: int, end: int, seek: int = NOW, topic: str = "", partition: int = 0
    ) -> FetchedBatch:
        """Fetch the records ``begin <= offset < end`` of the input, or of another topic, as one batch after all rewinds."""
        topic = topic or self.name
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, isolation_level="read_committed")
        await consumer.start()
        try:
            tp = TopicPartition(topic, partition)
            consumer.assign([tp])
            consumer.seek(tp, begin)
            records: list[Any] = []
            async with asyncio.timeout(LIMIT_S):
                while await consumer.position(tp) < end:
                    records += (await consumer.getmany(tp, timeout_ms=200)).get(tp, [])
        finally:
            await consumer.stop()
        due = [record for record in records if record.offset < end]
        # As a worker's consumer does, if the core can read the records.
        return FetchedBatch(topic, partition, begin, end, raw_records(due) or due, seek)

    async def feed(self, lane: Lane, begin: int, end: int) -> None:
        await lane.offer(await self.fetch(begin, end))
        await until(lambda: lane.next >= end, lambda: f"next is {lane.next}, {lane.state}: {lane.reason}")

    async def held(self, lane: Lane | Lanes, point: str, begin: int, end: int) -> Gate:
        """Offer a batch, and wait until it has reached a fail point; the gate holds it there, and nothing after it."""
        gate = Gate()
        with planted(point, f"{self.name}-0", gate):
            await lane.offer(await self.fetch(begin, end))
            await gate.wait()
        return gate

    def output(self) -> list[kafka.Got]:
        return kafka.read_all(self.bootstrap, self.accepted, self.partitions)

    def accepted_ids(self) -> list[bytes | None]:
        return [item.id for item in self.output()]

    def committed(self) -> int:
        return kafka.committed(self.bootstrap, self.app_id, self.name)[0]

    def delete_group(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.delete_consumer_groups([self.app_id]).values():
            future.result(LIMIT_S)

    async def close(self) -> None:
        await asyncio.gather(*(lane.dispose() for lane in self._lanes))
        await asyncio.gather(*(cluster.stop() for cluster in self._clusters))


@contextlib.asynccontextmanager
async def bench(
    bootstrap: str,
    folder: Path,
    accepted_config: dict[str, str] | None = None,
    partitions: int = 1,
    **address: Any,
) -> AsyncIterator[Bench]:
    made = Bench(bootstrap, folder, partitions, **address)
    kafka.create_topics(
        bootstrap,
        {
            made.name: (partitions, {}),
            made.accepted: (partitions, accepted_config or {}),
            made.changelog: (partitions, {"cleanup.policy": "compact"}),
            made.forward: (partitions, {}),
            f"{made.name}.quarantine": (partitions, {}),
            f"{made.name}.duplicates": (partitions, {}),
            made.journal: (1, {}),
        },
    )
    await made.cluster.start()
    try:
        yield made
    finally:
        await made.close()


async def until(
    condition: Callable[[], bool], otherwise: Callable[[], str], limit_s: float = LIMIT_S
) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, otherwise()
        await asyncio.sleep(0.01)


def ids(first: int, last: int) -> list[kafka.Sent]:
    return [kafka.Sent(b"%d" % index, b"group") for index in range(first, last)]

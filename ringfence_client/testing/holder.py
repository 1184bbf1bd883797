"""One process that holds the partition: the consumer's own parts around a cluster in memory."""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from ringfence_client.consumer.partition_task import Lost, report_lost
from ringfence_client.dispatch.dispatcher import Dispatcher
from ringfence_client.handlers.handler import Handler
from ringfence_client.handlers.message import MessageFactory
from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.partition.dead_letters import DeadLetters, DeadLetterTopic
from ringfence_client.partition.partition import HeldPartition
from ringfence_client.partition.progress_writer import ProgressWriter
from ringfence_client.progress import progress_topic
from ringfence_client.progress.lease import Lease
from ringfence_client.progress.progress_record import Progress
from ringfence_client.progress.resume_offset import Log, resume
from ringfence_client.sends.destinations import Destinations
from ringfence_client.sends.partition_sends import PartitionSends
from ringfence_client.sends.state_reader import StateReader
from ringfence_client.testing.memory_cluster import MemoryCluster, MemoryLogs, MemoryProducer, VirtualTime
from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_client.window.window import Window
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.topics import ADDED_BYTES, MESSAGE_BYTES_DEFAULT
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.producer.transactional import TransactionalProducer
from ringfence_kafka.protocol import wire_names

CLOSE_LIMIT_S: Final = 8.0
TOPIC_ID: Final = "test"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Parts that all holders of the partition share. ``holds`` returns whether transactions wait now."""

    handler: Handler
    options: ConsumerOptions
    lost: Lost | None
    settings: Settings
    address: AddressSettings
    group: str
    logs: MemoryLogs
    time: VirtualTime
    holds: Callable[[], bool]

    @property
    def accepted(self) -> list[Any]:
        """Records of the accepted topic."""
        return self.logs.logs[self.address.accepted_topic, 0]

    @property
    def progress_topic(self) -> str:
        """Name of the progress topic."""
        return wire_names.progress_topic(self.settings.app.id)

    @property
    def dead_letter_topic(self) -> str:
        """Name of the dead-letter topic."""
        return wire_names.dead_letter_topic(self.address.name)

    def progress(self, lease: Lease) -> Progress | None:
        """Return the progress that the last holder has committed; None = no progress."""
        found = self.logs.latest(self.progress_topic)
        return progress_topic.decode(found, lease.key) if lease.key in found else None


class Holder:
    """A holder, from the opening of the partition until another process has it."""

    def __init__(self, scene: Scene) -> None:
        """Prepare a holder within an event loop. Nothing starts yet."""
        self._scene = scene
        options, logs = scene.options, scene.logs
        lease = Lease(scene.group, scene.address.accepted_topic, 0, f"{options.name}/{uuid.uuid4().hex[:8]}")
        predecessor = scene.progress(lease)
        found = resume(predecessor, Log(TOPIC_ID, None, 0, len(scene.accepted)))
        token = 1 + (predecessor.token if predecessor is not None else 0)
        lease = Lease(lease.group, lease.topic, 0, lease.holder, token=token, topic_id=TOPIC_ID)
        self.window = Window(
            found.progress,
            memory=MemoryBudget(options.memory_max),
            prefetch=options.held_max,
            records_max=options.records_max,
        )
        cluster = cast("Cluster", MemoryCluster(logs))
        self._destinations = Destinations(scene.settings, scene.address, scene.group, cluster)
        self.producer = MemoryProducer(logs, scene.holds)
        producer = cast("TransactionalProducer", self.producer)

        async def take_back(_: Callable[[], bool]) -> tuple[TransactionalProducer, Progress | None]:
            return producer, scene.progress(lease)

        async def explain(_: Exception) -> str:
            return ""

        self.writer = ProgressWriter(
            lease,
            self.window,
            producer,
            lambda: (scene.progress_topic, 0),
            DeadLetters(
                DeadLetterTopic(scene.dead_letter_topic, 1, MESSAGE_BYTES_DEFAULT + ADDED_BYTES), scene.group
            ),
            take_back,
            explain,
            PartitionSends(StateReader(cluster, self._destinations, cluster)),
            options=options,
            parts=predecessor.parts if predecessor is not None else (),
        )
        self.held = HeldPartition(lease, self.window, self.writer, self._record, self._broke)
        self.factory = MessageFactory(scene.address)
        self.dispatcher = Dispatcher(scene.handler, self.factory, options, scene.time)
        self.broken = False
        """The holder stopped after an error of the product."""

    async def open(self) -> None:
        """Write the lease, and start to hand out messages."""
        self.writer.start(self._broke, self._broke)
        await self.writer.persisted()
        self.dispatcher.start()
        self.dispatcher.add_partition(self.held)
        self.feed(self._scene.accepted[self.window.end :])

    def feed(self, records: Sequence[Any]) -> None:
        """Hand out the unfinished ones of these records."""
        self.window.feed(records)
        self.window.reached(len(self._scene.accepted))
        for offset in self.window.redrives.missing():
            self.window.add_redriven(self._scene.accepted[offset])
        self.writer.count_changes()
        self.dispatcher.wake()

    @property
    def busy(self) -> bool:
        """Whether work continues that ends without virtual time or a waiting commit."""
        if self.dispatcher.runs.left_behind or self.dispatcher.running:
            return True
        return self.dispatcher.unsettled and not self.producer.holding

    async def give_away(self) -> None:
        """Give the partition to another consumer: drain, write, and release."""
        await self.dispatcher.drain(self.held, self._scene.options.drain_timeout)
        ended = await self.dispatcher.drop(self.held)
        await report_lost(self._scene.lost, str(self.held), self.held.groups)
        await self.writer.close(CLOSE_LIMIT_S, released=ended)
        await self._end()

    async def lose(self) -> None:
        """Stop after another consumer has taken the partition. Outcomes do not count any more."""
        await self.dispatcher.drop(self.held)
        await report_lost(self._scene.lost, str(self.held), self.held.groups)
        await self._end()

    async def crash(self) -> None:
        """Stop without a final write, like a killed process."""
        self.held.lose()
        await self._end()

    async def _end(self) -> None:
        self._scene.time.forget()
        await self.dispatcher.stop()
        await self.writer.abandon()
        await self._destinations.topics.stop()
        self.window.cache.close()
        self.held.sends.states.close()

    async def _record(self, _: HeldPartition, offset: int) -> Any:
        record = self._scene.accepted[offset]
        self.window.unpark([record], always=True)
        await asyncio.sleep(0)
        return record

    def _broke(self, _: object = None) -> None:
        self.broken = True

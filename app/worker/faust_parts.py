"""Private parts of Faust's consumer, assignor and worker, under public names.

Only workers import this module: consumers and bridges run without Faust.
"""

import logging
import signal
from collections.abc import Mapping
from typing import Any, Final

import faust
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from faust.assignor.client_assignment import ClientAssignment, ClientMetadata
from faust.assignor.partition_assignor import PartitionAssignor
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from ringfence_kafka.process import signals

log: Final = logging.getLogger("ringfence.worker")


class ConsumerThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    """Faust's thread that owns the aiokafka consumer."""

    @property
    def made_consumer(self) -> AIOKafkaConsumer | None:
        """The consumer; None = not created yet."""
        return self._consumer

    @property
    def connected_consumer(self) -> AIOKafkaConsumer:
        """The consumer. It must exist."""
        return self._ensure_consumer()

    def prepare(self, consumer: AIOKafkaConsumer) -> None:
        """Change a consumer before it connects."""

    async def fetch_batches(self, limit_s: float) -> Any:
        """Return the fetched batches by partition, after waiting up to ``limit_s`` seconds for the first."""
        raise NotImplementedError

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        self.prepare(consumer)
        return consumer

    async def _fetch_records(
        self,
        consumer: AIOKafkaConsumer,
        active_partitions: set[TP],
        timeout: float | None = None,  # noqa: ASYNC109 - Faust's signature
        max_records: int | None = None,
    ) -> Any:
        return await self.fetch_batches(timeout or 0.0)  # Faust's partitions are from before the wait


class Consumer(driver.Consumer):  # type: ignore[misc]
    """Faust's consumer, on Faust's own loop."""

    thread_class: type[ConsumerThread]

    @property
    def owned_thread(self) -> Any:
        """Thread that owns the aiokafka consumer."""
        return self._thread

    @property
    def active_partitions(self) -> set[TP]:
        """Partitions whose records Faust wants."""
        partitions: set[TP] = self._active_partitions
        return partitions

    @property
    def buffered_partitions(self) -> set[TP]:
        """Partitions whose stream buffer is full."""
        partitions: set[TP] = self._buffered_partitions
        return partitions

    async def fetch(self, limit_s: float) -> Any:
        """Return batches of the active partitions from the thread; wait up to ``limit_s`` seconds."""
        return await self._getmany(self._active_partitions, limit_s)

    def _new_consumer_thread(self) -> ConsumerThread:
        return self.thread_class(self, loop=self.loop, beacon=self.beacon)


class Assignor(PartitionAssignor):  # type: ignore[misc]
    """Faust's assignor without its assignment strategy."""

    @property
    def own_url(self) -> str:
        """URL of this worker."""
        return str(self._url)

    def stated(self, metadata: ConsumerProtocolMemberMetadata) -> Any:
        """Return the metadata that a member announced when it joined, with ``url`` and ``assignment``."""
        return self._get_client_metadata(metadata)

    def assign_members(
        self, cluster: Any, members: Mapping[str, ConsumerProtocolMemberMetadata], stated: Mapping[str, Any]
    ) -> Mapping[str, Mapping[str, list[int]]]:
        """Return the partitions of each member by topic."""
        raise NotImplementedError

    def _perform_assignment(
        self, cluster: Any, member_metadata: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> Any:
        stated = {name: self.stated(joined) for name, joined in member_metadata.items()}
        self._update_member_urls(stated)
        assignments = {
            member: ClientAssignment(actives=actives, standbys={})
            for member, actives in self.assign_members(cluster, member_metadata, stated).items()
        }
        topics = {topic for value in member_metadata.values() for topic in value.subscription}
        return self._protocol_assignments(
            assignments,
            self._get_changelog_distribution(assignments),
            self._get_external_topic_distribution(assignments),
            dict.fromkeys(topics, 0),
        )

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Take over the assignment from the group.

        A static member may get the metadata of its predecessor with the predecessor's URL, which Faust's own
        method refuses.
        """
        metadata = ClientMetadata.loads(self._decompress(assignment.user_data))
        self._assignment = metadata.assignment
        self._topic_groups = dict(metadata.topic_groups)
        self._active_tps = metadata.assignment.active_tps
        self._standby_tps = metadata.assignment.standby_tps
        self.changelog_distribution = metadata.changelog_distribution
        self.external_topic_distribution = metadata.external_topic_distribution


class Worker(faust.Worker):  # type: ignore[misc]
    """Faust's worker with other signal handlers: SIGHUP stops it in order, no signal starts a debugger."""

    def _install_signal_handlers_unix(self) -> None:
        super()._install_signal_handlers_unix()
        if signals.ends_at_hang_up():
            self.loop.add_signal_handler(signal.SIGHUP, self._on_sigterm)

    def _on_sigusr2(self) -> None:
        log.info("SIGUSR2 is ignored; SIGUSR1 logs what all tasks wait for, and SIGTERM stops the worker")

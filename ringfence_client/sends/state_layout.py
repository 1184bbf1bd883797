"""Layout of the state topic: the hash of a group chooses the partition of its state.

If the topic got more partitions, or was deleted, groups would seem to have no states.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ringfence_client.handlers.group_names import shown
from ringfence_client.sends.destinations import Destinations
from ringfence_client.sends.target_topics import SendError
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.protocol.key_hash import key_hash
from ringfence_kafka.readers.log_reader import LogReader

log: Final = logging.getLogger("ringfence.consumer")

HEAD: Final = 500
"""Number of offsets of each partition that are checked before any state counts as absent."""


def home_of(group: bytes, partitions: int) -> int:
    """Return the partition of a group's state."""
    return key_hash(group) % partitions


class StateLayout:
    """Checks of one consumer."""

    def __init__(self, cluster: Cluster, destinations: Destinations) -> None:
        self._cluster = cluster
        self._destinations = destinations
        self._checked = 0
        """Number of partitions of the topic at the last check."""
        self._ends: dict[int, int] = {}
        """End of each partition when it was read last."""
        self._deleted: set[str] = set()
        """Kafka's IDs of deleted topics that were reported."""

    async def check(self, partitions: int, reader: LogReader) -> None:
        """Check the first records of all partitions, once; 0 partitions = the topic does not exist.

        Raises:
            SendError: The topic got more partitions.
            KafkaError: It cannot be read now.
        """
        if partitions > 1 and partitions != self._checked:
            for partition in range(partitions):
                await self._check_head(partition, partitions, reader)
        self._checked = partitions

    async def _check_head(self, partition: int, partitions: int, reader: LogReader) -> None:
        topic, offsets = self._destinations.state_topic, self._cluster.offsets
        start = await offsets.log_start(topic, partition)
        end = min(await offsets.stable_end(topic, partition), start + HEAD)

        async def consume(records: Sequence[Any]) -> None:
            self.require_home(partition, partitions, records)

        await reader.read_range(topic, partition, start, end, consume)

    def require_home(self, partition: int, partitions: int, records: Iterable[Any]) -> None:
        """Check that records are in the partitions of their groups.

        Raises:
            SendError: A record is in another partition.
        """
        for record in records:
            home = home_of(record.key or b"", partitions)
            if home != partition:
                raise SendError(
                    f"{self._destinations.state_topic}/{partition} has a state of group "
                    f"{shown(record.key or b'')}, which belongs in partition {home} of {partitions}: the "
                    "topic was given more partitions, so messages wait. Copy it into a new topic of this "
                    "name, by the hash of the key, or delete it to begin without states"
                )

    def created(self, partitions: int) -> None:
        """Record that this consumer has created the topic."""
        self._checked = partitions
        log.info("%s is created, with %d partitions", self._destinations.state_topic, partitions)

    def replaced(self, topic_id: str) -> None:
        """Report, once, that the topic with this ID is gone."""
        if topic_id not in self._deleted:
            self._deleted.add(topic_id)
            self._report_deleted("was deleted")

    def set_end(self, partition: int, end: int) -> None:
        """Record the end of a partition that is being read."""
        if end < self._ends.get(partition, 0):
            self._report_deleted("was deleted and created again, or lost records")
        self._ends[partition] = end

    def _report_deleted(self, happened: str) -> None:
        self._checked = 0
        self._ends.clear()
        log.error(
            "%s %s: its states are lost, and handlers begin without states. Restore them, or reset the "
            "offsets of this consumer group to compute them again",
            self._destinations.state_topic, happened,
        )  # fmt: skip

"""Reader of the state topic, whose partitions the hash of a group chooses, and a cache of its values.

If the topic got more partitions, or was deleted, groups would seem to have no states.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ringfence_client.handlers.group_names import shown
from ringfence_client.sends.destinations import Destinations
from ringfence_client.sends.target_topics import SendError
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.protocol.key_hash import key_hash
from ringfence_kafka.readers.log_reader import LogReader

log: Final = logging.getLogger("ringfence.consumer")

CACHE_BYTES: Final = 64 * 2**20
"""Limit of a consumer's cached values, all partitions together, in bytes."""
ENTRY_BYTES: Final = 250
"""Cost of a value beside its length, in bytes."""
HEAD: Final = 500
"""Number of offsets of each partition that are checked before any state counts as absent."""


def home_of(group: bytes, partitions: int) -> int:
    """Return the partition of a group's state."""
    return key_hash(group) % partitions


class StateCache:
    """Values of all partitions of a consumer. The least recently used ones are evicted first."""

    def __init__(self, bytes_max: int = CACHE_BYTES) -> None:
        self._values: OrderedDict[tuple[int, bytes], bytes] = OrderedDict()
        self._bytes_max = bytes_max
        self._bytes = 0

    def get(self, store: int, group: bytes) -> bytes | None:
        """Return a value; None = not cached."""
        value = self._values.get((store, group))
        if value is not None:
            self._values.move_to_end((store, group))
        return value

    def put(self, store: int, group: bytes, value: bytes | None) -> None:
        """Cache a value; None = delete it."""
        old = self._values.pop((store, group), None)
        if old is not None:
            self._bytes -= len(old) + ENTRY_BYTES
        if value is None:
            return
        self._values[store, group] = value
        self._bytes += len(value) + ENTRY_BYTES
        while self._bytes > self._bytes_max:
            _, evicted = self._values.popitem(last=False)
            self._bytes -= len(evicted) + ENTRY_BYTES

    def drop(self, store: int) -> None:
        """Delete all values of a partition that another consumer may hold now."""
        for key in [key for key in self._values if key[0] == store]:
            self.put(*key, None)


class StateReader:
    """Reader that the stores of one consumer share."""

    def __init__(self, cluster: Cluster, destinations: Destinations, log_reader: Any = None) -> None:
        self.cluster = cluster
        self.destinations = destinations
        self.cache = StateCache()
        self.log_reader: LogReader = log_reader or LogReader(cluster.kafka, resting_max=4)
        self._stores = 0
        self._checked = 0
        """Number of partitions of the topic at the last check."""
        self._ends: dict[int, int] = {}
        """End of each partition when it was read last."""
        self._deleted: set[str] = set()

    async def stop(self) -> None:
        """Disconnect."""
        await self.log_reader.stop()

    def new_number(self) -> int:
        """Return a number for a store. A partition that returns gets another one."""
        self._stores += 1
        return self._stores

    async def check(self, partitions: int) -> None:
        """Check the first records of all partitions, once; 0 partitions = the topic does not exist."""
        if partitions > 1 and partitions != self._checked:
            for partition in range(partitions):
                await self._check_head(partition, partitions)
        self._checked = partitions

    async def _check_head(self, partition: int, partitions: int) -> None:
        topic, offsets = self.destinations.state_topic, self.cluster.offsets
        start = await offsets.log_start(topic, partition)
        end = min(await offsets.stable_end(topic, partition), start + HEAD)

        async def consume(records: Sequence[Any]) -> None:
            self.require_home(partition, partitions, records)

        await self.log_reader.read_range(topic, partition, start, end, consume)

    def require_home(self, partition: int, partitions: int, records: Iterable[Any]) -> None:
        """Raise SendError for a record outside of its group's partition."""
        for record in records:
            home = home_of(record.key or b"", partitions)
            if home != partition:
                raise SendError(
                    f"{self.destinations.state_topic}/{partition} has a state of group "
                    f"{shown(record.key or b'')}, which belongs in partition {home} of {partitions}: the "
                    "topic was given more partitions, so messages wait. Copy it into a new topic of this "
                    "name, by the hash of the key, or delete it to begin without states"
                )

    def created(self, partitions: int) -> None:
        """Record that this consumer has created the topic."""
        self._checked = partitions
        log.info("%s is created, with %d partitions", self.destinations.state_topic, partitions)

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
            self.destinations.state_topic, happened,
        )  # fmt: skip

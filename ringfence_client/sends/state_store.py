"""States of the groups of one partition, in front of the compacted state topic.

A takeover reads nothing. The first message of a group causes the state partition to be read to its end, once. Then the offset of each
group's last state is known. Values are cached, and an evicted value is read again by its offset. Only the holder of a partition writes the
states of its groups, so the offsets stay valid while it is held.
"""

import asyncio
import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from aiokafka.errors import KafkaError

from ringfence_client.sends.outbox import RECORD_BYTES, Outbox, OutgoingRecord
from ringfence_client.sends.state_reader import StateReader, home_of
from ringfence_client.sends.target_topics import FRESH_S, HiddenTopicError, SendError

log: Final = logging.getLogger("ringfence.consumer")

READ_TRIES: Final = 3
CHECKED: Final = 100
"""Number of records in each part of a reading whose partitions are checked against the hashes of their keys."""
WAITED_S: Final = 5.0
"""Seconds for which a group counts as waiting after a failed reading. Readings are repeated each second."""
UNREAD: Final = object()
"""Stands for a state that must be read."""
UNKNOWN: Final = -1
"""Stands for an offset that the broker did not return."""


class StateStore:
    """States of one held partition."""

    def __init__(self, reader: StateReader, outbox: Outbox, topic_id: str = "") -> None:
        """Prepare a store. ``outbox`` has the uncommitted states, and ``topic_id`` is that of the last holder."""
        self._reader = reader
        self._outbox = outbox
        self._number = reader.new_number()
        self.topic_id = topic_id
        """Kafka's ID of the topic with the states; empty = there were none, or it is unknown."""
        self._partitions = 0
        """Number of partitions of the state topic; 0 = it did not exist at the last lookup."""
        self._looked = False
        """Whether the topic was looked up, and was readable since."""
        self._offsets: dict[bytes, int] = {}
        self._scanned: set[int] = set()
        """Partitions of the state topic that were read to their ends."""
        self._scanning = asyncio.Lock()
        self._written: set[bytes] = set()
        """Groups with a state that was committed since the last reading of a partition began."""
        self.fault = ""
        """Reason why no state is known; empty = states are known. Handlers that use no state run anyway."""
        self._look_again_at = math.inf
        self._failed: dict[bytes, tuple[float, str]] = {}
        """Groups whose states were unreadable: time by the monotonic clock, and reason."""

    @property
    def waiting(self) -> dict[bytes, str]:
        """Groups whose messages wait because their states cannot be read, with the reasons."""
        since = time.monotonic() - WAITED_S
        return {group: why for group, (at, why) in self._failed.items() if at > since}

    def record_reading(self, group: bytes, fault: str = "") -> None:
        """Record a reading of a group's state that succeeded, or the reason why it failed."""
        self._failed.pop(group, None)
        if fault:
            self._failed[group] = time.monotonic(), fault

    @property
    def is_absent(self) -> bool:
        """Return whether no group has a state, because the topic does not exist."""
        return self._looked and not self._partitions and not self.fault

    def peek(self, group: bytes) -> Any:
        """Return the known state of a group: bytes, None = no state, or :data:`UNREAD`."""
        for states in (self._outbox.states, self._outbox.taken_states):
            if group in states:
                return states[group]
        if not self._looked:
            return UNREAD
        if not self._partitions:
            return None if not self.fault or time.monotonic() < self._look_again_at else UNREAD
        if self._partition(group) not in self._scanned:
            return UNREAD
        if group not in self._offsets:
            return None
        value = self._reader.cache.get(self._number, group)
        return UNREAD if value is None else value

    async def load(self, group: bytes) -> bytes | None:
        """Read the state of a group. Raises KafkaError, or SendError if the cluster does not show the topic."""
        async with self._scanning:
            if not self._looked or self.fault:
                await self._find_topic()
            if (known := self.peek(group)) is not UNREAD:
                return cast("bytes | None", known)
            try:
                return await self._read(group)
            except KafkaError:
                self._looked = False  # the topic may have been deleted
                self._reader.destinations.topics.forget(self._reader.destinations.state_topic)
                raise

    async def _read(self, group: bytes) -> bytes | None:
        partition = self._partition(group)
        for _ in range(READ_TRIES):
            if partition not in self._scanned:
                await self._scan(partition)
            if group not in self._offsets:
                return None
            # The reading of a large partition may have evicted the value already.
            value = self._reader.cache.get(self._number, group)
            if value is None:
                value = await self._read_again(partition, group)
            if value is not None:
                return value
            self._scanned.discard(partition)
            del self._offsets[group]
        raise SendError(
            f"{self._reader.destinations.state_topic}/{partition} changes while it is read, so messages "
            "wait: is it being recreated?"
        )

    async def _find_topic(self) -> None:
        try:
            found = await self._reader.destinations.state_partitions(create=False)
            self.fault = ""
        except HiddenTopicError as error:
            # A handler that uses no state needs no permission for its topic.
            found, self.fault = 0, str(error)
            self._look_again_at = time.monotonic() + FRESH_S
        if not self.fault:
            await self._reader.check(found)
            await self._identify(found)
        if found != self._partitions:
            self.close()
            self._partitions = found
        self._looked = True

    async def _identify(self, partitions: int) -> None:
        """Compare the ID of the topic with the one that had the states until now; 0 partitions = the topic does not exist.

        If the cluster does not show the ID, the next holder compares.
        """
        found = ""
        if partitions:
            try:
                identity = await self._reader.cluster.topics.identity(self._reader.destinations.state_topic)
            except KafkaError:
                return
            found = identity.topic_id
        if self.topic_id not in {"", found}:
            self._reader.replaced(self.topic_id)
        self.topic_id = found

    async def prepare(self) -> None:
        """Create the state topic if it is missing, before the first state is acknowledged."""
        async with self._scanning:
            if not self._looked or self.fault:
                await self._find_topic()
            if not self.is_prepared:
                self._partitions = await self._reader.destinations.state_partitions(create=True)
                self._reader.created(self._partitions)
                await self._identify(self._partitions)
                # The topic did not exist before, and no other consumer writes states of these groups.
                self._scanned.update(range(self._partitions))

    @property
    def is_prepared(self) -> bool:
        """Whether states can be written."""
        return self._looked and self._partitions > 0

    def records_of(self, states: Mapping[bytes, bytes | None]) -> list[OutgoingRecord]:
        """Return the records of these states."""
        topic, bytes_max = self._reader.destinations.state_topic, self._reader.destinations.state_bytes_max
        return [
            OutgoingRecord(
                topic, self._partition(group), group, value, [], None,
                RECORD_BYTES + len(group) + len(value or b""), bytes_max,
            )
            for group, value in states.items()
        ]  # fmt: skip

    def offsets_by_group(self, groups: Iterable[bytes], offsets: Mapping[int, list[int]]) -> dict[bytes, int]:
        """Return the offset of each group's record, for records that were written in this order."""
        places: dict[int, list[bytes]] = {}
        for group in groups:
            places.setdefault(self._partition(group), []).append(group)
        return {
            group: offset
            for partition, written in places.items()
            if len(written) == len(offsets.get(partition, ()))
            for group, offset in zip(written, offsets[partition], strict=True)
        }

    def committed(self, states: Mapping[bytes, bytes | None], offsets: Mapping[bytes, int]) -> None:
        """Record that these states are committed, at these offsets."""
        self._written.update(states)
        for group, value in states.items():
            self._reader.cache.put(self._number, group, value)
            if value is None:
                self._offsets.pop(group, None)
            else:
                self._offsets[group] = offsets.get(group, UNKNOWN)

    def close(self) -> None:
        """Drop everything after the last transaction, because another holder may write states now."""
        self._reader.cache.drop(self._number)
        self._offsets.clear()
        self._scanned.clear()

    def _partition(self, group: bytes) -> int:
        if not self._partitions:
            raise AssertionError(f"the partitions of {self._reader.destinations.state_topic} are not known")
        return home_of(group, self._partitions)

    async def _scan(self, partition: int) -> None:
        reader, topic = self._reader, self._reader.destinations.state_topic
        number, offsets = self._number, dict[bytes, int]()
        written = self._written = set()

        async def consume(records: Sequence[Any]) -> None:
            reader.require_home(partition, self._partitions, records[:CHECKED])
            for record in records:
                if record.key in written or record.offset < self._offsets.get(record.key, UNKNOWN):
                    continue  # this holder has written a later one meanwhile
                if record.value is None:
                    offsets.pop(record.key, None)
                else:
                    offsets[record.key] = record.offset
                reader.cache.put(number, record.key, record.value)

        start = await reader.cluster.offsets.log_start(topic, partition)
        end = await reader.cluster.offsets.high_watermark(topic, partition)
        reader.set_end(partition, end)
        await reader.log_reader.read_range(topic, partition, start, end, consume)
        self._offsets |= {group: offset for group, offset in offsets.items() if group not in written}
        self._scanned.add(partition)
        log.info("%s/%d is read up to %d: %d groups have a state", topic, partition, end, len(offsets))

    async def _read_again(self, partition: int, group: bytes) -> bytes | None:
        """Read an evicted state; None = its offset is unknown, or has another record."""
        topic, offset = self._reader.destinations.state_topic, self._offsets[group]
        found: list[bytes | None] = []

        async def consume(records: Sequence[Any]) -> None:
            found.extend(record.value for record in records if (record.offset, record.key) == (offset, group))

        if offset != UNKNOWN:
            await self._reader.log_reader.read_range(topic, partition, offset, offset + 1, consume)
        value = found[0] if found else None
        self._reader.cache.put(self._number, group, value)
        return value

"""Counts of the open records in dead-letter and quarantine topics: those that are neither redriven nor dropped.

The progress of the group ``<app id>-repair`` contains the settled records. Each look reads a topic from the end of the previous look.
"""

import asyncio
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from aiokafka.errors import KafkaError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError

from ringfence_client.progress.progress_record import Progress, ProgressFormatError, encode_key
from ringfence_client.progress.progress_topic import ProgressTopic
from ringfence_client.progress.watermark import Watermark
from ringfence_kafka import clock
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.page.formats import age
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.readers.log_reader import LogReader, LogStalledError
from ringfence_kafka.wording import counted

RECORDS_MAX: Final = 20_000
"""Limit of open records that are kept, about 8 MB. Each of n topics with open records keeps 1/n. Larger counts are lower bounds."""
LOOK_LIMIT_S: Final = 3.0
"""Time limit of the reading in one look, in seconds. The next look continues there."""
ASK_LIMIT_S: Final = 5.0
EVERY_S: Final = 30.0
"""Interval of looks at the same topics, in seconds. With open records, a look reads the progress topic."""
REFRESH_LIMIT_S: Final = 20.0
REASON_MAX: Final = 200

Place = tuple[str, int]
Settled = Callable[[str, int], Awaitable[Progress | None]]
"""Returns the settled records of a partition; None = no record is settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRecords:
    """Open records of one topic and one consumer group."""

    count: int
    at_least: bool
    """The count is a lower bound: the topic was not read to its end."""
    oldest_seconds: float
    """Age of the oldest record by its timestamp, in seconds."""
    oldest_place: str
    """``PARTITION/OFFSET``, as ``dlq`` and ``quarantine`` accept it."""
    oldest_reason: str

    def described(self, noun: str) -> str:
        """Return ``21 dead letters are open, the oldest for 3 hours (at 0/17): ValueError``."""
        number = counted(self.count, f"{noun} is open", f"{noun}s are open")
        why = f": {self.oldest_reason}" if self.oldest_reason else ""
        return f"{'at least ' if self.at_least else ''}{number}, the oldest for {age(self.oldest_seconds)} (at {self.oldest_place}){why}"


class Found(NamedTuple):
    """Open records of several topics."""

    records: Mapping[tuple[str, str], OpenRecords]
    """Open records by topic and consumer group. The group of a quarantine is empty."""
    faults: Mapping[str, str]


class _Record(NamedTuple):
    timestamp_ms: int
    consumer_group: str
    reason: str


@dataclass(eq=False, slots=True)
class _Partition:
    """Open records of one partition up to the read position."""

    topic_id: str
    position: int = 0
    end: int = 0
    records: dict[int, _Record] = field(default_factory=dict)

    def settle(self, start: int, end: int, progress: Progress | None) -> Watermark:
        """Remove settled records, and those that retention deleted. Return the settled offsets."""
        if progress is None or progress.topic_id != self.topic_id:
            progress = Progress(start)
        watermark = Watermark(progress.next, progress.finished)
        watermark.reached(start)
        if end < self.position:  # the log lost its tail
            self.position = 0
        self.position, self.end = max(self.position, watermark.next), end
        self.records = {
            offset: record
            for offset, record in self.records.items()
            if start <= offset < end and not watermark.is_finished(offset)
        }
        return watermark


class _FullError(Exception):
    """Ends a reading, because the limit of kept records is reached."""


class OpenRecordCounts:
    """Open records of several topics of one cluster, kept between looks."""

    def __init__(
        self, kafka: KafkaSettings, records_max: int = RECORDS_MAX, bridge_app: str | None = None
    ) -> None:
        """``bridge_app``: the topics are quarantines of bridges, and only the records of this application's bridges count."""
        self._kafka = kafka
        self._bridge_app = None if bridge_app is None else bridge_app.encode()
        self._records_max = records_max
        self._partitions: dict[Place, _Partition] = {}

    async def refresh(self, cluster: Cluster, topics: Collection[str], settled: Settled) -> Found:
        """Read new records, and return the present open records of topics. A missing topic has no records."""
        faults = await self._find(cluster, topics)
        starts, ends = await asyncio.gather(
            cluster.offsets.known_starts(self._partitions, ASK_LIMIT_S),
            cluster.offsets.known_stable_ends(self._partitions, ASK_LIMIT_S),
        )
        watermarks = {}
        for place in sorted(starts.keys() & ends.keys()):
            partition, end = self._partitions[place], ends[place]
            # Without open or new records, the settled records do not matter.
            if partition.records or (end > starts[place] and end != partition.position):
                watermarks[place] = partition.settle(starts[place], end, await settled(*place))
        reader = LogReader(self._kafka, resting_max=1)
        try:
            with contextlib.suppress(TimeoutError, LogStalledError):
                async with asyncio.timeout(LOOK_LIMIT_S):
                    for place, watermark in watermarks.items():
                        try:
                            await self._read(reader, place, watermark)
                        except TopicAuthorizationFailedError:
                            faults[place[0]] = (
                                f"topic {place[0]}: this user may not read it: allow Read on it"
                            )
        finally:
            await reader.stop()
        found, partial = self._records(), self._partial()
        for topic in partial - {topic for topic, _ in found} - faults.keys():
            faults[topic] = (
                f"topic {topic}: what is open there is not known yet: it was not read to its end; look again"
            )
        return Found(found, faults)

    def _partial(self) -> set[str]:
        return {topic for (topic, _), part in self._partitions.items() if part.position < part.end}

    async def _find(self, cluster: Cluster, topics: Collection[str]) -> dict[str, str]:
        """Find the partitions of topics that exist. Return a problem for each topic that the user may not see."""
        faults: dict[str, str] = {}
        found: dict[Place, _Partition] = {}
        identities = await asyncio.gather(*map(cluster.topics.identity, topics), return_exceptions=True)
        for topic, identity in zip(topics, identities, strict=True):
            if isinstance(identity, TopicAuthorizationFailedError):
                faults[topic] = f"topic {topic}: this user may not see it: allow Describe and Read on it"
            elif isinstance(identity, BaseException):
                if not isinstance(identity, UnknownTopicOrPartitionError):
                    raise identity
            else:
                for number in range(identity.partitions):
                    known = self._partitions.get((topic, number))
                    if known is None or known.topic_id != identity.topic_id:
                        known = _Partition(identity.topic_id)
                    found[topic, number] = known
        self._partitions = found
        return faults

    async def _read(self, reader: LogReader, place: Place, watermark: Watermark) -> None:
        partition = self._partitions[place]
        if partition.position >= partition.end:
            return
        topics = {topic for (topic, _), other in self._partitions.items() if other.records} | {place[0]}
        room = self._records_max // len(topics)
        room -= sum(len(other.records) for (topic, _), other in self._partitions.items() if topic == place[0])
        if room <= 0:  # another topic has open records since, so this one has kept more than its part
            return

        async def consume(records: Sequence[Any]) -> None:
            nonlocal room
            for record in records:
                if record.offset >= partition.end:
                    break
                if not watermark.is_finished(record.offset) and self._counts(record):
                    if not room:
                        raise _FullError
                    room -= 1
                    partition.records[record.offset] = _parsed(record, place[0])
                partition.position = record.offset + 1

        with contextlib.suppress(_FullError):
            await reader.read_range(*place, partition.position, partition.end, consume)
            partition.position = partition.end

    def _counts(self, record: Any) -> bool:
        return self._bridge_app in {
            None,
            dict(record.headers).get(wire_names.HEADER_BRIDGE_APP, self._bridge_app),
        }

    def _records(self) -> dict[tuple[str, str], OpenRecords]:
        oldest: dict[tuple[str, str], tuple[_Record, str]] = {}
        counts: Counter[tuple[str, str]] = Counter()
        partial = self._partial()
        for (topic, number), partition in self._partitions.items():
            for offset, record in partition.records.items():
                owner = topic, record.consumer_group
                counts[owner] += 1
                if owner not in oldest or record.timestamp_ms < oldest[owner][0].timestamp_ms:
                    oldest[owner] = record, f"{number}/{offset}"
        now_ms = time.time() * 1000
        return {
            owner: OpenRecords(
                count=count,
                at_least=owner[0] in partial,
                oldest_seconds=round(max(0.0, now_ms - oldest[owner][0].timestamp_ms) / 1000, 3),
                oldest_place=oldest[owner][1],
                oldest_reason=oldest[owner][0].reason,
            )
            for owner, count in sorted(counts.items())
        }


def _parsed(record: Any, topic: str) -> _Record:
    """Parse the headers that Ringfence wrote. The consumer group of a quarantined record does not count: it may be an old dead letter."""
    headers = dict(record.headers)
    group, reason = (
        (headers.get(name) or b"").decode(errors="backslashreplace")
        for name in (wire_names.HEADER_CONSUMER_GROUP, wire_names.HEADER_REASON)
    )
    if not topic.endswith(wire_names.dead_letter_topic("")):
        group = ""
    return _Record(record.timestamp, sys.intern(group), sys.intern(reason[:REASON_MAX]))


class OpenRecordWatch:
    """Open records of several topics, as of the last look."""

    def __init__(self, app_id: str, cluster: Cluster) -> None:
        self._app_id = app_id
        self._cluster = cluster
        self._counts = OpenRecordCounts(cluster.kafka)
        self._found: Mapping[tuple[str, str], OpenRecords] = {}
        self._known: frozenset[str] = frozenset()
        self._asked: tuple[frozenset[str], float] = frozenset(), float("-inf")

    def open_records(self, topic: str, consumer_group: str = "") -> OpenRecords | None:
        """Return the open records of a topic and a consumer group; None = none, or unknown."""
        return self._found.get((topic, consumer_group))

    def knows(self, topic: str) -> bool:
        """Return whether the last look was able to read a topic."""
        return topic in self._known

    async def refresh(self, topics: Collection[str]) -> None:
        """Count the records again if the topics differ or the last count is old. After a failed count, nothing is known until the next one."""
        wanted, now = frozenset(topics), clock.now()
        if self._asked[0] == wanted and now - self._asked[1] < EVERY_S:
            return
        self._asked = wanted, now
        found: Mapping[tuple[str, str], OpenRecords] = {}
        known: frozenset[str] = frozenset()
        with contextlib.suppress(KafkaError, OSError, TimeoutError, RingfenceError, ProgressFormatError):
            async with asyncio.timeout(REFRESH_LIMIT_S):
                found, faults = (
                    await read_open_records(self._cluster, self._app_id, self._counts, topics)
                    if topics
                    else ({}, {})
                )
                known = wanted - faults.keys()
        self._found, self._known = found, known


async def read_open_records(
    cluster: Cluster, app_id: str, counts: OpenRecordCounts, topics: Collection[str]
) -> Found:
    """Count the open records once. Reads the settled records from the cluster's progress topic."""
    progress: ProgressTopic | None = None
    group = wire_names.repair_group(app_id)

    async def settled(topic: str, partition: int) -> Progress | None:
        nonlocal progress
        if progress is None:
            started = ProgressTopic(cluster, app_id)
            try:
                await started.start()
            except UnknownTopicOrPartitionError:
                return None  # nothing was ever settled
            progress = started
        return await progress.latest(encode_key(group, topic, partition))

    try:
        return await counts.refresh(cluster, topics, settled)
    finally:
        if progress is not None:
            await progress.stop()

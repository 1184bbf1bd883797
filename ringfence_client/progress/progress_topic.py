"""The compacted progress topic, read to its end for requested keys.

Many holders write to each of its partitions, in separate short transactions. A reading waits for open transactions.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ringfence_client.progress import progress_record, record_parts
from ringfence_client.progress.progress_record import MissingPartsError, Progress, ProgressFormatError
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.topic_ids import TopicIdentity
from ringfence_kafka.admin.topic_rules import PROGRESS_LIMITS
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.producer.transactional import Builder, NewBuilder
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.key_hash import key_hash
from ringfence_kafka.readers.compacted_topic import CompactedTopic, LatestValue
from ringfence_kafka.readers.log_reader import LogReader

log: Final = logging.getLogger("ringfence.consumer")

PARTITIONS: Final = 8
TRIES: Final = 5
"""Readings of a record whose parts differ from their checksums. After the last one, these parts count as deleted."""
AGAIN_S: Final = 0.1
BATCH_BYTES: Final = 128 * 1024
"""Approximate size of progress record batches, in bytes. The topic must accept a little more."""
TOPIC_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "segment.ms": str(10 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
    **{name: str(limit) for name, limit in PROGRESS_LIMITS.items()},
}


class ProgressTopic:
    """Reader of progress records. One reading answers concurrent questions, and its values are cached.

    All records of a key stay in one partition for ever: a second place would be a second lease. The hash of a key decides only while it has
    no records. A growing number of partitions changes hashes, and moves no records.
    """

    def __init__(self, cluster: Cluster, app_id: str) -> None:
        self.name = wire_names.progress_topic(app_id)
        self.app_id = app_id
        self.cluster = cluster
        self._identity: TopicIdentity
        self._homes: dict[bytes, int] = {}
        self._decoded: dict[bytes, tuple[bytes, Progress]] = {}
        """Last large record that was read, decoded, by key. A waiting consumer looks at it ten times a second."""
        self._latest: CompactedTopic

    async def start(self) -> None:
        """Look up the topic's ID and number of partitions."""
        self._identity = await self.cluster.topics.identity(self.name)
        self._latest = CompactedTopic(
            self.cluster.kafka,
            self.cluster,
            self.name,
            self._identity.partitions,
            beside=progress_record.part_keys,
        )

    async def stop(self) -> None:
        """Stop answering, and disconnect."""
        await self._latest.stop()

    def renew(self, identity: TopicIdentity) -> bool:
        """Set the topic's present identity; return whether it was deleted and created again, with all its records lost."""
        recreated = identity.topic_id != self._identity.topic_id
        if recreated:
            self._homes.clear()
        self._identity = identity
        self._latest.resize(identity.partitions)
        return recreated

    def home(self, key: bytes) -> int:
        """Return the partition of a key's records. It stays the same as long as the topic exists."""
        if key not in self._homes:
            self._homes[key] = self._hashed(key)
        return self._homes[key]

    async def latest(self, key: bytes) -> Progress | None:
        """Return the last record of this key that was committed before the call; None = no record. Reads only new records."""
        progress, _ = await self.latest_with_time(key)
        return progress

    async def latest_with_time(self, key: bytes) -> tuple[Progress | None, float]:
        """Return the last record as :meth:`latest` does, and the time at which the end of the reading was known.

        The time is in seconds, by :func:`ringfence_kafka.clock.now`. A record that is committed later was written after it.
        """
        for number in range(TRIES):
            home = self._homes[key] if key in self._homes else self._hashed(key)
            look = await self._latest.read_separately(home, key)
            if look.value is None:
                home, look = await self._elsewhere(key, home, look)
            if look.value is None:
                return None, look.asked_at
            self._homes[key] = home
            try:
                return self._decode(key, look.value, look, lenient=number == TRIES - 1), look.asked_at
            except MissingPartsError:
                await asyncio.sleep(AGAIN_S)  # the holder is writing
        raise AssertionError("the last try reads what is there")

    def _decode(self, key: bytes, value: bytes, look: LatestValue, *, lenient: bool) -> Progress:
        if not look.beside and not lenient:
            self._decoded.pop(key, None)
            return progress_record.decode(value)
        known = self._decoded.get(key)
        if known is not None and known[0] == value:  # the head has the checksums of all parts
            return known[1]

        def find(number: int) -> bytes | None:
            return look.beside.get(record_parts.key_of(key, number))

        try:
            progress = progress_record.decode(value, find)
        except MissingPartsError as error:
            if not lenient:
                raise
            progress = progress_record.decode(value, find, partial=True)
            log.error(
                "%s: %s (%s): somebody deleted records there; messages from %d on that only these records "
                "mark as finished are handled again",
                self.name, error, key.decode(errors="backslashreplace"), progress.next,
            )  # fmt: skip
        self._decoded[key] = value, progress
        return progress

    async def _elsewhere(self, key: bytes, home: int, look: LatestValue) -> tuple[int, LatestValue]:
        """Return the partition in which a key has records, whatever its present hash, and the last one."""
        partitions = (await self.cluster.topics.identity(self.name)).partitions
        self._latest.resize(partitions)
        others = [index for index in range(partitions) if index != home]
        answers = await asyncio.gather(*(self._latest.read_separately(other, key) for other in others))
        for place, there in zip(others, answers, strict=True):
            if there.value is not None:
                log.info(
                    "%s: the records of %s stay in partition %d: the topic had fewer partitions when they began",
                    self.name, key.decode(errors="backslashreplace"), place,
                )  # fmt: skip
                return place, there
        return home, look

    def _hashed(self, key: bytes) -> int:
        return key_hash(key) % self._identity.partitions


def record_batches(records: Iterable[tuple[bytes, bytes | None]], new: NewBuilder) -> list[Builder]:
    """Return record batches of at most :data:`BATCH_BYTES` with these records. A larger record has its own batch."""
    batches: list[Builder] = []
    for key, value in records:
        size = len(key) + len(value or b"")
        if not batches or batches[-1].size() + size > BATCH_BYTES:
            batches.append(new())
        batches[-1].append(timestamp=None, key=key, value=value, headers=[])
    return batches


async def read_latest(kafka: KafkaSettings, cluster: Cluster, topic: str, partition: int) -> dict[bytes, Any]:
    """Return the last record of each key in a partition up to its present end, including parts."""
    for number in range(TRIES):
        found = await _read(kafka, cluster, topic, partition)
        if number == TRIES - 1 or not any(map(partial(_lacks_parts, found), found)):
            break
        await asyncio.sleep(AGAIN_S)  # a holder is writing, and the reading ended within a transaction
    return found


def decode(found: Mapping[bytes, Any], key: bytes) -> Progress:
    """Decode one of the records that :func:`read_latest` returned. Raises as :func:`ringfence_client.progress.progress_record.decode`."""

    def find(number: int) -> bytes | None:
        part = found.get(record_parts.key_of(key, number))
        return None if part is None else part.value

    return progress_record.decode(found[key].value, find)


def _lacks_parts(found: Mapping[bytes, Any], key: bytes) -> bool:
    if not progress_record.part_keys(key or b"", found[key].value):
        return False
    try:
        decode(found, key)
    except MissingPartsError:
        return True
    except ProgressFormatError:
        pass
    return False


async def _read(kafka: KafkaSettings, cluster: Cluster, topic: str, partition: int) -> dict[bytes, Any]:
    found: dict[bytes, Any] = {}

    async def consume(records: Sequence[Any]) -> None:
        for record in records:
            if record.value is None:
                found.pop(record.key, None)
            else:
                found[record.key] = record

    start = await cluster.offsets.log_start(topic, partition)
    end = await cluster.offsets.high_watermark(topic, partition)
    await LogReader(kafka).read_range(topic, partition, start, end, consume)
    return found

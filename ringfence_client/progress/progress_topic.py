"""The compacted progress topic: read to its end for the keys that are asked for.

Many holders write to one partition of it, each in transactions of its own that are short: those that are open are waited for.
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
"""For the topic as Ringfence creates it."""
TRIES: Final = 5
"""Readings of a record whose parts differ from their checksums; after that they are gone."""
AGAIN_S: Final = 0.1
BATCH_BYTES: Final = 128 * 1024
"""Size of record batches of progress, about. The topic must take a little more."""
TOPIC_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "segment.ms": str(10 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
    **{name: str(limit) for name, limit in PROGRESS_LIMITS.items()},
}


class ProgressTopic:
    """Reads progress records. Questions that come together are answered by one reading, and what was read is kept.

    All records of a key are in one partition for ever: a second place would be a second lease. The key's hash counts only where it has none, so
    more partitions of the topic, which move hashes, change nothing.
    """

    def __init__(self, kafka: KafkaSettings, app_id: str, cluster: Cluster) -> None:
        self.name = wire_names.progress_topic(app_id)
        self._kafka = kafka
        self._cluster = cluster
        self._identity: TopicIdentity
        self._homes: dict[bytes, int] = {}
        """Partition of the records of a key."""
        self._decoded: dict[bytes, tuple[bytes, Progress]] = {}
        """By key, the last large record that was read, decoded, because a waiting consumer looks at it ten times a second."""
        self._latest: CompactedTopic

    async def start(self) -> None:
        """Ask which topic it is, and how many partitions it has."""
        self._identity = await self._cluster.topics.identity(self.name)
        self._latest = CompactedTopic(
            self._kafka, self._cluster, self.name, self._identity.partitions, beside=progress_record.part_keys
        )

    async def stop(self) -> None:
        """Answer nobody any more, and disconnect."""
        await self._latest.stop()

    def renew(self, identity: TopicIdentity) -> bool:
        """Note what the topic is now; whether it was deleted and created again, and all that was in it is gone."""
        recreated = identity.topic_id != self._identity.topic_id
        if recreated:
            self._homes.clear()
        self._identity = identity
        self._latest.resize(identity.partitions)
        return recreated

    def home(self, key: bytes) -> int:
        """Return the partition of a key's records, which stays as long as the topic lives."""
        if key not in self._homes:
            self._homes[key] = self._hashed(key)
        return self._homes[key]

    async def latest(self, key: bytes) -> Progress | None:
        """Return the last record of this key that was committed before the call; None = there is none. Only what came since is read.

        Raises:
            ProgressFormatError: it cannot be read.
            LogStalledError: somebody's transaction does not end.
            KafkaError: the cluster does not answer.
        """
        progress, _ = await self.look(key)
        return progress

    async def look(self, key: bytes) -> tuple[Progress | None, float]:
        """Return the last record as :meth:`latest` does, and when the end up to which was read was asked for (:func:`ringfence_kafka.clock.now`, s).

        A record that is committed later was not written before then.
        """
        for number in range(TRIES):
            home = self._homes[key] if key in self._homes else self._hashed(key)
            look = await self._latest.look_beside(home, key)
            if look.value is None:
                home, look = await self._elsewhere(key, home, look)
            if look.value is None:
                return None, look.asked_at
            self._homes[key] = home
            try:
                return self._decode(key, look.value, look, lenient=number == TRIES - 1), look.asked_at
            except MissingPartsError:
                await asyncio.sleep(AGAIN_S)  # its holder writes, and the reading ended within a transaction
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
        """Return where a key has records, whatever its hash says now, and the last of them."""
        partitions = (await self._cluster.topics.identity(self.name)).partitions
        self._latest.resize(partitions)
        others = [index for index in range(partitions) if index != home]
        answers = await asyncio.gather(*(self._latest.look_beside(other, key) for other in others))
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
    """Return record batches of at most :data:`BATCH_BYTES` with these; one larger record has a batch of its own."""
    batches: list[Builder] = []
    for key, value in records:
        size = len(key) + len(value or b"")
        if not batches or batches[-1].size() + size > BATCH_BYTES:
            batches.append(new())
        batches[-1].append(timestamp=None, key=key, value=value, headers=[])
    return batches


async def read(kafka: KafkaSettings, cluster: Cluster, topic: str, partition: int) -> dict[bytes, Any]:
    """Return the last record of each key in a partition, up to its present end; parts of records too."""
    for number in range(TRIES):
        found = await _read(kafka, cluster, topic, partition)
        if number == TRIES - 1 or not any(map(partial(_lacks_parts, found), found)):
            break
        await asyncio.sleep(AGAIN_S)  # somebody writes, and the reading ended within a transaction
    return found


def decode(found: Mapping[bytes, Any], key: bytes) -> Progress:
    """Return what a record that was read says; raises as :func:`ringfence_client.progress.progress_record.decode`."""

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

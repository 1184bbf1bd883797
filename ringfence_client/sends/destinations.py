"""Destinations of sends: topics with partitions and limits, and duplicate IDs derived from a message."""

import asyncio
import math
import time
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final
from zlib import crc32

from aiokafka.errors import KafkaError

from ringfence_client.handlers.effects import Effects, Headers, Origin, Send
from ringfence_client.progress.topic_checks import state_fault
from ringfence_client.sends.outbox import RECORD_BYTES, OutgoingRecord
from ringfence_client.sends.target_topics import (
    LOOK_LIMIT_S,
    HiddenTopicError,
    SendError,
    TargetTopic,
    TargetTopics,
)
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.topics import ADDED_BYTES, MESSAGE_BYTES_DEFAULT, TopicDescription
from ringfence_kafka.config.addresses import claimed_topics
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import RingfenceError, named
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.key_hash import key_hash

APPEAR_LIMIT_S: Final = 30.0
ID_BYTES_MAX: Final = 128
"""Longest derived ID, in bytes. A digest replaces a longer one."""
ID_HEADER: Final = "_AMQ_DUPL_ID"
"""Header of an explicit ID, if the topic belongs to no address."""
STATE_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.ms": str(60 * 60 * 1000),
}


class Destinations:
    """Target topics of one consumer's handlers."""

    def __init__(self, settings: Settings, address: AddressSettings, group: str, cluster: Cluster) -> None:
        self.state_topic = wire_names.state_topic(settings.app.id, group, address.accepted_topic)
        self._cluster = cluster
        self._source = address
        self._prefix = f"{settings.app.id}:{group}:"
        self._addresses = {found.input_topic: found for found in settings.addresses}
        owned = {
            topic: role
            for topic, role in claimed_topics(settings.addresses, settings.app.id)
            if topic not in self._addresses
        }
        accepted = [found.accepted_topic for found in settings.addresses]
        self.topics = TargetTopics(
            cluster,
            owned | {self.state_topic: "the state of this consumer group"},
            lambda topic: wire_names.is_state_topic(topic, settings.app.id, accepted),
        )

    def resolve_at_once(self, effects: Effects) -> list[OutgoingRecord] | None:
        """Return the same as :meth:`resolve` if all topics are known and recently checked; otherwise None."""
        if not self.topics.settled:
            return None
        found = []
        for send in effects.sends:
            topic = self.topics.known_target(send.topic)
            if topic is None:
                return None
            found.append(self._placed(send, topic))
        return found

    async def resolve(self, effects: Effects) -> list[OutgoingRecord]:
        """Return the records of an attempt with their places; raise SendError if one cannot be written. Looks up unknown topics."""
        topics = await self.topics.usable(dict.fromkeys(send.topic for send in effects.sends))
        return [self._placed(send, topics[send.topic]) for send in effects.sends]

    async def state_partitions(self, *, create: bool) -> int:
        """Return the number of partitions of the state topic; 0 = it does not exist."""
        name = self.state_topic
        known = self.topics.known(name)
        if known is not None:
            return known.partitions
        try:
            async with asyncio.timeout(APPEAR_LIMIT_S if create else LOOK_LIMIT_S):
                found = await self.topics.described(name)
                if found is None and create:
                    found = await self._create_state_topic(name)
        except HiddenTopicError:
            raise
        except (KafkaError, OSError, TimeoutError, RingfenceError) as error:
            raise SendError(
                f"the state topic {name} cannot be {'created' if create else 'looked at'}: {named(error)}. Messages wait for it; "
                f"allow this user Describe, Read, Write and Create on it, or create it with cleanup.policy=compact"
            ) from error
        if found is None:
            return 0
        if fault := state_fault(found):
            raise SendError(fault)
        self.topics.store(found)
        return found.partitions

    @property
    def state_bytes_max(self) -> int:
        """Size limit of one record batch of the state topic, in bytes."""
        known = self.topics.known(self.state_topic)
        return MESSAGE_BYTES_DEFAULT if known is None else known.bytes_max

    async def _create_state_topic(self, name: str) -> TopicDescription:
        counts = await self._cluster.topics.partition_counts([self._source.accepted_topic])
        count = counts.get(self._source.accepted_topic, 1)
        await self._cluster.topics.create(name, count, self._source.replication_factor, dict(STATE_CONFIG))
        return (await self._cluster.topics.await_created([name], APPEAR_LIMIT_S))[name]

    # -- records --------------------------------------------------------------------------------------------------

    def _placed(self, send: Send, topic: TargetTopic) -> OutgoingRecord:
        address = self._addresses.get(send.topic)
        headers = self._headers(send, address)
        size = send.bytes + RECORD_BYTES + (ID_BYTES_MAX if headers is not send.headers else 0)
        if size > topic.bytes_max:
            room = f" (a worker adds up to {ADDED_BYTES} bytes of headers)" if address else ""
            raise SendError(
                f"send {send.number} to {send.topic} is a record of about {size} bytes, and the topic takes {topic.bytes_max}{room}: nothing "
                f"of this message is sent; send less, or raise max.message.bytes on {send.topic}"
            )
        if send.key is None and topic.compacted:
            raise SendError(
                f"send {send.number} to {send.topic} has no key, and the topic is compacted, so Kafka would refuse it: nothing of this message is "
                "sent; give a key"
            )
        _require_timestamp(send, topic)
        partition = _partition(send, topic, address)
        if (send.topic, partition) in self.topics.away:
            raise SendError(
                f"{send.topic}/{partition} has no leader, or its broker does not answer: nothing of this "
                "message is sent, and other messages continue; look at the brokers"
            )
        return OutgoingRecord(
            send.topic, partition, send.key, send.value, headers, send.timestamp, size, topic.bytes_max
        )

    def _headers(self, send: Send, address: AddressSettings | None) -> Headers:
        own = send.duplicate_id
        if address is None:
            return send.headers if own is None else [*send.headers, (ID_HEADER, own)]
        names = address.id_headers or address.duplicate_id_headers
        if own is None:
            if not address.id_headers or any(value and name in names for name, value in send.headers):
                return send.headers
            own = self.duplicate_id(send.origin, send.number)
            return [*send.headers, (names[0], own)]
        return [*(header for header in send.headers if header[0] not in names), (names[0], own)]

    def duplicate_id(self, origin: Origin, number: int) -> bytes:
        """Return the ID of a send. It is derived from the message, and the same in each attempt."""
        found = f"{self._prefix}{origin.source}:{origin.digest:08x}:{number}".encode(
            errors="backslashreplace"
        )
        if len(found) <= ID_BYTES_MAX:
            return found
        return b"rf:" + blake2b(found, digest_size=16).hexdigest().encode()


def _require_timestamp(send: Send, topic: TargetTopic) -> None:
    """Refuse a timestamp for which the topic would refuse the whole transaction."""
    if send.timestamp is None or not topic.timestamps:
        return
    ahead = send.timestamp - round(time.time() * 1000)
    for setting, distance in ((wire_names.TIMESTAMP_AFTER, ahead), (wire_names.TIMESTAMP_BEFORE, -ahead)):
        if distance > topic.timestamps.get(setting, math.inf):
            raise SendError(
                f"send {send.number} to {send.topic} has the timestamp {send.timestamp}, {abs(ahead) / 1000:.0f} s from now, and the topic has "
                f"{setting}={topic.timestamps[setting]}: nothing of this message is sent; give another timestamp, or none"
            )


def _partition(send: Send, topic: TargetTopic, address: AddressSettings | None) -> int:
    """Return the partition of the default partitioner. Without a key, the source's group chooses it."""
    if send.partition is not None:
        if send.partition >= topic.partitions:
            raise SendError(
                f"send {send.number} goes to partition {send.partition} of {send.topic}, which has {topic.partitions}, numbered from 0: "
                "nothing of this message is sent"
            )
        return send.partition
    if send.key is not None and address is not None and address.partitioner == "crc32":
        return crc32(send.key) % topic.partitions
    key = send.key if send.key is not None else send.origin.group
    if key is None:
        return send.origin.offset % topic.partitions
    return key_hash(key) % topic.partitions

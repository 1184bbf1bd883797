"""Destinations of sends: topics, their partitions and limits, and the duplicate IDs that follow from a message."""

import asyncio
import math
import time
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple
from zlib import crc32

from aiokafka.errors import KafkaError

from ringfence_client.handlers.effects import Effects, Headers, Send
from ringfence_client.sends.outgoing_record import RECORD_BYTES, OutgoingRecord, hash_of
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.topics import ADDED_BYTES, MESSAGE_BYTES_DEFAULT, TopicDescription
from ringfence_kafka.config.addresses import claimed_topics
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import RingfenceError, named
from ringfence_kafka.protocol import wire_names

FRESH_S: Final = 30.0
"""After which a topic is looked at again: it may have got more partitions, or another limit."""
REFUSED_S: Final = 30.0
"""For so long nothing is sent to a topic that refused a write."""
LOOK_LIMIT_S: Final = 10.0
AVOIDED_S: Final = 5.0
"""For so long nothing is sent to a partition that does not answer; then it is asked again."""
EXPLAIN_LIMIT_S: Final = 2.0
"""The writer waits for this question after a write that failed."""
APPEAR_LIMIT_S: Final = 30.0
ID_BYTES_MAX: Final = 128
"""A longer ID is replaced by its digest."""
ID_HEADER: Final = "_AMQ_DUPL_ID"
"""For an explicit ID, where the topic is no address's."""
STATE_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.ms": str(60 * 60 * 1000),
}
"""Of the state topic as a consumer creates it."""


Place = tuple[str, int]
"""Topic and partition."""


class SendError(RingfenceError):
    """A message cannot be acknowledged, because what it sends cannot be written. It is a failed attempt."""


class HiddenTopicError(SendError):
    """This user may not see a topic, so nobody can tell whether it exists."""


class _Topic(NamedTuple):
    partitions: int
    bytes_max: int
    timestamps: Mapping[str, int]
    """How far a timestamp may be from the broker's clock, in ms, by the setting's name."""
    looked_at: float
    address: AddressSettings | None
    """The one whose input topic it is."""


class Destinations:
    """The topics that the handlers of one consumer send to."""

    def __init__(self, settings: Settings, address: AddressSettings, group: str, cluster: Cluster) -> None:
        """``address`` is the one that is consumed, by this consumer group."""
        self.state_topic = wire_names.state_topic(settings.app.id, group, address.accepted_topic)
        self._cluster = cluster
        self._source = address
        self._prefix = f"{settings.app.id}:{group}:"
        self._addresses = {found.input_topic: found for found in settings.addresses}
        self._owned = {
            topic: role
            for topic, role in claimed_topics(settings.addresses, settings.app.id)
            if topic not in self._addresses
        }
        self._topics: dict[str, _Topic] = {}
        self._refused: dict[str, tuple[float, float, str]] = {}
        """When a topic refused a write last, until when nothing is sent to it (both by the monotonic clock), and why."""
        self._away: dict[Place, float] = {}
        """Partitions that could not be written, and until when nothing is sent to them, by the monotonic clock, s."""
        self._banned = False
        """Whether nothing is sent to some topics or partitions now."""
        self._stale_at = 0.0
        """When the first of the looks is old, by the monotonic clock, s."""
        self._refreshing: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Look at no topic any more."""
        for task in self._refreshing:
            task.cancel()
        if self._refreshing:
            await asyncio.wait(self._refreshing)

    def refuse(self, topics: Iterable[str], reason: str) -> None:
        """Note that topics refused a write, so they are looked at anew. One that refuses again soon gets nothing for a while."""
        now = time.monotonic()
        for topic in topics:
            self._banned = True
            self._topics.pop(topic, None)
            last, _, _ = self._refused.get(topic, (-math.inf, 0.0, ""))
            until = now + REFUSED_S if now < last + 2 * REFUSED_S else 0.0
            self._refused[topic] = now, until, reason

    def avoid(self, places: Iterable[Place]) -> None:
        """Send nothing to these partitions until they answer again."""
        self._banned = True
        self._away |= dict.fromkeys(places, time.monotonic() + AVOIDED_S)

    async def unanswered(self, places: Collection[Place], own: Place) -> set[Place]:
        """Return which partitions have no leader, or one that does not answer; none if ``own``, which is written too, does not answer either."""
        try:
            known = await self._cluster.offsets.known_ends({*places, own}, EXPLAIN_LIMIT_S)
        except (KafkaError, OSError, TimeoutError, RingfenceError):
            return set()
        return set(places).difference(known) if own in known else set()

    async def _look_at_avoided(self) -> None:
        """Have partitions that answer again be written again."""
        due = {place for place, until in self._away.items() if until <= time.monotonic()}
        if not due:
            return
        try:
            known = await self._cluster.offsets.known_ends(due, EXPLAIN_LIMIT_S)
        except (KafkaError, OSError, TimeoutError, RingfenceError):
            known = {}
        self._away |= dict.fromkeys(due, time.monotonic() + AVOIDED_S)
        for place in known:
            self._away.pop(place, None)

    def resolve_at_once(self, effects: Effects) -> list[OutgoingRecord] | None:
        """Return the same as :meth:`resolve` if all topics are known and their last look is young; else None.

        Raises:
            SendError: a record cannot be written.
        """
        if self._banned or time.monotonic() >= self._stale_at:
            return None
        topics, found = self._topics, []
        for send in effects.sends:
            topic = topics.get(send.topic)
            if topic is None:
                return None
            found.append(self._placed(send, topic))
        return found

    async def resolve(self, effects: Effects) -> list[OutgoingRecord]:
        """Return what the records of an attempt become, with their places. Topics that are not known yet are looked at.

        Raises:
            SendError: one of them cannot be written; the text says why.
        """
        names = {send.topic for send in effects.sends}
        for name in names:
            self._require_allowed(name)
        topics = {name: self._topics.get(name) or await self._look_at(name) for name in names}
        self._refresh()
        await self._look_at_avoided()
        return [self._placed(send, topics[send.topic]) for send in effects.sends]

    async def missing(self, places: Collection[Place]) -> dict[str, str]:
        """Return which topics of these partitions do not exist as they did, with the reason; none where the cluster does not tell."""
        counts: dict[str, int] = {}
        try:
            async with asyncio.timeout(EXPLAIN_LIMIT_S):
                counts = await self._cluster.topics.partition_counts([*{topic for topic, _ in places}])
        except (KafkaError, OSError, TimeoutError, RingfenceError):
            return {}
        found = {}
        for topic, partition in places:
            if topic not in counts:
                found[topic] = f"{topic} does not exist any more"
            elif partition >= counts[topic]:
                found[topic] = f"{topic} was created anew and has {counts[topic]} partitions"
        return found

    async def state_partitions(self, *, create: bool) -> int:
        """Return how many partitions the state topic has; 0 = it does not exist.

        Raises:
            SendError: it does not exist and cannot be created, or the cluster does not answer.
        """
        name = self.state_topic
        known = self._topics.get(name)
        if known is not None:
            return known.partitions
        try:
            async with asyncio.timeout(APPEAR_LIMIT_S if create else LOOK_LIMIT_S):
                found = await self._described(name)
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
        if found.config is not None and "compact" not in found.cleanup_policy:
            raise SendError(
                f"the state topic {name} has cleanup.policy={found.policy_words}, so Kafka would delete states: set it to compact"
            )
        self._note(found)
        return found.partitions

    def forget_state_topic(self) -> None:
        """Look at the state topic anew next time."""
        self._topics.pop(self.state_topic, None)

    @property
    def state_bytes_max(self) -> int:
        """The largest record batch that the state topic takes."""
        known = self._topics.get(self.state_topic)
        return MESSAGE_BYTES_DEFAULT if known is None else known.bytes_max

    async def _create_state_topic(self, name: str) -> TopicDescription:
        counts = await self._cluster.topics.partition_counts([self._source.accepted_topic])
        count = counts.get(self._source.accepted_topic, 1)
        await self._cluster.topics.create(name, count, self._source.replication_factor, dict(STATE_CONFIG))
        return (await self._cluster.topics.await_created([name], APPEAR_LIMIT_S))[name]

    # -- topics ---------------------------------------------------------------------------------------------------

    def _require_allowed(self, topic: str) -> None:
        if topic in self._owned or topic == self.state_topic:
            role = self._owned.get(topic, "the state of this consumer group")
            raise SendError(
                f"{topic} is {role}, which Ringfence alone writes: nothing is sent; send to the input topic of an address, or to a topic "
                "of your own"
            )
        _, until, reason = self._refused.get(topic, (0.0, 0.0, ""))
        if until > time.monotonic():
            raise SendError(
                f"{topic} refused the last writes, so nothing is sent to it for {REFUSED_S:g} s: {reason}"
            )

    async def _look_at(self, name: str) -> _Topic:
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                found = await self._described(name)
        except HiddenTopicError:
            raise
        except (KafkaError, OSError, TimeoutError, RingfenceError) as error:
            raise SendError(f"{name} cannot be looked at, so nothing is sent: {named(error)}") from error
        if found is None:
            raise SendError(f"{name} does not exist, so nothing is sent: create it")
        return self._note(found)

    def _refresh(self) -> None:
        """Look again at topics whose last look is old, beside all else."""
        now = time.monotonic()
        self._banned = bool(self._away) or any(until > now for _, until, _ in self._refused.values())
        for name, topic in self._topics.items():
            if topic.looked_at + FRESH_S <= now:
                self._topics[name] = topic._replace(looked_at=now)
                task = asyncio.create_task(self._look_again(name))
                self._refreshing.add(task)
                task.add_done_callback(self._refreshing.discard)
        self._stale_at = min((topic.looked_at for topic in self._topics.values()), default=now) + FRESH_S

    async def _look_again(self, name: str) -> None:
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                found = await self._described(name)
        except (KafkaError, OSError, TimeoutError, RingfenceError):
            return  # the old answer stands; a write that is refused says more
        if found is None:
            self._topics.pop(name, None)
        else:
            self._note(found)

    async def _described(self, name: str) -> TopicDescription | None:
        described = await self._cluster.topics.describe([name])
        if name in described.refused:
            raise HiddenTopicError(
                f"this user may not describe {name}: allow Describe and Write on it, and Read and Create too if it is a state topic"
            )
        return described.topics.get(name)

    def _note(self, found: TopicDescription) -> _Topic:
        topic = self._topics[found.name] = _Topic(
            found.partitions,
            found.message_bytes_max,
            found.timestamps,
            time.monotonic(),
            self._addresses.get(found.name),
        )
        return topic

    # -- records --------------------------------------------------------------------------------------------------

    def _placed(self, send: Send, topic: _Topic) -> OutgoingRecord:
        headers = self._headers(send, topic.address)
        size = send.bytes + RECORD_BYTES + (ID_BYTES_MAX if headers is not send.headers else 0)
        if size > topic.bytes_max:
            room = f" (a worker adds up to {ADDED_BYTES} bytes of headers)" if topic.address else ""
            raise SendError(
                f"send {send.number} to {send.topic} is a record of about {size} bytes, and the topic takes {topic.bytes_max}{room}: nothing "
                f"of this message is sent; send less, or raise max.message.bytes on {send.topic}"
            )
        _require_timestamp(send, topic)
        partition = self._partition(send, topic)
        if (send.topic, partition) in self._away:
            raise SendError(
                f"{send.topic}/{partition} has no leader, or its broker does not answer: nothing of this message is sent, and others go on; look "
                "at the brokers"
            )
        return OutgoingRecord(
            send.topic,
            partition,
            send.key,
            send.value,
            headers,
            send.timestamp,
            size,
            topic.bytes_max,
        )

    @staticmethod
    def _partition(send: Send, topic: _Topic) -> int:
        """Return the partition that any client's default partitioner chooses; without a key, one for each group of the source."""
        if send.partition is not None:
            if send.partition >= topic.partitions:
                raise SendError(
                    f"send {send.number} goes to partition {send.partition} of {send.topic}, which has {topic.partitions}, numbered from 0: "
                    "nothing of this message is sent"
                )
            return send.partition
        if send.key is not None and topic.address is not None and topic.address.partitioner == "crc32":
            return crc32(send.key) % topic.partitions
        key = send.key if send.key is not None else send.origin.group
        if key is None:
            return send.origin.offset % topic.partitions
        return hash_of(key) % topic.partitions

    def _headers(self, send: Send, address: AddressSettings | None) -> Headers:
        own = send.duplicate_id
        if address is None:
            return send.headers if own is None else [*send.headers, (ID_HEADER, own)]
        names = address.duplicate_id_headers
        if own is None:
            if address.duplicate_id_from != "header" or any(
                value and name in names for name, value in send.headers
            ):
                return send.headers
            own = self.duplicate_id(send.origin.source, send.number)
        return [*send.headers, (names[0], own)]

    def duplicate_id(self, source: str, number: int) -> bytes:
        """Return the ID of a send: it follows from the source of its message and is the same in each attempt."""
        found = f"{self._prefix}{source}:{number}".encode(errors="backslashreplace")
        if len(found) <= ID_BYTES_MAX:
            return found
        return b"rf:" + blake2b(found, digest_size=16).hexdigest().encode()


def _require_timestamp(send: Send, topic: _Topic) -> None:
    """Refuse a timestamp that the topic would refuse, with everything else in the transaction."""
    if send.timestamp is None or not topic.timestamps:
        return
    ahead = send.timestamp - round(time.time() * 1000)
    for setting, distance in ((wire_names.TIMESTAMP_AFTER, ahead), (wire_names.TIMESTAMP_BEFORE, -ahead)):
        if distance > topic.timestamps.get(setting, math.inf):
            raise SendError(
                f"send {send.number} to {send.topic} has the timestamp {send.timestamp}, {abs(ahead) / 1000:.0f} s from now, and the topic has "
                f"{setting}={topic.timestamps[setting]}: nothing of this message is sent; give another timestamp, or none"
            )

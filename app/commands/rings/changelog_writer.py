"""Writes the changelog of a lane as the lane itself, after fencing its former owner."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from agents.lane import journal
from agents.lane.journal import RingEvent
from agents.topic_checks.topics import missing_journal
from app.commands.rings.joined_rings import Entry
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.topics import LONG_MAX
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import MissingTopicError
from ringfence_kafka.producer.transactional import Builder, Outgoing, TransactionalProducer
from ringfence_kafka.protocol import wire_names
from tables.codec import Meta, next_key

WRITE_LIMIT_S: Final = 30.0
_MINUTE_MS: Final = 60_000


async def require_journal(settings: Settings, cluster: Cluster) -> None:
    """Check, before any lane is fenced, that the journal can record the order.

    Raises:
        MissingTopicError: The journal does not exist.
    """
    name = wire_names.journal_topic(settings.app.id)
    if name not in await cluster.topics.partition_counts([name]):
        raise MissingTopicError(missing_journal(settings.app.id))


class Change(NamedTuple):
    """Records for one changelog partition."""

    number: int
    entries: Sequence[Entry]


class Event(NamedTuple):
    """Journal record of a lane, with the offsets of its meta record."""

    event: RingEvent
    lane: int
    before: int
    after: int
    """Capacities or counts, see :mod:`agents.lane.journal`."""
    meta: Meta
    name: str = ""
    """Name in place of the address."""


class OwnedLane:
    """Lane that this process owns as the only writer within the context, until a worker opens it."""

    def __init__(self, settings: Settings, address: AddressSettings, number: int) -> None:
        self._app_id = settings.app.id
        self._address = address.name
        self._changelog = wire_names.changelog_topic(settings.app.id, address.name)
        self._producer = TransactionalProducer(
            settings.kafka,
            wire_names.transactional_id(settings.app.id, address.name, number),
            wire_names.lane_name(address.name, number),
        )

    async def __aenter__(self) -> Self:
        """Fence the former owner.

        Raises:
            KafkaTimeoutError: The transaction coordinator does not answer.
        """
        async with self._producer.kept():
            await self._producer.fence()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.discard()

    async def write(
        self,
        changes: Sequence[Change],
        events: Sequence[Event] = (),
        *,
        oldest_ms: int = 0,
        limit_s: float = WRITE_LIMIT_S,
    ) -> None:
        """Write changelog and journal records, in order, in one transaction. ``oldest_ms``: see :func:`oldest_taken_ms`.

        Raises:
            FencedError: A worker has opened the lane meanwhile.
            TopicError: A topic refuses a record.
            KafkaError, TimeoutError: It is unknown whether the transaction is committed.
        """
        batches: list[Outgoing] = []
        for lane, entries in changes:
            builder = self._producer.builder()
            for key, value, timestamp in entries:
                at = None if timestamp is None else max(timestamp, oldest_ms)
                if builder.append(timestamp=at, key=key, value=value, headers=[]) is None:
                    batches.append(Outgoing(self._changelog, lane, builder))
                    builder = self._producer.builder()
                    builder.append(timestamp=at, key=key, value=value, headers=[])
            batches.append(Outgoing(self._changelog, lane, builder))
        batches += [
            journal_record(self._producer.builder(), self._app_id, self._address, event) for event in events
        ]
        async with asyncio.timeout(limit_s):
            await self._producer.transact(batches, {}, self._app_id)


async def oldest_taken_ms(cluster: Cluster, changelog: str) -> int:
    """Return the oldest timestamp that a changelog accepts, in milliseconds since the epoch."""
    topic = (await cluster.topics.describe([changelog])).topics.get(changelog)
    bounds = {} if topic is None else topic.timestamps
    now_ms = round(time.time() * 1000)
    return max(0, now_ms + _MINUTE_MS - bounds.get(wire_names.TIMESTAMP_BEFORE, LONG_MAX))


def journal_record(builder: Builder, app_id: str, address: str, event: Event) -> Outgoing:
    """Return a journal record. Offsets of a regrouping are by partition, even without ``lanes``."""
    lane, meta = event.lane, event.meta
    following = meta.next_offsets
    if event.event is RingEvent.REGROUPED and not meta.lanes:
        following = {next_key(topic, lane, 1): offset for topic, offset in following.items()}
    capacities, name = (event.before, event.after), event.name or address
    return journal.outgoing(
        builder, app_id, event.event, name, lane, capacities, following, meta.topic_ids, meta.lanes
    )

"""Writes the changelog of a lane as the lane itself, after fencing its former owner."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, Self

from agents.lane import journal
from agents.output.changelog import batches_of
from agents.topic_checks.topics import missing_journal
from app.commands.rings.joined_rings import Entry
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.topics import LONG_MAX
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import MissingTopicError
from ringfence_kafka.producer.transactional import Builder, NewBuilder, Outgoing, TransactionalProducer
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


class OwnedLane:
    """Lane that this process owns as the only writer within the context, until a worker opens it."""

    def __init__(self, settings: Settings, address: AddressSettings, number: int) -> None:
        self._app_id = settings.app.id
        self._address = address.name
        self._number = number
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

    def journal_record(
        self, event: journal.RingEvent, name: str, capacities: tuple[int, int], meta: Meta
    ) -> Outgoing:
        """Return the event's journal record after the offsets of ``meta``; see :mod:`agents.lane.journal`."""
        return journal_record(
            self._producer.builder(), self._app_id, event, name, self._number, capacities, meta
        )

    def builder(self) -> Builder:
        """Return an empty record batch of this producer."""
        return self._producer.builder()

    async def write(
        self, entries: Iterable[tuple[bytes, bytes | None]], journal_records: Sequence[Outgoing] = ()
    ) -> None:
        """Write changelog records, in order, and journal records in one transaction.

        Raises:
            FencedError: A worker has opened the lane meanwhile.
            TopicError: A topic refuses a record.
            KafkaError, TimeoutError: It is unknown whether the transaction is committed.
        """
        changelog = wire_names.changelog_topic(self._app_id, self._address)
        batches = batches_of(changelog, self._number, entries, self._producer.builder)
        await self.write_batches([*batches, *journal_records])

    async def write_dated(self, entries: Iterable[Entry], oldest_ms: int) -> None:
        """Write changelog records with their timestamps in one transaction. Raises as :meth:`write` does."""
        changelog = wire_names.changelog_topic(self._app_id, self._address)
        await self.write_batches(dated_batches(changelog, self._number, entries, self.builder, oldest_ms))

    async def write_batches(self, batches: Sequence[Outgoing], limit_s: float = WRITE_LIMIT_S) -> None:
        """Write record batches in one transaction. Raises as :meth:`write` does."""
        async with asyncio.timeout(limit_s):
            await self._producer.transact(batches, {}, self._app_id)


async def oldest_taken_ms(cluster: Cluster, changelog: str) -> int:
    """Return the oldest timestamp that a changelog accepts, in milliseconds since the epoch."""
    topic = (await cluster.topics.describe([changelog])).topics.get(changelog)
    bounds = {} if topic is None else topic.timestamps
    now_ms = round(time.time() * 1000)
    return max(0, now_ms + _MINUTE_MS - bounds.get(wire_names.TIMESTAMP_BEFORE, LONG_MAX))


def dated_batches(
    topic: str, partition: int, entries: Iterable[Entry], new_builder: NewBuilder, oldest_ms: int = 0
) -> list[Outgoing]:
    """Return changelog batches with the time of each acceptance, or ``oldest_ms`` if that is later."""
    batches, builder = [], new_builder()
    for key, value, timestamp in entries:
        record: dict[str, Any] = {
            "timestamp": None if timestamp is None else max(timestamp, oldest_ms),
            "key": key,
            "value": value,
            "headers": [],
        }
        if builder.append(**record) is None:
            batches.append(Outgoing(topic, partition, builder))
            builder = new_builder()
            builder.append(**record)
    batches.append(Outgoing(topic, partition, builder))
    return batches


def journal_record(
    builder: Builder,
    app_id: str,
    event: journal.RingEvent,
    address: str,
    lane: int,
    capacities: tuple[int, int],
    meta: Meta,
) -> Outgoing:
    """Return a lane's journal record. Offsets of a regrouping are by partition, even without ``lanes``."""
    following = meta.next_offsets
    if event is journal.RingEvent.REGROUPED and not meta.lanes:
        following = {next_key(topic, lane, 1): offset for topic, offset in following.items()}
    return journal.outgoing(
        builder, app_id, event, address, lane, capacities, following, meta.topic_ids, meta.lanes
    )

"""Source of a bridge: its consumer and the partitions that the group assigns to it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata

from agents.bridge.plan import Plan
from agents.bridge.window import in_turn
from ringfence_client.consumer.assignor import KeepingAssignor
from ringfence_client.consumer.group_terms import Terms
from ringfence_kafka.aiokafka_patches import internals, membership
from ringfence_kafka.aiokafka_patches.adaptive_fetch import AdaptiveFetch
from ringfence_kafka.aiokafka_patches.lenient_records import UNREADABLE_ERRORS
from ringfence_kafka.aiokafka_patches.metadata_refresh import refresh_metadata_on_doubt
from ringfence_kafka.auth.client_options import client_options
from ringfence_kafka.broker_limits import BRIDGE_SESSION_TIMEOUT_MS
from ringfence_kafka.errors import said
from ringfence_kafka.groups.committed_offsets import Committed

HEARTBEAT_MS: Final = 500
DRAIN_LIMIT_S: Final = 8.0
"""Time for unacknowledged batches before a revocation, in seconds; other members wait for it."""
REBALANCE_MS: Final = round(DRAIN_LIMIT_S * 1000) + 10_000
POLL_INTERVAL_MAX_MS: Final = 86_400_000
"""Large, because a bridge that cannot reach its target does not poll, and stays a member."""
METADATA_AGE_MS: Final = 10_000
FETCH_WAIT_MS: Final = 100
PARTITION_BYTES_MAX: Final = 2 * 2**20
RESPONSE_BYTES_MAX: Final = 16 * 2**20
"""Limits of the fetch for a fast link, in bytes."""
LEAVE_LIMIT_S: Final = 5.0
REST_S: Final = 5.0
"""Time that a partition with unreadable records is skipped, in seconds; other partitions continue."""


@dataclass(slots=True)
class Read:
    """Result of one read."""

    records: dict[int, list[Any]] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)
    """End of the read part of each partition, including transaction markers."""
    malformed: dict[tuple[int, int], str] = field(default_factory=dict)
    """Problem of each record that cannot be read, by partition and offset."""
    lost: dict[int, int] = field(default_factory=dict)
    """Next offset of each partition whose log does not have it."""
    unreadable: dict[int, str] = field(default_factory=dict)


class SourceConsumer:
    """aiokafka's consumer, with extensions that keep its membership and miss no record."""

    def __init__(
        self,
        plan: Plan,
        client_id: str,
        revoked: Callable[[], Awaitable[None]],
        assigned: Callable[[Collection[int]], None],
        doubt: Callable[[], None],
        unlike: Callable[[Terms], None],
    ) -> None:
        """Create an unconnected source.

        ``client_id``: shown to other members; ``revoked``: called before all partitions are revoked; ``assigned``: called with the assigned
        partitions, which are paused until :meth:`go_on`; ``doubt``: called when the topic may have been deleted, or its leader changed; ``unlike``:
        called with the terms of the processes that have the bridge, if they differ from this one's.
        """
        self._topic = plan.source_topic
        self._resting: dict[int, float] = {}
        self._had: dict[int, int] = {}
        """Partitions of the last assignment, with its generation. The assignor reads them after the revocation."""
        self._last = -1
        """Partition that records were taken from last."""
        self._consumer = AIOKafkaConsumer(
            **client_options(plan.source) | {"client_id": plan.source.client_id_of(client_id)},
            group_id=plan.group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="none",
            session_timeout_ms=BRIDGE_SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            max_poll_interval_ms=POLL_INTERVAL_MAX_MS,
            metadata_max_age_ms=METADATA_AGE_MS,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            fetch_max_bytes=RESPONSE_BYTES_MAX,
            max_partition_fetch_bytes=PARTITION_BYTES_MAX,
            partition_assignment_strategy=[
                KeepingAssignor(self._topic, lambda: self._had, stated=plan.terms, unlike=unlike)
            ],
        )
        self.portion: Final = AdaptiveFetch(self._consumer)
        internals.never_create(self._consumer)
        refresh_metadata_on_doubt(self._consumer, doubt)
        self._revoked, self._assigned = revoked, assigned

    async def start(self) -> None:
        """Join the group; return after the first assignment. Raises KafkaError if broker or group refuse."""
        internals.subscribe(self._consumer, self._topic, self._revoke, self._give)
        await self._consumer.start()

    @property
    def member_id(self) -> str:
        """Member ID of this process; empty = it is not a member now."""
        return membership.member_id(self._consumer)

    async def stop(self) -> None:
        """Leave the group and disconnect. Never raises."""
        await internals.end(self._consumer, LEAVE_LIMIT_S)

    async def _revoke(self, _: list[TopicPartition]) -> None:
        with contextlib.suppress(KafkaError):
            await self._revoked()

    def _give(self, tps: list[TopicPartition]) -> None:
        membership.keep_offsets(self._consumer)  # the coordinator exists only after the first assignment
        self._consumer.pause(*tps)
        for tp in tps:
            self._consumer.seek(tp, 0)  # otherwise aiokafka looks for a position itself
        self._resting.clear()
        # If two members had a partition, the later generation counts. 0 would mean "not held yet", so generations start at 1.
        self._had = {tp.partition: max(1, membership.generation(self._consumer)) for tp in tps}
        self._assigned([tp.partition for tp in tps])

    def pause(self, partition: int) -> None:
        """Read nothing from a partition until :meth:`go_on`."""
        tp = TopicPartition(self._topic, partition)
        if tp in self._consumer.assignment():
            self._consumer.pause(tp)
            self._seek(tp, 0)

    def go_on(self, partition: int, offset: int) -> None:
        """Continue to read a partition at an offset."""
        tp = TopicPartition(self._topic, partition)
        if tp in self._consumer.assignment():
            self._seek(tp, offset)
            self._consumer.resume(tp)

    def _seek(self, tp: TopicPartition, offset: int) -> None:
        """Seek, and discard fetched records and errors. aiokafka itself would keep an error of the former offset."""
        internals.drop_fetched(self._consumer, [tp])
        self._consumer.seek(tp, offset)

    def keep(self) -> None:
        """Restart aiokafka's tasks that an error ended or delayed. Call it regularly. Raises the cause of a lost membership."""
        internals.keep_fetching(self._consumer)
        membership.keep_member(self._consumer)
        membership.keep_asking(self._consumer)

    async def read(self, partitions: Mapping[int, int], share: int, records_max: int, limit_s: float) -> Read:
        """Return records of these partitions; wait up to ``limit_s`` seconds for the first. ``share``: limit of records from one partition.

        Raises KafkaError if the broker refuses all fetches.
        """
        found = await self._take(partitions, share, records_max)
        if not (found.records or found.reached or found.lost or found.unreadable):
            await internals.await_fetched(self._consumer, limit_s)
            found = await self._take(partitions, share, records_max)
        return found

    async def _take(self, partitions: Mapping[int, int], share: int, records_max: int) -> Read:
        """Take fetched records, with changing order of the partitions: partitions that got no records are first next time."""
        found, left = Read(), records_max
        now = asyncio.get_running_loop().time()
        for number in in_turn(partitions, self._last):
            begun = partitions[number]
            tp = TopicPartition(self._topic, number)
            if (
                not left
                or internals.position(self._consumer, tp) is None
                or self._resting.get(number, 0.0) > now
            ):
                continue
            try:
                records, malformed = await internals.take_fetched(self._consumer, tp, min(left, share))
            except OffsetOutOfRangeError as error:
                found.lost[number] = error.args[0].get(tp, begun)
                continue
            except UNREADABLE_ERRORS as error:
                self._resting[number] = now + REST_S
                self._seek(tp, begun)
                found.unreadable[number] = said(error)
                continue
            after = internals.position(self._consumer, tp)
            if after is not None and after > begun:  # markers alone can move the position
                found.reached[number] = after
            if records:
                found.records[number] = records
                left -= len(records)
                self._last = number
                found.malformed |= {
                    (number, offset): reason
                    for offset, reason in malformed.items()
                    if records[0].offset <= offset <= records[-1].offset
                }
        return found

    async def commit(self, offsets: Mapping[int, Committed]) -> None:
        """Commit offsets with metadata for the group. Raises KafkaError if the broker refuses, or does not answer."""
        assigned = self._consumer.assignment()
        named_offsets = {
            tp: OffsetAndMetadata(committed.offset, committed.note)
            for number, committed in offsets.items()
            if (tp := TopicPartition(self._topic, number)) in assigned
        }
        if named_offsets:
            await self._consumer.commit(named_offsets)

"""Partitions of one consumer: assigned, opened, held, suspended in a rebalance, released or lost.

Kafka's eager group protocol revokes all partitions at each change and returns most of them a moment later. A lease survives that: the
dispatcher hands out no new messages until the assignment is known, handlers continue, and their acknowledgements count. A partition that
returns continues. Another one is drained and released.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import Any, Final

from aiokafka import TopicPartition

from ringfence_client.consumer.partition_task import Assignment, ConsumerPartitionTask, Lost
from ringfence_client.dispatch.dispatcher import Dispatcher
from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.partition.lease_acquisition import LeaseAcquisition
from ringfence_client.partition.parked_reader import ParkedReader
from ringfence_client.partition.partition import HeldPartition
from ringfence_kafka.admin.topic_ids import NO_TOPIC, TopicIdentity
from ringfence_kafka.aiokafka_patches import membership

log: Final = logging.getLogger("ringfence.consumer")


class HeldPartitions:
    """Partitions of one accepted topic that this consumer holds."""

    def __init__(
        self,
        topic: str,
        options: ConsumerOptions,
        dispatcher: Dispatcher,
        parked: ParkedReader,
        lost: Lost | None,
    ) -> None:
        self.partitions: dict[int, HeldPartition] = {}
        """Held partitions by number, including suspended and leaving ones."""
        self.assigned: set[int] | None = None
        """Partitions that the group assigned; None = no assignment yet, or it is about to change."""
        self._had: set[int] = set()
        """Partitions of the last assignment."""
        self.reasons: dict[int, str] = {}
        """Reasons by assigned partition that is not held yet."""
        self.stopping = asyncio.Event()
        self.topic = topic
        self.drain_timeout = options.drain_timeout
        self.dispatcher = dispatcher
        self.parked = parked
        self.lost = lost
        self.consumer: Any
        self.membership: membership.Membership
        self.acquisition: LeaseAcquisition
        self._claims: dict[int, ConsumerPartitionTask] = {}

    def attach(self, consumer: Any, acquisition: LeaseAcquisition) -> None:
        """Attach aiokafka's consumer, which calls :meth:`revoked` and :meth:`given` from now on."""
        self.consumer = consumer
        self.membership = membership.Membership(consumer)
        self.acquisition = acquisition

    @property
    def ready(self) -> bool:
        """Whether the first assignment came and every assigned partition is held."""
        held = {number for number, partition in self.partitions.items() if not partition.draining}
        return self.assigned is not None and self.assigned <= held

    def owned(self) -> dict[int, int]:
        """Return the partitions of the last assignment with their fencing tokens; 0 = not held."""
        return {
            number: self.partitions[number].fence.token if number in self.partitions else 0
            for number in self._had
        }

    # -- what aiokafka calls ---------------------------------------------------------------------------------

    async def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out no new messages until the assignment is known. aiokafka waits for this before it joins again."""
        if numbers := {tp.partition for tp in partitions}:
            log.info("rebalance: %s of %s may move to other consumers", _numbers(numbers), self.topic)
        await self._revoke()

    def given(self, partitions: Collection[TopicPartition]) -> None:
        """Accept an assignment before its partitions are fetched."""
        if self.stopping.is_set():
            return
        numbers = {tp.partition for tp in partitions}
        self.consumer.pause(*partitions)
        for tp in partitions:
            # Otherwise aiokafka looks up a position itself. The partition is not fetched yet.
            self.consumer.seek(tp, 0)
        self.assigned = self._had = numbers
        log.info("assigned %s of %s", _numbers(numbers), self.topic)
        self.reasons.clear()
        assignment = Assignment(membership.generation(self.consumer))
        for number in self._claims.keys() - numbers:
            self._claims[number].revoked(for_good=True)
        for number in numbers:
            self._claims.setdefault(number, ConsumerPartitionTask(number, self)).assigned(assignment)

    def compare(self, identity: TopicIdentity) -> None:
        """Compare the topic with the held partitions. Partitions of a former topic of the same name are drained and opened again."""
        for partition in self.partitions.values():
            partition.writer.exists(partition.partition < identity.partitions)
        if identity == NO_TOPIC:
            return  # the group revokes its partitions, or it returns
        old = [
            partition
            for partition in self.partitions.values()
            if partition.lease.topic_id != identity.topic_id and not partition.failed
        ]
        if old:
            log.warning(
                "%s was deleted and created again: reading %s from the start; messages that were handled "
                "already are handled again",
                self.topic, _numbers(held_partition.partition for held_partition in old),
            )  # fmt: skip
        for held_partition in old:
            held_partition.fail()

    def write_again(self) -> None:
        """Write all leases at once, because their topic was deleted."""
        for held in self.partitions.values():
            held.writer.write_again()

    async def close(self) -> None:
        """Start to release all partitions. Membership is not needed any more: the group may assign them to others."""
        self.stopping.set()  # openings stop, whatever the cause
        await self._revoke(for_good=True)

    async def end(self) -> None:
        """Wait after :meth:`close` until all partitions are drained, written and released."""
        await asyncio.gather(*(claim.gone() for claim in self._claims.values()))

    async def _revoke(self, *, for_good: bool = False) -> None:
        self.assigned = None
        for claim in self._claims.values():
            claim.revoked(for_good=for_good)
        await asyncio.gather(*(claim.await_opening() for claim in self._claims.values()))


def _numbers(partitions: Iterable[int]) -> str:
    numbers = sorted(partitions)
    return f"partitions {', '.join(map(str, numbers))}" if numbers else "no partition"

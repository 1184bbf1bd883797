"""The partitions of one consumer: assigned, opened, held, suspended in a rebalance, released, lost.

Kafka's eager group protocol takes all partitions away at each change and gives most of them back a moment later. A lease outlives that:
nothing new is handed out until the assignment is known, what runs goes on, and its acknowledgements count. A partition that returns
continues. One that does not return is drained and released.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import Any, Final

from aiokafka import TopicPartition

from ringfence_client.consumer.lost_groups import LostGroups
from ringfence_client.consumer.partition_task import Assignment, ConsumerPartitionTask
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
        lost_groups: LostGroups,
    ) -> None:
        self.partitions: dict[int, HeldPartition] = {}
        """The partitions that are held, by number; suspended and leaving ones too."""
        self.assigned: set[int] | None = None
        """Partitions that the group gave us; None = nothing yet, or it is about to change."""
        self._had: set[int] = set()
        """Partitions that the group gave us last."""
        self.reasons: dict[int, str] = {}
        """Why an assigned partition is not held yet."""
        self.stopping = asyncio.Event()
        self.topic = topic
        self.drain_timeout = options.drain_timeout
        self.dispatcher = dispatcher
        self.parked = parked
        self.lost_groups = lost_groups
        self.consumer: Any
        self.membership: membership.Membership
        self.acquisition: LeaseAcquisition
        self._claims: dict[int, ConsumerPartitionTask] = {}

    def attach(self, consumer: Any, acquisition: LeaseAcquisition) -> None:
        """With aiokafka's consumer, which calls :meth:`revoked` and :meth:`given` from now on."""
        self.consumer = consumer
        self.membership = membership.Membership(consumer)
        self.acquisition = acquisition

    @property
    def ready(self) -> bool:
        """Whether the first assignment came and every assigned partition is held."""
        held = {number for number, partition in self.partitions.items() if not partition.draining}
        return self.assigned is not None and self.assigned <= held

    def owned(self) -> dict[int, int]:
        """Return the partitions that the group gave us last, each with its fencing token; 0 = it is not held."""
        return {
            number: self.partitions[number].fence.token if number in self.partitions else 0
            for number in self._had
        }

    # -- what aiokafka calls ---------------------------------------------------------------------------------

    async def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing new until the assignment is known. aiokafka waits for this before it joins again."""
        if numbers := {tp.partition for tp in partitions}:
            log.info("rebalance: %s of %s may move to other consumers", _numbers(numbers), self.topic)
        await self._revoke()

    def given(self, partitions: Collection[TopicPartition]) -> None:
        """Take what was assigned, before anything is fetched of it."""
        if self.stopping.is_set():
            return
        numbers = {tp.partition for tp in partitions}
        self.consumer.pause(*partitions)
        for tp in partitions:
            # Else aiokafka looks for a position itself; nothing is fetched of it yet.
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
        """Compare the topic with what is held. Partitions of another topic of that name are drained and opened again."""
        for partition in self.partitions.values():
            partition.writer.exists(partition.partition < identity.partitions)
        if identity == NO_TOPIC:
            return  # the group will take its partitions away, or it comes back
        others = [
            partition
            for partition in self.partitions.values()
            if partition.lease.topic_id != identity.topic_id
        ]
        old = [other for other in others if not other.failed]
        if old:
            log.warning(
                "%s was deleted and created again: reading %s from the start; messages that were handled "
                "already are handled again",
                self.topic, _numbers(held_partition.partition for held_partition in old),
            )  # fmt: skip
        for held_partition in old:
            held_partition.fail()

    def write_again(self) -> None:
        """Write all leases at once: the topic that they stood in is gone."""
        for held in self.partitions.values():
            held.writer.write_again()

    async def close(self) -> None:
        """Begin to give all away. From here on no membership is needed: others may be assigned what nothing runs of."""
        self.stopping.set()  # whatever brought us here: nothing is opened any more
        await self._revoke(for_good=True)

    async def end(self) -> None:
        """Wait, after :meth:`close`, until all is drained, written and released."""
        await asyncio.gather(*(claim.gone() for claim in self._claims.values()))

    async def _revoke(self, *, for_good: bool = False) -> None:
        self.assigned = None
        for claim in self._claims.values():
            claim.revoked(for_good=for_good)
        await asyncio.gather(*(claim.standing() for claim in self._claims.values()))


def _numbers(partitions: Iterable[int]) -> str:
    numbers = sorted(partitions)
    return f"partitions {', '.join(map(str, numbers))}" if numbers else "no partition"

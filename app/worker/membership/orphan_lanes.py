"""Lanes that the group has given to nobody although workers run, and what a worker does about them.

The leader of the group watches its topics: it asks for a new sharing when some appear or grow. A static member that led the group and
comes back within its session leads it again, and is not told: aiokafka joins by JoinGroup 5, whose answer names the member that it was
before (KIP-814 closes that gap in version 9). Then nobody watches. So each worker looks at what the group has given out; a static
member joins again where something stays nobody's, and the broker, which knows who leads, starts a rebalance when the leader does.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from aiokafka.errors import KafkaError

from agents.lane.open import QUESTION_LIMIT_S
from ringfence_kafka import clock
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.errors import RingfenceError

log: Final = logging.getLogger("ringfence.worker")

STANDS_S: Final = 15.0
"""The leader sees new partitions within ten seconds, and the group shares them out in another."""
AGAIN_MOST_S: Final = 600.0
"""At first it joins again after :data:`STANDS_S`, then after twice as long, and so on up to this."""

Partition = tuple[str, int]


class OrphanLanes:
    """To be asked again and again."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Collection[str],
        tell: Callable[[Sequence[Partition]], None],
        rejoin: Callable[[], None] | None,
        now: Callable[[], float] = clock.now,
    ) -> None:
        """Nothing is asked yet.

        Args:
            cluster: Is asked of its group.
            topics: That every worker of this configuration reads.
            tell: Called after each look with the partitions that stay unassigned.
            rejoin: Has this worker join the group again; None = the leader surely watches.
            now: Seconds.
        """
        self._cluster = cluster
        self._topics = sorted(topics)
        self._tell = tell
        self._rejoin = rejoin
        self._now = now
        self._since: dict[Partition, float] = {}
        """When each was first seen to be nobody's."""
        self._wait_s = STANDS_S
        self._next = 0.0
        """When joining again may help."""

    async def look(self) -> None:
        """Ask the group; where it does not say, what was known stands."""
        with contextlib.suppress(KafkaError, OSError, TimeoutError, RingfenceError, NotImplementedError):
            async with asyncio.timeout(QUESTION_LIMIT_S):
                found = await self._nobodys()
            if found is not None:
                self._judge(found)

    async def _nobodys(self) -> set[Partition] | None:
        """None while the group rebalances."""
        members = await self._cluster.groups.static_members()
        if not members or any(member.metadata is None for member in members):
            return None
        counts = await self._cluster.topics.partition_counts(self._topics)
        given = {place for member in members for place in member.assigned}
        return {(topic, number) for topic, count in counts.items() for number in range(count)} - given

    def _judge(self, found: Collection[Partition]) -> None:
        now = self._now()
        self._since = {item: self._since.get(item, now) for item in found}
        standing = sorted(item for item, since in self._since.items() if now - since >= STANDS_S)
        self._tell(standing)
        if not standing:
            self._wait_s, self._next = STANDS_S, 0.0
        elif self._rejoin is not None and now >= self._next:
            log.warning(
                "%s and %d more partitions are given to no worker: joining the group again, so that it shares out anew",
                "/".join(map(str, standing[0])), len(standing) - 1,
            )  # fmt: skip
            self._next, self._wait_s = now + self._wait_s, min(2 * self._wait_s, AGAIN_MOST_S)
            self._rejoin()

"""Finds lanes without a worker while workers run.

The leader of the group watches its topics, and requests a new assignment when some appear or grow. If the
leader is a static member and returns within its session, it leads again without knowing it, because aiokafka
joins by JoinGroup 5, whose answer names the former member (version 9, KIP-814, closes that gap). Then no
member watches. Therefore each worker looks at the group's assignment, and a static member joins again if a
lane stays without a worker. The broker knows the leader, and starts a rebalance when the leader joins again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from aiokafka.errors import KafkaError

from agents.lane.errors import QUESTION_LIMIT_S
from ringfence_kafka import clock
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.errors import RingfenceError

log: Final = logging.getLogger("ringfence.worker")

STANDS_S: Final = 15.0
"""Time until an unassigned partition is reported, so that the leader sees it (10 s) and assigns it."""
AGAIN_MOST_S: Final = 600.0
"""Maximum pause between two joins, in seconds. The pause starts at :data:`STANDS_S` and doubles."""

Partition = tuple[str, int]


class OrphanLanes:
    """Checks the assignment at each call of :meth:`refresh`."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Collection[str],
        tell: Callable[[Sequence[Partition]], None],
        rejoin: Callable[[], None] | None,
        now: Callable[[], float] = clock.now,
    ) -> None:
        """Create the check without asking the cluster.

        Each look calls ``tell`` with the partitions of ``topics`` that stay unassigned. ``rejoin`` makes this
        worker join the group again; None = the leader certainly watches.
        """
        self._cluster = cluster
        self._topics = sorted(topics)
        self._tell = tell
        self._rejoin = rejoin
        self._now = now
        self._since: dict[Partition, float] = {}
        """Time at which each partition was first seen without a worker."""
        self._wait_s = STANDS_S
        self._next = 0.0
        """Time from which joining again may help."""

    async def refresh(self) -> None:
        """Ask the group. Without an answer, the last result stays valid."""
        with contextlib.suppress(KafkaError, OSError, TimeoutError, RingfenceError):
            async with asyncio.timeout(QUESTION_LIMIT_S):
                orphans = await self._orphans()
            if orphans is not None:
                self._judge(orphans)

    async def _orphans(self) -> set[Partition] | None:
        """Return unassigned partitions; None while the group rebalances."""
        members = await self._cluster.groups.static_members()
        if not members or any(member.metadata is None for member in members):
            return None
        counts = await self._cluster.topics.partition_counts(self._topics)
        assigned = {place for member in members for place in member.assigned}
        return {(topic, number) for topic, count in counts.items() for number in range(count)} - assigned

    def _judge(self, orphans: Collection[Partition]) -> None:
        now = self._now()
        self._since = {place: self._since.get(place, now) for place in orphans}
        standing = sorted(place for place, since in self._since.items() if now - since >= STANDS_S)
        self._tell(standing)
        if not standing:
            self._wait_s, self._next = STANDS_S, 0.0
        elif self._rejoin is not None and now >= self._next:
            log.warning(
                "%s and %d more partitions are assigned to no worker: joining the group again for a new "
                "assignment",
                "/".join(map(str, standing[0])), len(standing) - 1,
            )  # fmt: skip
            self._next, self._wait_s = now + self._wait_s, min(2 * self._wait_s, AGAIN_MOST_S)
            self._rejoin()

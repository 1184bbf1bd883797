"""Watches a consumer group for foreign members, and decides which committed offsets may be trusted."""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from aiokafka.errors import KafkaError

from ringfence_kafka import clock
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.concurrency.coalesce import StoppedError
from ringfence_kafka.concurrency.timeouts import set_within
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.groups.committed_offsets import Committed
from ringfence_kafka.groups.foreign_members import ForeignMember, IsOurs, fault
from ringfence_kafka.groups.trusted_offsets import distrust, own_commit

LOOK_S: Final = 4.0
LIMIT_S: Final = 5.0
"""Limit of one query, in seconds. With the interval it is below the ten seconds in which a foreign member must be reported."""
FRESH_S: Final = 1.0
"""Time that a result is reused, in seconds, because many partitions open at the same time."""
_UNANSWERED: Final = (KafkaError, OSError, TimeoutError, RingfenceError, StoppedError)

Place = tuple[str, int]
"""Topic and partition."""


class GroupWatch:
    """Watch for foreign members in the consumer group of one process."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Collection[str],
        is_ours: IsOurs,
        log: logging.Logger,
        meaning: str,
        member_id: Callable[[], str] = lambda: "",
        *,
        reserved: bool = False,
    ) -> None:
        """Create the watch. It queries nothing yet.

        Args:
            cluster: Client for queries to the cluster and its group.
            topics: Topics whose offsets matter.
            is_ours: Returns whether a member is Ringfence's, from the user data that it joined with.
            log: Log for foreign members.
            meaning: Log text with the consequence of a foreign member for messages.
            member_id: Returns the present member ID of this process; empty = it is not a member.
            reserved: Whether only Ringfence has a use for the group. Otherwise another program may have used it before.
        """
        self.foreign: list[ForeignMember] = []
        """Foreign members at the last query."""
        self._cluster = cluster
        self._topics = sorted(topics)
        self._is_ours = is_ours
        self._log = log
        self._meaning = meaning
        self._member_id = member_id
        self._reserved = reserved
        self._joined_as = ""
        self._at_joining: Mapping[Place, Committed | None] = {}
        self._asked_at = -math.inf
        self._asking = asyncio.Lock()
        self._wake = asyncio.Event()

    @property
    def group_id(self) -> str:
        """ID of the watched consumer group."""
        return self._cluster.group_id

    @property
    def faults(self) -> list[str]:
        """One line for each foreign member."""
        return [fault(self._cluster.group_id, item) for item in self.foreign]

    @property
    def joined(self) -> bool:
        """Whether the offsets at the moment of this process's joining are known."""
        return bool(self._joined_as)

    def hurry(self) -> None:
        """Query at once, because partitions were assigned."""
        self._wake.set()

    async def run(self) -> None:
        """Query at intervals, until cancelled."""
        while True:
            await self.refresh()
            await set_within(self._wake, LOOK_S)
            self._wake.clear()

    async def refresh(self) -> None:
        """Query the members once. Without an answer nothing changes."""
        try:
            async with asyncio.timeout(LIMIT_S):
                async with self._asking:
                    await self._record_offsets()
                    await self._ask()
        except _UNANSWERED as error:
            self._log.debug("the members of %s cannot be asked now: %r", self._cluster.group_id, error)

    async def _ask(self) -> None:
        found = await self._cluster.groups.foreign_members(self._is_ours)
        self._asked_at = clock.now()
        for item in found:
            if item not in self.foreign:
                self._log.error(
                    "%s is a member of the group %s and is not Ringfence's: %s. Offsets that it commits are not followed. Stop it or give it "
                    "another group.id, and keep others out by ACLs (docs/security.md)",
                    item, self._cluster.group_id, self._meaning,
                )  # fmt: skip
        for entry in self.foreign:
            if entry not in found:
                self._log.warning("%s has left the group %s", entry, self._cluster.group_id)
        self.foreign = found

    async def distrust(
        self, topic: str, partition: int, committed: Committed | None, known: int | None
    ) -> str:
        """Return why a committed offset is not trusted; see :func:`ringfence_kafka.groups.trusted_offsets.distrust`.

        Raises:
            KafkaError: the group cannot be queried now.
        """
        if committed is None or committed.offset == known:
            return ""
        async with self._asking:
            await self._record_offsets()
            if clock.now() > self._asked_at + FRESH_S:
                await self._ask()
        place = (topic, partition)
        return distrust(
            committed,
            known,
            self._at_joining.get(place),
            self.foreign,
            joined=self.joined and place in self._at_joining,
            reserved=self._reserved,
        )

    def before(self, topic: str, partition: int) -> Committed | None:
        """Return the offset when this process joined the group, as a substitute for one that is not trusted; None = no substitute."""
        found = self._at_joining.get((topic, partition))
        return own_commit(found) if self._reserved else found

    async def _record_offsets(self) -> None:
        """Record the offsets once for each membership. While it lasts, operators' tools cannot set offsets."""
        member_id = self._member_id()
        if member_id == self._joined_as:
            return
        offsets: dict[Place, Committed | None] = {}
        if member_id:
            counts = await self._cluster.topics.partition_counts(self._topics)
            places: Sequence[Place] = [(topic, index) for topic in counts for index in range(counts[topic])]
            found: Sequence[Any] = await asyncio.gather(
                *(self._cluster.groups.committed(*place) for place in places)
            )
            offsets = dict(zip(places, found, strict=True))
        if self._member_id() == member_id:
            self._joined_as, self._at_joining = member_id, offsets

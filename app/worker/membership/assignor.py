"""Faust's assignor of partitions, with :mod:`app.worker.membership.lane_assignment`.

Members exchange the same data as Faust's, because workers of other versions may be in the group. Each also
announces its rules (:mod:`agents.rules.member_statements`), which Faust ignores.
"""

import asyncio
import json
import logging
import time
from collections.abc import Collection, Mapping
from typing import Any, Final

from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.errors import KafkaError

from agents.rules.member_statements import KEY, decode, is_worker
from agents.worker.lanes import Lanes
from app.worker import faust_parts
from app.worker.membership.lane_assignment import Joined, Partition, deal
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.groups.static_members import Member

log: Final = logging.getLogger("ringfence.worker")

RESTORE_LIMIT_S: Final = 120.0
"""Time after which the worker joins with the lanes restored so far, in seconds."""

_NEWCOMER: Final = ""
"""Stands for the member ID that the group has not given yet."""


class LaneAssignor(faust_parts.Assignor):
    """Assignor of :class:`app.worker.faust_app.RingfenceApp`; Faust creates it."""

    def metadata(self, topics: Collection[str]) -> ConsumerProtocolMemberMetadata:
        """Return the metadata that this member announces when it joins."""
        metadata = super().metadata(topics)
        stated = json.loads(metadata.user_data) | {KEY: dict(self.app.parts.group.statement)}
        return ConsumerProtocolMemberMetadata(
            metadata.version, metadata.subscription, json.dumps(stated).encode()
        )

    def assign_members(
        self, cluster: Any, members: Mapping[str, ConsumerProtocolMemberMetadata], stated: Mapping[str, Any]
    ) -> Mapping[str, Mapping[str, list[int]]]:
        """Return the partitions of each member by topic. Called in the leader of the group."""
        joined = {
            member: (stated[member].url, metadata.subscription, stated[member].assignment.active_tps)
            for member, metadata in members.items()
        }
        unusable = {
            member for member, metadata in members.items() if decode(metadata.user_data, member).unusable
        }
        topics = {topic for value in members.values() for topic in value.subscription}
        counts = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}
        return deal(joined, self.app.parts.group.lane_topics, counts, unusable)

    def foresee(
        self, members: Collection[Member], topics: Collection[str], counts: Mapping[str, int]
    ) -> set[Partition]:
        """Predict the assignment of this worker if it joined now.

        The prediction is empty if the group rebalances and does not report its members, or has a foreign
        member.
        """
        joined: dict[str, Joined] = {_NEWCOMER: (self.own_url, topics, ())}
        for member in members:
            if member.metadata is None or not is_worker(member.metadata.user_data):
                return set()
            url = self.stated(member.metadata).url
            joined[member.member_id] = (url, member.metadata.subscription, member.assigned)
        given = deal(joined, self.app.parts.group.lane_topics, counts)[_NEWCOMER]
        return {(topic, number) for topic, numbers in given.items() for number in numbers}


async def restore_before_joining(
    lanes: Lanes, cluster: Cluster, assignor: LaneAssignor, topics: set[str], instance: str | None
) -> None:
    """Restore the lanes that the present group would assign to one more member. Never raises; logs errors.

    In an empty group, lanes wait until this worker joins, so there is nothing to gain. The same is true for a
    static member that returns as ``instance``.
    """
    began = time.monotonic()
    try:
        async with asyncio.timeout(RESTORE_LIMIT_S):
            members = await cluster.groups.static_members()
            if not members or (
                instance is not None and any(member.instance == instance for member in members)
            ):
                return
            counts = await cluster.topics.partition_counts(sorted(topics))
            await lanes.warm_up(assignor.foresee(members, topics, counts))
    except TimeoutError:
        log.warning(
            "restoring lanes takes more than %.0f s: joining the group with the lanes restored so far",
            RESTORE_LIMIT_S,
        )
    except (KafkaError, OSError) as error:
        log.info("cannot predict the assignment; lanes will be restored when they open: %r", error)
    else:
        log.info("lanes are restored after %.1f s: joining the group", time.monotonic() - began)

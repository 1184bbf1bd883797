"""Faust's assignor of partitions, with :mod:`app.worker.membership.lane_assignment`.

Members exchange the same data as Faust's, because workers of other versions may be in the group. Each also
announces its rules (:mod:`agents.rules.member_statements`), which Faust ignores.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

from agents.rules.member_statements import KEY, decode, is_worker
from app.worker import faust_parts
from app.worker.membership.lane_assignment import Joined, Partition, deal
from ringfence_kafka.groups.static_members import Member

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

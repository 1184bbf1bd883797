"""Faust's assignor of partitions, with :mod:`app.worker.membership.lane_assignment`.

Members exchange what Faust's members do, because workers of other versions may be in the group. Each also states its rules
(:mod:`agents.rules.member_statements`), which Faust ignores.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

from agents.rules.member_statements import KEY, decode
from app.worker.membership.lane_assignment import AssignedLane, assign_lanes, units_of
from ringfence_kafka.aiokafka_patches import faust_parts
from ringfence_kafka.groups.static_members import Member

_NEWCOMER: Final = ""
"""Stands for a member ID that the group is still to give."""

Partition = tuple[str, int]
Joined = tuple[str, Collection[str], Collection[Partition]]
"""URL, topics and partitions of a member."""


class LaneAssignor(faust_parts.Assignor):
    """The assignor of :class:`app.worker.faust_app.RingfenceApp`; Faust creates it."""

    def metadata(self, topics: Collection[str]) -> ConsumerProtocolMemberMetadata:
        """Return what this member states when it joins."""
        metadata = super().metadata(topics)
        stated = json.loads(metadata.user_data) | {KEY: dict(self.app.parts.group.statement)}
        return ConsumerProtocolMemberMetadata(
            metadata.version, metadata.subscription, json.dumps(stated).encode()
        )

    def assign_members(
        self, cluster: Any, members: Mapping[str, ConsumerProtocolMemberMetadata], stated: Mapping[str, Any]
    ) -> Mapping[str, Mapping[str, list[int]]]:
        """Return the partitions of each member by topic, as the leader of the group."""
        joined = {
            member: (stated[member].url, metadata.subscription, stated[member].assignment.active_tps)
            for member, metadata in members.items()
        }
        unusable = {
            member for member, metadata in members.items() if decode(metadata.user_data, member).unusable
        }
        topics = {topic for value in members.values() for topic in value.subscription}
        counts = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}
        return deal(joined, self.app.parts.group.topics_together, counts, unusable)

    def foresee(
        self, members: Collection[Member], topics: Collection[str], counts: Mapping[str, int]
    ) -> set[Partition]:
        """The assignment of this worker as one more member; nothing while the group rebalances and does not report its members."""
        joined: dict[str, Joined] = {_NEWCOMER: (self.own_url, topics, ())}
        for member in members:
            if member.metadata is None:
                return set()
            url = self.stated(member.metadata).url
            joined[member.member_id] = (url, member.metadata.subscription, member.assigned)
        given = deal(joined, self.app.parts.group.topics_together, counts)[_NEWCOMER]
        return {(topic, number) for topic, numbers in given.items() for number in numbers}


def deal(
    joined: Mapping[str, Joined],
    pairs: Iterable[Collection[str]],
    counts: Mapping[str, int],
    unusable: Collection[str] = (),
) -> dict[str, dict[str, list[int]]]:
    """Partitions by topic for each member. Their URLs order the members, since IDs are new at each join.

    Args:
        joined: Members.
        pairs: The topics of each address.
        counts: Partitions of each topic.
        unusable: Members that cannot write their state: they get nothing if the others subscribe to all topics.
    """
    able = {member: item for member, item in joined.items() if member not in unusable}
    subscribed, wanted = (
        {topic for _, topics, _ in items.values() for topic in topics} for items in (able, joined)
    )
    if able and subscribed >= wanted:
        nothing: dict[str, dict[str, list[int]]] = {member: {} for member in joined if member not in able}
        joined = able
    else:
        nothing = {}
    members = sorted(joined, key=lambda member: (joined[member][0], member))
    units, topics = units_of({member: joined[member][1] for member in members}, pairs, counts)
    unit_of = {topic: name for name, items in topics.items() for topic in items}
    held = {
        member: {
            AssignedLane(unit_of[topic], number) for topic, number in joined[member][2] if topic in unit_of
        }
        for member in members
    }
    dealt: dict[str, dict[str, list[int]]] = {member: {} for member in members}
    for member, lane in assign_lanes(units, held).items():
        for name, number in lane:
            for topic in topics[name]:
                if number < counts[topic]:
                    dealt[member].setdefault(topic, []).append(number)
    return dealt | nothing

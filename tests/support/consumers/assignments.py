"""Assignments that members of one group get from the consumers' assignor."""

from collections.abc import Mapping
from types import SimpleNamespace

from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.errors import GroupLoadInProgressError

from ringfence_client.consumer.assignor import KeepingAssignor
from ringfence_kafka.groups.static_members import Member
from tests.support.cluster_double import ClusterDouble

CLUSTER = SimpleNamespace(partitions_for_topic=lambda _: {0, 1})
"""Each topic has two partitions."""


class GroupDouble(ClusterDouble):
    """A cluster whose group has these members; without any its coordinator does not answer."""

    group_id = "readers"

    def __init__(self, *members: ConsumerProtocolMemberMetadata | None) -> None:
        self._members = members

    async def static_members(self) -> list[Member]:
        if not self._members:
            raise GroupLoadInProgressError
        return [Member("m", None, member) for member in self._members]


def assigned(
    members: Mapping[str, ConsumerProtocolMemberMetadata],
) -> tuple[dict[str, list[int]], dict[str, bytes]]:
    given = KeepingAssignor("t", dict).assign(CLUSTER, members)
    return (
        {
            name: [number for _, numbers in item.assignment for number in numbers]
            for name, item in given.items()
        },
        {name: item.user_data for name, item in given.items()},
    )

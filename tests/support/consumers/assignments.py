"""Assignments that members of one group get from the consumers' assignor."""

from collections.abc import Mapping
from types import SimpleNamespace

from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

from ringfence_client.consumer.assignor import KeepingAssignor

CLUSTER = SimpleNamespace(partitions_for_topic=lambda _: {0, 1})
"""Each topic has two partitions."""


def assigned(
    members: Mapping[str, ConsumerProtocolMemberMetadata],
) -> tuple[dict[str, list[int]], dict[str, bytes]]:
    """Return partitions and user data that each member is given."""
    given = KeepingAssignor("t", dict).assign(CLUSTER, members)
    return (
        {
            name: [number for _, numbers in item.assignment for number in numbers]
            for name, item in given.items()
        },
        {name: item.user_data for name, item in given.items()},
    )

"""Members of a consumer group with their user data."""

import json
from collections.abc import Callable
from typing import NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

from ringfence_kafka.groups import static_members
from ringfence_kafka.groups.static_members import partitions_of


class Member(NamedTuple):
    """Member of a group."""

    name: str
    """Instance name, from its client ID."""
    host: str
    web: str
    """Address of its web server, which Faust's workers state; empty for other members."""
    partitions: frozenset[tuple[str, int]]
    """Topic and number of its assigned partitions; empty during a rebalance."""


class Members(NamedTuple):
    """State and members of a group at one moment."""

    state: str
    """State in Kafka's terms: Stable, Empty, Dead, PreparingRebalance, CompletingRebalance."""
    members: tuple[Member, ...]

    @property
    def rebalancing(self) -> bool:
        """Whether the group rebalances."""
        return "Rebalance" in self.state


async def fetch(admin: AIOKafkaAdminClient, group: str, named: Callable[[str], str]) -> Members:
    """Return the present members. ``named``: returns a member's name for its client ID.

    Raises:
        KafkaError: the group's coordinator cannot answer, or this user may not see the group.
    """
    state, described = await static_members.describe(admin, group)
    found = (
        Member(named(client_id), host.removeprefix("/"), _web(metadata), partitions_of(assignment))
        for _, _, client_id, host, metadata, assignment in described
    )
    return Members(state, tuple(sorted(found)))


def _web(metadata: bytes) -> str:
    try:
        stated = json.loads(ConsumerProtocolMemberMetadata.decode(metadata).user_data or b"{}")
        return str(stated.get("url") or "")
    except (ValueError, TypeError, AttributeError):
        return ""  # the data of another client, or none yet

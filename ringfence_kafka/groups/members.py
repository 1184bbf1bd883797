"""Members of a consumer group with their user data."""

import json
from collections.abc import Callable
from typing import NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from aiokafka.errors import for_code


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
    coordinator = await admin.find_coordinator(group)
    (answer,) = await admin.describe_consumer_groups([group], coordinator)
    ((code, _, state, _, _, members, *_),) = answer.groups
    if code:
        raise for_code(code)(f"the members of {group}")
    found = (_member(member) for member in members)
    return Members(str(state), tuple(sorted(item._replace(name=named(item.name)) for item in found)))


def _member(described: tuple[object, ...]) -> Member:
    """Return a member from a description in any version of Kafka's protocol, where metadata and assignment are last."""
    *front, metadata, assignment = described
    client_id, host = str(front[-2]), str(front[-1]).removeprefix("/")
    return Member(client_id, host, _web(metadata), _partitions(assignment))


def _web(metadata: object) -> str:
    try:
        stated = json.loads(ConsumerProtocolMemberMetadata.decode(metadata).user_data or b"{}")
        return str(stated.get("url") or "")
    except (ValueError, TypeError, AttributeError):
        return ""  # the data of another client, or none yet


def _partitions(assignment: object) -> frozenset[tuple[str, int]]:
    try:
        decoded = ConsumerProtocolMemberAssignment.decode(assignment)
    except (ValueError, TypeError):
        return frozenset()
    return frozenset((tp.topic, tp.partition) for tp in decoded.partitions())

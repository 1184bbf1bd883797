"""Static membership of a consumer group (KIP-345), as far as aiokafka lacks it. Call functions with a consumer on its own event loop.

aiokafka names the instance when it joins, and does not leave the group at its end. Its heartbeats lack the name. Two processes with the
same name would therefore both see their sessions as ended, join again and remove each other forever. This module adds the name to
heartbeats, so that the broker reports which process is fenced.

A member that returns under its name gets its former partitions without a rebalance, even if it now subscribes to other topics: see
:func:`forget_outdated`.
"""

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import UnknownMemberIdError, for_code
from aiokafka.protocol.types import Array, Boolean, Bytes, Int16, Int32, Schema, String

from ringfence_kafka.aiokafka_patches import internals
from ringfence_kafka.protocol.flexible_requests import older_request

SAYS_LIMIT_S: Final = 5.0
"""Limit for a rebalancing group, in seconds. A group that waits for the member of this name would wait until its session ends."""
ASK_AGAIN_S: Final = 0.1

_TEXT: Final = String("utf-8")
_DESCRIBED_MEMBER: Final = Array(
    ("member_id", _TEXT), ("group_instance_id", _TEXT), ("client_id", _TEXT), ("client_host", _TEXT),
    ("member_metadata", Bytes), ("member_assignment", Bytes),
)  # fmt: skip
_DESCRIBED_GROUP: Final = Array(
    ("error_code", Int16), ("group", _TEXT), ("state", _TEXT), ("protocol_type", _TEXT), ("protocol", _TEXT),
    ("members", _DESCRIBED_MEMBER), ("authorized_operations", Int32),
)  # fmt: skip
_LEFT_MEMBER: Final = Array(("member_id", _TEXT), ("group_instance_id", _TEXT), ("error_code", Int16))


DescribeMembers: Final = older_request(
    15, 4,
    Schema(("groups", Array(_TEXT)), ("include_authorized_operations", Boolean)),
    Schema(("throttle_time_ms", Int32), ("groups", _DESCRIBED_GROUP)),
)  # fmt: skip
"""Query for the members of groups with their instance names."""
LeaveByName: Final = older_request(
    13, 3,
    Schema(("group", _TEXT), ("members", Array(("member_id", _TEXT), ("group_instance_id", _TEXT)))),
    Schema(("throttle_time_ms", Int32), ("error_code", Int16), ("members", _LEFT_MEMBER)),
)  # fmt: skip
"""Request that removes static members from their group."""


class Member(NamedTuple):
    """Member of a consumer group."""

    member_id: str
    instance: str | None
    metadata: Any
    """Data that it joined with: ``subscription`` and ``user_data``; None during a rebalance."""
    assigned: Collection[tuple[str, int]] = ()
    """Assigned topics and partitions."""


async def members(admin: AIOKafkaAdminClient, group: str) -> list[Member]:
    """Return the present members of a consumer group.

    Raises:
        KafkaError: the group's coordinator does not answer, or refuses.
    """
    _, found = await describe(admin, group)
    return [
        Member(
            member_id,
            name,
            ConsumerProtocol.METADATA.decode(metadata) if metadata else None,
            partitions_of(assignment),
        )
        for member_id, name, _, _, metadata, assignment in found
    ]


async def describe(admin: AIOKafkaAdminClient, group: str) -> tuple[str, Sequence[Sequence[Any]]]:
    """Return the state of a group, and the fields of its members. Raises as :func:`members`."""
    coordinator = await admin.find_coordinator(group)
    answer = await internals.send_request(admin, DescribeMembers([group], False), coordinator)
    ((code, _, state, _, _, found, _),) = answer.groups
    if code:
        raise for_code(code)(f"the members of {group}")
    return state, found


def partitions_of(assignment: bytes) -> frozenset[tuple[str, int]]:
    """Return the topics and partitions of an assignment; empty during a rebalance, or if another client's form is not known."""
    try:
        decoded = ConsumerProtocol.ASSIGNMENT.decode(assignment)
    except (ValueError, TypeError):
        return frozenset()
    return frozenset((topic, number) for topic, numbers in decoded.assignment for number in numbers)


async def forget_outdated(
    admin: AIOKafkaAdminClient, group: str, instance: str, topics: Collection[str]
) -> bool:
    """Remove the member of this name if it subscribes to other or unknown topics; return whether it was removed.

    Otherwise this process would get its predecessor's partitions without a rebalance, including those of unwanted topics, and partitions
    of new topics would have no owner. A rebalancing group does not report subscriptions, and the rebalance may end before this process
    joins. The query is therefore repeated; if subscriptions are still not reported at the end, the member is removed.

    Raises:
        KafkaError: the group's coordinator does not answer, or refuses.
    """
    deadline = time.monotonic() + SAYS_LIMIT_S
    while True:
        found = [member for member in await members(admin, group) if member.instance == instance]
        says = all(item.metadata is not None for item in found)
        if says and all(set(item.metadata.subscription) == set(topics) for item in found):
            return False
        if says or time.monotonic() > deadline:
            break
        await asyncio.sleep(ASK_AGAIN_S)
    coordinator = await admin.find_coordinator(group)
    answer = await internals.send_request(admin, LeaveByName(group, [("", instance)]), coordinator)
    code = answer.error_code or answer.members[0][2]
    if code and for_code(code) is not UnknownMemberIdError:  # the session of that member has just ended
        raise for_code(code)(f"to take {instance} out of {group}")
    return True

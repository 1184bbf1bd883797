"""Static membership of a consumer group (KIP-345), as far as aiokafka lacks it. Call functions that take a consumer on its own event loop.

aiokafka names the instance when it joins, and does not leave the group at its end. But its heartbeats lack the name. Two processes of one
name would therefore each see their session as ended, join again and so throw the other out, for ever. With this module a heartbeat has the
name, and the broker reports which process is fenced.

A member that comes back under its name gets its former partitions without a rebalance, even if it now subscribes to other topics: see
:func:`forget_outdated`.
"""

import asyncio
import logging
import time
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import UnknownMemberIdError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Bytes, Int16, Int32, Schema, String

from ringfence_kafka.aiokafka_patches import internals

log: Final = logging.getLogger("ringfence.kafka")

SAYS_LIMIT_S: Final = 5.0
"""For a group that rebalances. One that waits for the member of our name would do so until its session ends."""
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


class _DescribeAnswer(Response):  # type: ignore[misc]
    API_KEY = 15
    API_VERSION = 4
    SCHEMA = Schema(("throttle_time_ms", Int32), ("groups", _DESCRIBED_GROUP))


class _Describe(RequestStruct):  # type: ignore[misc]
    API_KEY = 15
    API_VERSION = 4
    RESPONSE_TYPE = _DescribeAnswer
    SCHEMA = Schema(("groups", Array(_TEXT)), ("include_authorized_operations", Boolean))


class _LeaveAnswer(Response):  # type: ignore[misc]
    API_KEY = 13
    API_VERSION = 3
    SCHEMA = Schema(("throttle_time_ms", Int32), ("error_code", Int16), ("members", _LEFT_MEMBER))


class _Leave(RequestStruct):  # type: ignore[misc]
    API_KEY = 13
    API_VERSION = 3
    RESPONSE_TYPE = _LeaveAnswer
    SCHEMA = Schema(("group", _TEXT), ("members", Array(("member_id", _TEXT), ("group_instance_id", _TEXT))))


class DescribeMembers(Request[_Describe]):  # type: ignore[misc]
    """Asks for the members of a group, with their instance names."""

    API_KEY = 15

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: type[_Describe]) -> _Describe:
        """As it goes over the wire."""
        return request_struct_class([self._group], False)


class LeaveByName(Request[_Leave]):  # type: ignore[misc]
    """Takes a static member out of its group."""

    API_KEY = 13

    def __init__(self, group: str, instance: str) -> None:
        self._group, self._instance = group, instance

    def build(self, request_struct_class: type[_Leave]) -> _Leave:
        """As it goes over the wire."""
        return request_struct_class(self._group, [("", self._instance)])


class Member(NamedTuple):
    """Member of a consumer group."""

    member_id: str
    instance: str | None
    metadata: Any
    """Its data at joining: ``subscription`` and ``user_data``; None while the group rebalances."""
    assigned: Collection[tuple[str, int]] = ()
    """Topics and partitions that it was given since."""


async def members(admin: AIOKafkaAdminClient, group: str) -> list[Member]:
    """Return the present members of a consumer group.

    Raises:
        KafkaError: the group's coordinator does not answer, or refuses.
    """
    coordinator = await admin.find_coordinator(group)
    answer = await internals.ask(admin, DescribeMembers(group), coordinator)
    ((code, _, _, _, _, found, _),) = answer.groups
    if code:
        raise for_code(code)(f"the members of {group}")
    return [
        Member(
            member_id,
            name,
            ConsumerProtocol.METADATA.decode(metadata) if metadata else None,
            _partitions(assignment),
        )
        for member_id, name, _, _, metadata, assignment in found
    ]


def _partitions(assignment: bytes) -> Collection[tuple[str, int]]:
    if not assignment:
        return ()
    decoded = ConsumerProtocol.ASSIGNMENT.decode(assignment)
    return {(topic, number) for topic, numbers in decoded.assignment for number in numbers}


async def forget_outdated(
    admin: AIOKafkaAdminClient, group: str, instance: str, topics: Collection[str]
) -> bool:
    """Remove the member of this name if it subscribes to other or unknown topics; return whether it did.

    Otherwise this process would get its predecessor's partitions without a rebalance, also of unwanted topics. Nobody would have the
    partitions of new topics. While the group rebalances, it does not report subscriptions, and the rebalance may end by the
    time that we join. Therefore the group is asked again; if it still does not report them in the end, the member is removed.

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
    answer = await internals.ask(admin, LeaveByName(group, instance), coordinator)
    code = answer.error_code or answer.members[0][2]
    if code and for_code(code) is not UnknownMemberIdError:  # that one's session has just ended
        raise for_code(code)(f"to take {instance} out of {group}")
    return True

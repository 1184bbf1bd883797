"""Foreign members of a consumer group: members that are not Ringfence's.

Any client may join a group whose name it knows. A client of the classic protocol needs the same assignor, or an empty group. A client of
KIP-848 needs neither: the broker changes the type of the group and assigns the partitions itself. DescribeGroups then reports the group
as dead, so members are queried with the request of each type.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, for_code

from ringfence_kafka.aiokafka_patches import internals
from ringfence_kafka.groups.static_members import DescribeMembers
from ringfence_kafka.protocol import flexible_requests
from ringfence_kafka.protocol.flexible_requests import INT16, INT32, NO_TAGS, Question, Reader

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
"""Protocol of KIP-848, ``group.protocol=consumer``."""
SHARE: Final = "share"
"""Protocol of KIP-932."""
WAY_OUT: Final = "stop it, or give it another group.id; ACLs keep others out: docs/security.md"

_DESCRIBE_CONSUMER_GROUP: Final = 69
_DESCRIBE_SHARE_GROUP: Final = 77
_WITH_MEMBER_TYPE: Final = 1
"""Version of the request from which members have a type."""
_DESCRIPTIONS: Final = (
    (_DESCRIBE_CONSUMER_GROUP, _WITH_MEMBER_TYPE), (_DESCRIBE_CONSUMER_GROUP, 0), (_DESCRIBE_SHARE_GROUP, 1),
)  # fmt: skip
"""Requests that describe other groups, with versions; the first that the broker supports is used."""
_IS_CLASSIC: Final = b"\0"
_NO_SUCH_GROUP: Final = frozenset({69, 35})
"""GROUP_ID_NOT_FOUND: the group has another type. UNSUPPORTED_VERSION: the cluster does not support groups of this type."""
_ID_BYTES: Final = 16

IsOurs = Callable[[bytes], bool]
"""Returns whether a classic member is Ringfence's, from the user data that it joined with."""


class ForeignMember(NamedTuple):
    """Member of a group that is not Ringfence's."""

    client_id: str
    host: str
    protocol: str
    """:data:`CLASSIC`, :data:`CONSUMER` or :data:`SHARE`."""

    def __str__(self) -> str:
        return f"client.id {self.client_id or '(none)'} on host {self.host} ({self.protocol} protocol)"


def fault(group: str, member: ForeignMember) -> str:
    """Return the description of a foreign member, for health and status."""
    return f"the group {group} has a foreign member, {member}"


class OtherMember(NamedTuple):
    """Member in the response to the request of its group's type."""

    client_id: str
    host: str
    protocol: str | None
    """Protocol; None = the broker does not report it."""


async def find_foreign_members(
    admin: AIOKafkaAdminClient, group: str, is_ours: IsOurs, own_prefix: str
) -> list[ForeignMember]:
    """Return the foreign members of a group, from its coordinator.

    ``is_ours`` decides about a classic member. Ringfence's client IDs begin with ``own_prefix``. The prefix decides during a rebalance,
    and about classic members in a group of KIP-848, for which the broker does not return user data.

    Raises:
        KafkaError: the coordinator cannot answer now, or denies access.
    """
    coordinator = await admin.find_coordinator(group)
    answer = await internals.send_request(admin, DescribeMembers([group], False), coordinator)
    ((code, _, state, _, _, classic, _),) = answer.groups
    if code and code not in _NO_SUCH_GROUP:
        raise for_code(code)(f"the members of {group}")
    if classic or (state != "Dead" and not code):
        return sorted(
            ForeignMember(client_id, host.removeprefix("/"), CLASSIC)
            for _, _, client_id, host, metadata, _ in classic
            if not _is_ours(metadata, client_id, is_ours, own_prefix)
        )
    return sorted(
        ForeignMember(client_id, host.removeprefix("/"), protocol or CONSUMER)
        for client_id, host, protocol in await of_other_types(admin, group, coordinator)
        # Brokers before 4.1 do not report the protocol.
        if protocol not in {None, CLASSIC} or not client_id.startswith(own_prefix)
    )


async def of_other_types(admin: AIOKafkaAdminClient, group: str, coordinator: int) -> Sequence[OtherMember]:
    """Return members of KIP-848 and share groups, which DescribeGroups does not describe. Ringfence's may be among them."""
    asked: set[int] = set()
    for key, version in _DESCRIPTIONS:
        with contextlib.suppress(IncompatibleBrokerVersion):
            members = None if key in asked else await _ask(admin, coordinator, key, version, group)
            asked.add(key)
            if members is not None:
                return members
    return ()


def _is_ours(metadata: bytes, client_id: str, is_ours: IsOurs, own_prefix: str) -> bool:
    if not metadata:
        return client_id.startswith(own_prefix)
    try:
        user_data = ConsumerProtocol.METADATA.decode(metadata).user_data
    except (ValueError, TypeError, IndexError):
        return False
    return is_ours(user_data or b"")


async def _ask(
    admin: AIOKafkaAdminClient, coordinator: int, key: int, version: int, group: str
) -> Sequence[OtherMember] | None:
    body = flexible_requests.array([flexible_requests.text(group)]) + b"\0" + NO_TAGS
    share = key == _DESCRIBE_SHARE_GROUP

    def read(reader: Reader) -> tuple[int, list[OtherMember]]:
        return _group(reader, share=share, typed=not share and version >= _WITH_MEMBER_TYPE)

    code, members = await internals.client_of(admin).send(coordinator, Question(key, version, body, read))
    if code in _NO_SUCH_GROUP:
        return None
    if code:
        error: type[KafkaError] = for_code(code)
        raise error(f"the members of {group}")
    return list(members)


def _group(reader: Reader, *, share: bool, typed: bool) -> tuple[int, list[OtherMember]]:
    reader.unpack(INT32)  # throttle time, ms
    members: list[OtherMember] = []
    code = 0
    for _ in reader.array():
        (code,) = reader.unpack(INT16)
        for _ in range(3):  # message, group, state
            reader.text()
        for _ in range(2):  # epochs
            reader.unpack(INT32)
        reader.text()  # assignor
        members += [_member(reader, share=share, typed=typed) for _ in reader.array()]
        reader.unpack(INT32)  # operations
        reader.skip_tags()
    return code, members


def _member(reader: Reader, *, share: bool, typed: bool) -> OtherMember:
    for _ in range(2 if share else 3):  # ID, instance, rack; share groups have no instances
        reader.text()
    reader.unpack(INT32)  # epoch
    client_id, host = reader.text(), reader.text()
    for _ in reader.array():  # topics
        reader.text()
    if not share:
        reader.text()  # regular expression
    for _ in range(1 if share else 2):  # present and target assignment
        _skip_assignment(reader)
    protocol: str | None = SHARE if share else None
    if typed:
        protocol = CLASSIC if reader.take(1) == _IS_CLASSIC else CONSUMER
    reader.skip_tags()
    return OtherMember(client_id, host, protocol)


def _skip_assignment(reader: Reader) -> None:
    for _ in reader.array():
        reader.take(_ID_BYTES)
        reader.text()
        for _ in reader.array():
            reader.unpack(INT32)
        reader.skip_tags()
    reader.skip_tags()

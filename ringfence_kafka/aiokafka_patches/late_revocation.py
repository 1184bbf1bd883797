"""A rebalance takes partitions away when the group shares them out, and not when it is announced.

aiokafka stops fetching, and has its owner give up everything, before it asks to join again. The answer comes when all members have
asked: after the slowest one's next heartbeat, or when the session of a dead one ends. Until then nobody else is given anything.
"""

from typing import Any, Final

from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
)
from aiokafka.protocol.group import JoinGroupRequest

_STILL_A_MEMBER: Final = frozenset(
    item.errno
    for item in (GroupCoordinatorNotAvailableError, GroupLoadInProgressError, NotCoordinatorForGroupError)
)
"""It is asked again, as the same member."""


def revoke_late(consumer: Any) -> None:
    """Have a consumer go on with what it has until it is told that the group shares out, or that it is no member any more.

    It has started, and not joined yet. What comes between that answer and the new assignment is as before: fetching stands still,
    the listener is told what is revoked.
    """
    coordinator = consumer._coordinator
    prepare, send = coordinator._on_join_prepare, coordinator._send_req
    held: list[Any] = []
    """The assignment that is still worked on while the answer is awaited."""

    async def prepared(previous: Any) -> None:
        if previous is None or coordinator.member_id == JoinGroupRequest.UNKNOWN_MEMBER_ID:
            await prepare(previous)  # others may have it already
        else:
            held.append(previous)

    async def sent(request: Any) -> Any:
        response = await send(request)
        if held and isinstance(request, JoinGroupRequest) and response.error_code not in _STILL_A_MEMBER:
            await prepare(held.pop())
        return response

    coordinator._on_join_prepare, coordinator._send_req = prepared, sent

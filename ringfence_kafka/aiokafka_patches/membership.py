"""Membership of consumer groups: corrections of aiokafka's coordinator. Call these functions on the consumer's event loop."""

import asyncio
import logging
from collections.abc import Callable, Collection
from types import FunctionType, MethodType
from typing import Any, Final

from aiokafka.errors import (
    BrokerResponseError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NoError,
    NotCoordinatorForGroupError,
    RebalanceInProgressError,
    for_code,
    kafka_errors,
)
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest
from aiokafka.protocol.types import Int16, Int32, Schema, String

from ringfence_kafka.aiokafka_patches.internals import ended_by
from ringfence_kafka.concurrency.coalesce import RequestCoalescer
from ringfence_kafka.protocol.flexible_requests import older_request

log = logging.getLogger("ringfence.kafka")

OFFSETS_KEPT_MS: Final = 10 * 365 * 24 * 3_600_000
_CANNOT_SAY = (GroupCoordinatorNotAvailableError, GroupLoadInProgressError, NotCoordinatorForGroupError)
_STILL_A_MEMBER: Final = frozenset(item.errno for item in _CANNOT_SAY)
"""Errors after which a consumer asks again, as the same member."""


class GroupMaxSizeReachedError(BrokerResponseError):  # type: ignore[misc]
    """A full group refuses one more member. aiokafka 0.14 does not know error codes above 79."""

    errno = 81

    def __repr__(self) -> str:
        """Return the advice, because aiokafka keeps only this text of an error that it does not handle."""
        return "GroupMaxSizeReached: the group is full: stop a member, or raise group.max.size of the brokers"


class FencedInstanceIdError(BrokerResponseError):  # type: ignore[misc]
    """Another process has joined under this process's instance name."""

    errno = 82
    message = "FENCED_INSTANCE_ID"
    description = "another process has joined the group under this one's instance name"


def install() -> None:
    """Register two errors that aiokafka does not know."""
    for error in (GroupMaxSizeReachedError, FencedInstanceIdError):
        kafka_errors.setdefault(error.errno, error)


def keep_offsets(consumer: Any) -> None:
    """Let the offsets that a consumer commits expire after :data:`OFFSETS_KEPT_MS` instead of the brokers' default.

    Brokers delete the offsets of a group without members after ``offsets.retention.minutes``, by default seven days. The versions of the
    commit request that aiokafka sends (2 and 3) may set another time; KIP-211 removed this from later ones.
    """
    coordinator = consumer._coordinator
    commit = type(coordinator)._do_commit_offsets
    kept = FunctionType(
        commit.__code__,
        {**commit.__globals__, "OffsetCommitRequest": _KeptOffsets},
        argdefs=commit.__defaults__,
        closure=commit.__closure__,
    )
    coordinator._do_commit_offsets = MethodType(kept, coordinator)


class _KeptOffsets(OffsetCommitRequest):  # type: ignore[misc]
    DEFAULT_RETENTION_TIME = OFFSETS_KEPT_MS


async def is_member(consumer: Any, generation: int, *, rebalancing: bool = False) -> bool:
    """Return whether the broker confirms that a consumer is a member of this generation.

    aiokafka's own state is not enough: a process that was suspended still trusts it. With ``rebalancing``, a member that is asked to join
    the next generation still counts as a member of this one: it keeps its partitions until it joins.

    Raises:
        KafkaError: the broker cannot answer; only with ``rebalancing``, otherwise the result is False.
    """
    coordinator = consumer._coordinator
    if coordinator.generation != generation:
        return False
    request = HeartbeatRequest(coordinator.group_id, generation, coordinator.member_id)
    response = await coordinator._send_req(request)
    error = for_code(response.error_code)
    if rebalancing and error in _CANNOT_SAY:
        coordinator.coordinator_dead()
        raise error
    well = error is NoError or (rebalancing and error is RebalanceInProgressError)
    return well and bool(coordinator.generation == generation)


class Membership:
    """Coalesced calls of :func:`is_member` with ``rebalancing``."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._asked: RequestCoalescer[int, bool] = RequestCoalescer(self._ask)

    async def confirm(self, generation: int) -> bool:
        """Return whether the consumer is a member of this generation, by a query that starts after the call.

        Raises:
            KafkaError: the broker cannot answer.
        """
        return await self._asked.answer(generation)

    async def _ask(self, generations: Collection[int]) -> dict[int, bool | Exception]:
        return {
            generation: await is_member(self._consumer, generation, rebalancing=True)
            for generation in generations
        }


def generation(consumer: Any) -> int:
    """Return the group generation in the consumer's own state."""
    return int(consumer._coordinator.generation)


def member_id(consumer: Any) -> str:
    """Return the member ID of a consumer; empty = it is not a member."""
    coordinator = consumer._coordinator
    return str(getattr(coordinator, "member_id", "") or "")


def keep_member(consumer: Any) -> None:
    """Let aiokafka rejoin the group after an error ended one of its tasks.

    aiokafka restarts neither task: ``getmany`` raises the error at each call, and the group removes the member.
    """
    coordinator = consumer._coordinator
    heartbeat: asyncio.Task[None] | None = coordinator._heartbeat_task
    if (error := ended_by(heartbeat)) is not None and not coordinator._rejoin_needed_fut.done():
        log.error("heartbeats of group %s ended, joining again: %r", coordinator.group_id, error)
        coordinator.request_rejoin()
    task: asyncio.Task[None] = coordinator._coordination_task
    if (error := ended_by(task)) is not None:
        log.error("membership of group %s ended, joining again: %r", coordinator.group_id, error)
        coordinator._coordination_task = asyncio.create_task(coordinator._coordination_routine())
        coordinator.request_rejoin()


def keep_asking(consumer: Any) -> None:
    """Do what aiokafka's ``getmany`` does besides fetching, for a consumer that uses ``take_fetched``.

    A consumer that is not polled for ``max_poll_interval_ms`` leaves its group, and does not return.

    Raises:
        KafkaError: the error of the group.
    """
    with consumer._subscription.fetch_context():
        pass
    take_error(consumer)


def take_error(consumer: Any) -> None:
    """Raise and clear the group's error of a consumer, which waits with everything until then.

    Raises:
        KafkaError: the error of the group.
    """
    consumer._coordinator.check_errors()


def join_again(consumer: Any) -> None:
    """Let the group assign its partitions again, if this member leads it."""
    consumer._coordinator.request_rejoin()


def revoke_late(consumer: Any) -> None:
    """Let a consumer continue until the next assignment, or until it is no longer a member.

    Call it on a consumer that has started and not joined yet. aiokafka stops fetching and revokes all partitions before it asks to join
    again. The response comes when all members have asked, or the session of a dead one ends; until then no other member gets a partition.
    From the response on aiokafka works as before: it pauses, and calls the listener.
    """
    coordinator = consumer._coordinator
    prepare, send = coordinator._on_join_prepare, coordinator._send_req
    held: list[Any] = []
    """Assignment that stays in use until the response."""

    async def prepared(previous: Any) -> None:
        if previous is None or coordinator.member_id == JoinGroupRequest.UNKNOWN_MEMBER_ID:
            await prepare(previous)  # other members may already have these partitions
        else:
            held.append(previous)

    async def sent(request: Any) -> Any:
        response = await send(request)
        if held and isinstance(request, JoinGroupRequest) and response.error_code not in _STILL_A_MEMBER:
            await prepare(held.pop())
        return response

    coordinator._on_join_prepare, coordinator._send_req = prepared, sent


_TEXT: Final = String("utf-8")
NamedHeartbeat: Final = older_request(
    12,
    3,
    Schema(("group", _TEXT), ("generation_id", Int32), ("member_id", _TEXT), ("group_instance_id", _TEXT)),
    Schema(("throttle_time_ms", Int32), ("error_code", Int16)),
)
"""Heartbeat of a static member."""


def name_heartbeats(consumer: Any, instance: str, fenced: Callable[[], None]) -> None:
    """Add the instance name to the heartbeats of a consumer that has not joined yet.

    ``fenced`` is called, possibly several times, when another process has joined under that name.
    """
    coordinator = consumer._coordinator
    send = coordinator._send_req

    async def sent(request: Any) -> Any:
        if isinstance(request, HeartbeatRequest):
            request = NamedHeartbeat(
                coordinator.group_id, coordinator.generation, coordinator.member_id, instance
            )
        response = await send(request)
        if getattr(response, "error_code", 0) == FencedInstanceIdError.errno:
            fenced()
        return response

    coordinator._send_req = sent

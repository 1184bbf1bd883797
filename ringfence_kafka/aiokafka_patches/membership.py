"""Membership of consumer groups: aiokafka's coordinator, kept, asked and corrected. Call it on the consumer's own loop."""

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
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest
from aiokafka.protocol.types import Int16, Int32, Schema, String

from ringfence_kafka.aiokafka_patches.internals import ended_by
from ringfence_kafka.concurrency.coalesce import RequestCoalescer

log = logging.getLogger("ringfence.kafka")

OFFSETS_KEPT_MS: Final = 10 * 365 * 24 * 3_600_000
_CANNOT_SAY = (GroupCoordinatorNotAvailableError, GroupLoadInProgressError, NotCoordinatorForGroupError)
_STILL_A_MEMBER: Final = frozenset(item.errno for item in _CANNOT_SAY)
"""After these a consumer asks again, as the same member."""


class GroupMaxSizeReachedError(BrokerResponseError):  # type: ignore[misc]
    """Refusal of one more member of a full group; aiokafka 0.14 knows no error code above 79."""

    errno = 81

    def __repr__(self) -> str:
        """Return the advice: aiokafka keeps nothing else of an error that it does not handle."""
        return "GroupMaxSizeReached: the group is full: stop a member, or raise group.max.size of the brokers"


class FencedInstanceIdError(BrokerResponseError):  # type: ignore[misc]
    """Another process has joined under this one's instance name."""

    errno = 82
    message = "FENCED_INSTANCE_ID"
    description = "another process has joined the group under this one's instance name"


def install() -> None:
    """Teach aiokafka two errors, which it does not know."""
    for error in (GroupMaxSizeReachedError, FencedInstanceIdError):
        kafka_errors.setdefault(error.errno, error)


def keep_offsets(consumer: Any) -> None:
    """Have the offsets that a consumer commits expire after :data:`OFFSETS_KEPT_MS` and not with the brokers' default.

    Brokers forget the offsets of a group without members after ``offsets.retention.minutes``, seven days by default. A request to commit may say
    otherwise in the versions that aiokafka sends (2 and 3; KIP-211 took it out of later ones).
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
    """Whether a consumer is a member of this generation of its group: asked of the broker, now.

    aiokafka's own idea of it is not enough: a process that was stopped and woke believes it. With ``rebalancing``,
    who is asked to join the next generation is still one of this: it holds what it has until it joins.

    Raises:
        KafkaError: the broker cannot say; where ``rebalancing`` is not set, that is a no.
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
    """Asks :func:`is_member`, for many at once by one question: also who is asked to join the next generation is a member."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._asked: RequestCoalescer[int, bool] = RequestCoalescer(self._ask)

    async def confirm(self, generation: int) -> bool:
        """Whether the consumer is a member of this generation: asked of the broker after the call.

        Raises:
            KafkaError: the broker cannot say.
        """
        return await self._asked.ask(generation)

    async def _ask(self, generations: Collection[int]) -> dict[int, bool | Exception]:
        return {
            generation: await is_member(self._consumer, generation, rebalancing=True)
            for generation in generations
        }


def generation(consumer: Any) -> int:
    """Return the group generation that a consumer believes to be in."""
    return int(consumer._coordinator.generation)


def member_id(consumer: Any) -> str:
    """Return the ID that the group gave a consumer; empty = it is not a member."""
    coordinator = consumer._coordinator
    return str(getattr(coordinator, "member_id", "") or "")


def keep_member(consumer: Any) -> None:
    """Have aiokafka join the group again after an error ended one of its tasks.

    It starts neither again: its ``getmany`` raises the error on each call, and the group takes the member for dead.
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
    """Do what aiokafka's ``getmany`` does beside fetching, for a consumer that takes records by ``take_fetched``.

    A consumer that nobody asks for ``max_poll_interval_ms`` leaves its group, and does not come back.

    Raises:
        KafkaError: that error.
    """
    with consumer._subscription.fetch_context():
        pass
    take_error(consumer)


def take_error(consumer: Any) -> None:
    """Take the group's error from a consumer, which waits with everything until then.

    Raises:
        KafkaError: that error.
    """
    consumer._coordinator.check_errors()


def join_again(consumer: Any) -> None:
    """Have the group assign its partitions again, if this member leads it."""
    consumer._coordinator.request_rejoin()


def revoke_late(consumer: Any) -> None:
    """Have a consumer go on until the group assigns again, or it is not a member any more.

    It has started, and not joined yet. aiokafka stops fetching, and has its owner give up everything, before it asks to join again. The answer
    comes when all members have asked, or the session of a dead one ends. Until then nobody else gets anything. From the answer on aiokafka works
    as before: it pauses, and calls the listener.
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


class _HeartbeatAnswer(Response):  # type: ignore[misc]
    API_KEY = 12
    API_VERSION = 3
    SCHEMA = Schema(("throttle_time_ms", Int32), ("error_code", Int16))


class _Heartbeat(RequestStruct):  # type: ignore[misc]
    API_KEY = 12
    API_VERSION = 3
    RESPONSE_TYPE = _HeartbeatAnswer
    SCHEMA = Schema(
        ("group", String("utf-8")),
        ("generation_id", Int32),
        ("member_id", String("utf-8")),
        ("group_instance_id", String("utf-8")),
    )


class NamedHeartbeat(Request[_Heartbeat]):  # type: ignore[misc]
    """A heartbeat of a static member."""

    API_KEY = 12

    def __init__(self, *fields: Any) -> None:
        """``fields``: group, generation, member ID, instance name."""
        self._fields = fields

    def build(self, request_struct_class: type[_Heartbeat]) -> _Heartbeat:
        """As it goes over the wire."""
        return request_struct_class(*self._fields)


def name_heartbeats(consumer: Any, instance: str, fenced: Callable[[], None]) -> None:
    """Have the heartbeats of a consumer that has not joined yet carry its instance name.

    ``fenced`` is called, any number of times, when another process has joined under that name.
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

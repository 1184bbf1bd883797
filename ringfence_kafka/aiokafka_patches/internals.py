"""What of aiokafka's consumer is not public and yet needed, in one place. Call it on the consumer's own loop."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final

import aiokafka.client
from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.fetcher import PartitionRecords
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
from aiokafka.protocol.group import HeartbeatRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.record.control_record import ABORT_MARKER, ControlRecord

from ringfence_kafka.aiokafka_patches import batch_parts, rebootstrap, throttling
from ringfence_kafka.concurrency.coalesce import RequestCoalescer

log = logging.getLogger("ringfence.kafka")


def _contains_abort_marker(_: PartitionRecords, batch: Any) -> bool:
    """Whether a control batch ends an aborted transaction; not one that the broker's cleaner has emptied.

    Of a producer that has written nothing since, the cleaner keeps the last batch, without its records. With three requests a transaction that is
    always a marker. aiokafka raises then: nothing behind it in the partition could be read for as long as the broker knows the producer, a day.
    Java's client reads on, as here.
    """
    control = next(batch, None)
    return control is not None and ControlRecord.parse(control.key) == ABORT_MARKER


PartitionRecords._contains_abort_marker = _contains_abort_marker
batch_parts.install()
rebootstrap.install()
throttling.install()


class GroupMaxSizeReachedError(BrokerResponseError):  # type: ignore[misc]
    """Refusal of one more member of a full group; aiokafka 0.14 knows no error code above 79."""

    errno = 81

    def __repr__(self) -> str:
        """Return the advice: aiokafka keeps nothing else of an error that it does not handle."""
        return "GroupMaxSizeReached: the group is full: stop a member, or raise group.max.size of the brokers"


kafka_errors.setdefault(GroupMaxSizeReachedError.errno, GroupMaxSizeReachedError)

_NO_CREATION = partial(MetadataRequest, allow_auto_topic_creation=False)

OFFSETS_KEPT_MS: Final = 10 * 365 * 24 * 3_600_000
_CANNOT_SAY = (GroupCoordinatorNotAvailableError, GroupLoadInProgressError, NotCoordinatorForGroupError)


def create_no_topics() -> None:
    """No aiokafka client of this process makes a topic by asking for it, on a cluster that would (Kafka's default).

    What such a cluster makes of a topic that was deleted has other settings, and a partition count that moves homes. For workers: of Faust's clients
    :func:`never_create` knows nothing.
    """
    aiokafka.client.MetadataRequest = _NO_CREATION


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


def pass_on(consumer: Any, options: Mapping[str, Any]) -> None:
    """Set options of a consumer that somebody else has made, before it connects."""
    client = consumer._client
    if (timeout_ms := options.get("request_timeout_ms")) is not None:
        consumer._request_timeout_ms = client._request_timeout_ms = timeout_ms
    if (idle_ms := options.get("connections_max_idle_ms")) is not None:
        client._connections_max_idle_ms = idle_ms
    if (backoff_ms := options.get("retry_backoff_ms")) is not None:
        consumer._retry_backoff_ms, client._retry_backoff = backoff_ms, backoff_ms / 1000


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


def client_of(owner: Any) -> Any:
    """Return the client of a consumer, producer or admin client."""
    return owner.client if hasattr(owner, "client") else owner._client


async def await_metadata(client: Any) -> None:
    """Wait until a client knows the cluster."""
    await client._maybe_wait_metadata()


async def ask(admin: Any, request: Any, node: int | None = None) -> Any:
    """Return the answer of one broker, by default any, to an admin client's request."""
    return await admin._send_request(request, node)


def generation(consumer: Any) -> int:
    """The group generation that a consumer believes to be in."""
    return int(consumer._coordinator.generation)


def member_id(consumer: Any) -> str:
    """Return the ID that the group gave a consumer; empty = it is no member."""
    coordinator = consumer._coordinator
    return str(getattr(coordinator, "member_id", "") or "")


def subscribe(
    consumer: Any,
    topic: str,
    revoked: Callable[[list[TopicPartition]], Awaitable[None]],
    given: Callable[[list[TopicPartition]], None],
) -> None:
    """``revoked`` is waited for before the consumer joins again; ``given`` is called before anything is fetched."""
    consumer.subscribe([topic], listener=_Listener(revoked, given))


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, revoked: Callable[..., Awaitable[None]], given: Callable[..., None]) -> None:
        self._revoked = revoked
        self._given = given

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._revoked(list(revoked))

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._given(list(assigned))


def position(consumer: Any, tp: TopicPartition) -> int | None:
    """Up to where a partition was read, markers of transactions included; None = it is not known now."""
    subscription = consumer._subscription.subscription
    if subscription is None or subscription.assignment is None or tp not in subscription.assignment.tps:
        return None
    state = subscription.assignment.state_value(tp)
    return int(state.position) if state.has_valid_position else None


def fetched(consumer: Any) -> dict[TopicPartition, int]:
    """Bytes, as they came, of what was fetched of each partition and is not taken yet.

    What a paused one has is dropped when it is its turn.
    """
    return lying(consumer._fetcher)


def lying(fetcher: Any) -> dict[TopicPartition, int]:
    """The same of a consumer's fetcher."""
    return {
        tp: 0
        if (found := getattr(record, "_partition_records", None)) is None
        else getattr(found, "size_in_bytes", found._records.size_in_bytes)()
        for tp, record in fetcher._records.items()
    }


def drop_fetched(consumer: Any, tps: Collection[TopicPartition]) -> None:
    """What was fetched of these and is not taken; it comes again when it is asked for.

    aiokafka does the same with what a paused partition has, but leaves a cycle of objects behind, and in it all the bytes, until Python
    looks for such.
    """
    fetcher = consumer._fetcher
    for tp in tps:
        result = fetcher._records.pop(tp, None)
        records = getattr(result, "_partition_records", None)
        if records is not None and records._records_iterator is not None:
            records._records_iterator.close()
            records._records_iterator = None
    if tps:
        fetcher._notify(fetcher._wait_consume_future)


def drop_all_fetched(consumer: Any) -> None:
    """The same of all that a consumer that was stopped has fetched, if it ever was started."""
    if consumer._fetcher is not None:
        drop_fetched(consumer, list(consumer._fetcher._records))


def keep_fetching(fetcher: Any) -> None:
    """Start aiokafka's fetching task again if an error ended it; positions are kept, what was not drained comes again.

    Its own ``getmany`` raises the task's error on each call from then on.
    """
    task: asyncio.Task[None] = fetcher._fetch_task
    if not task.done():
        return
    log.error("fetching from the brokers ended and begins anew: %r", _ended_by(task))
    # A failed fetch among them would end the new task at once: it awaits those that it finds.
    fetcher._pending_tasks = {task for task in fetcher._pending_tasks if not task.done()}
    fetcher._fetch_task = asyncio.create_task(fetcher._fetch_requests_routine())


def never_create(owner: Any) -> None:
    """Have a consumer, producer or admin client create no topic by asking for its metadata.

    Clusters create what they are asked for, unless they are told otherwise (``auto.create.topics.enable``): a topic that somebody deletes
    while it is in use would be back before they could create it again themselves. aiokafka has no option for it.
    """
    client = client_of(owner)
    client._metadata_update = MethodType(ASK_METADATA, client)


ASK_METADATA = rebootstrap.rebootstrapping(
    FunctionType(
        AIOKafkaClient._metadata_update.__code__,
        {**vars(aiokafka.client), "MetadataRequest": _NO_CREATION},
    ),
    _NO_CREATION,
)
"""aiokafka's own method with a request that creates no topic, then the bootstrap servers."""

AIOKafkaClient._metadata_update = rebootstrap.rebootstrapping(
    AIOKafkaClient._metadata_update,
    _NO_CREATION,
)


def keep_member(consumer: Any) -> None:
    """Have aiokafka join the group again where an error ended one of the two tasks that keep it a member.

    It starts neither again: its ``getmany`` raises the error on each call, and the group takes the member for dead.
    """
    coordinator = consumer._coordinator
    heartbeat: asyncio.Task[None] | None = coordinator._heartbeat_task
    if (error := _ended_by(heartbeat)) is not None and not coordinator._rejoin_needed_fut.done():
        log.error("heartbeats of group %s ended, joining again: %r", coordinator.group_id, error)
        coordinator.request_rejoin()
    task: asyncio.Task[None] = coordinator._coordination_task
    if (error := _ended_by(task)) is not None:
        log.error("membership of group %s ended, joining again: %r", coordinator.group_id, error)
        coordinator._coordination_task = asyncio.create_task(coordinator._coordination_routine())
        coordinator.request_rejoin()


def keep_asking(consumer: Any) -> None:
    """What aiokafka's own ``getmany`` does beside fetching, for those who take by :func:`take_fetched`.

    A consumer that nobody asks for ``max_poll_interval_ms`` leaves its group, and does not come back. See also
    :func:`take_error`.

    Raises:
        KafkaError: that error.
    """
    with consumer._subscription.fetch_context():
        pass
    take_error(consumer)


def take_error(consumer: Any) -> None:
    """A consumer that met an error of its group waits with everything until somebody has taken it, and then goes on.

    Raises:
        KafkaError: that error.
    """
    consumer._coordinator.check_errors()


def _ended_by(task: asyncio.Task[None] | None) -> BaseException | None:
    if task is None or not task.done() or task.cancelled():
        return None
    error = task.exception()
    return error and (error.__cause__ or error)


async def end(consumer: Any, limit: float) -> None:
    """Stop a consumer, whatever state it and the broker are in, within about so many seconds. Never raises.

    aiokafka's own ``stop`` ends with the CancelledError of its fetches where one of them has just failed, and leaves the
    connections open.
    """
    stopping = asyncio.create_task(consumer.stop())
    try:
        _, late = await asyncio.wait([stopping], timeout=limit)
        if not late and not stopping.cancelled() and stopping.exception() is None:
            return
    finally:
        stopping.cancel()
    with contextlib.suppress(Exception):
        async with asyncio.timeout(limit):
            await consumer._client.close()


async def await_fetched(consumer: Any, limit_s: float) -> None:
    """Until something was fetched, or so many seconds have passed.

    Raises:
        KafkaError: fetching was refused altogether.
    """
    waiter = consumer._fetcher._create_fetch_waiter()
    done, _ = await asyncio.wait([waiter], timeout=limit_s)
    if done:
        waiter.result()
    else:
        waiter.cancel()


async def take_fetched(
    consumer: Any, tp: TopicPartition, records_max: int
) -> tuple[list[Any], dict[int, str]]:
    """What was fetched of one partition, at most so many records. Waits for nothing.

    Beside them, by offset, what is wrong with those that :mod:`ringfence_kafka.aiokafka_patches.lenient_records` read otherwise than they are.

    Raises:
        KafkaError: what was fetched of this partition is an error, or cannot be read.
    """
    fetcher = consumer._fetcher
    subscriptions = fetcher._subscriptions
    # While partitions are given out aiokafka would wait, and positions move meanwhile.
    if subscriptions.reassignment_in_progress or tp not in fetcher._records:
        return [], {}
    parsed = getattr(fetcher._records[tp], "_partition_records", None)
    fetched = await fetcher.fetched_records({tp}, timeout=0, max_records=records_max)
    return fetched.get(tp, []), dict(getattr(parsed, "malformed", {}))

"""Private parts of aiokafka's clients and consumers. Call these functions on the event loop of their client."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import aiokafka.client
from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.metadata import MetadataRequest

from ringfence_kafka import aiokafka_patches
from ringfence_kafka.aiokafka_patches import fetch_buffer, rebootstrap
from ringfence_kafka.errors import require

log = logging.getLogger("ringfence.kafka")

_NO_CREATION = partial(MetadataRequest, allow_auto_topic_creation=False)
ASK_METADATA = rebootstrap.rebootstrapping(
    FunctionType(
        AIOKafkaClient._metadata_update.__code__,
        {**vars(aiokafka.client), "MetadataRequest": _NO_CREATION},
    ),
    _NO_CREATION,
)
"""aiokafka's own method with a request that creates no topic, extended by the bootstrap servers."""


def install() -> None:
    """Let each client return to its bootstrap servers if no known broker answers."""
    AIOKafkaClient._metadata_update = rebootstrap.rebootstrapping(
        AIOKafkaClient._metadata_update, _NO_CREATION
    )


def create_no_topics() -> None:
    """Keep aiokafka's clients from creating topics with metadata requests (Kafka's default).

    Such a cluster would recreate a deleted topic with other settings, and with a partition count that moves homes. Workers call this,
    because :func:`never_create` does not reach Faust's clients.
    """
    aiokafka.client.MetadataRequest = _NO_CREATION


def never_create(owner: Any) -> None:
    """Keep a consumer, producer or admin client from creating topics with metadata requests.

    By default clusters create requested topics (``auto.create.topics.enable``). A topic that is deleted while in use would return before
    an operator creates it again. aiokafka has no option for this.
    """
    require(aiokafka_patches.installed(), "aiokafka_patches.install() was not called")
    client = client_of(owner)
    client._metadata_update = MethodType(ASK_METADATA, client)


def client_of(owner: Any) -> Any:
    """Return the client of a consumer, producer or admin client."""
    return owner.client if hasattr(owner, "client") else owner._client


async def await_metadata(client: Any) -> None:
    """Wait until a client knows the cluster."""
    await client._maybe_wait_metadata()


async def await_topic(client: Any, topic: str) -> Any:
    """Wait until a client knows the partitions of a topic."""
    return await client._wait_on_metadata(topic)


async def send_request(admin: Any, request: Any, node: int | None = None) -> Any:
    """Send an admin client's request to one broker, by default any, and return the response."""
    return await admin._send_request(request, node)


def pass_on(consumer: Any, options: Mapping[str, Any]) -> None:
    """Set options of a consumer that other code has created, before it connects."""
    client = consumer._client
    if (timeout_ms := options.get("request_timeout_ms")) is not None:
        consumer._request_timeout_ms = client._request_timeout_ms = timeout_ms
    if (idle_ms := options.get("connections_max_idle_ms")) is not None:
        client._connections_max_idle_ms = idle_ms
    if (backoff_ms := options.get("retry_backoff_ms")) is not None:
        consumer._retry_backoff_ms, client._retry_backoff = backoff_ms, backoff_ms / 1000


def read_committed(consumer: Any, fetch_wait_ms: int) -> None:
    """Let a consumer read committed records only, and set its fetch wait in ms. Call it before the consumer starts."""
    consumer._isolation_level = "read_committed"
    consumer._fetch_max_wait_ms = fetch_wait_ms


def subscribe(
    consumer: Any,
    topic: str,
    revoked: Callable[[list[TopicPartition]], Awaitable[None]],
    given: Callable[[list[TopicPartition]], None],
) -> None:
    """Subscribe a consumer. ``revoked`` is awaited before the consumer rejoins; ``given`` is called before anything is fetched."""
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
    """Return the read position of a partition, including markers; None = not known now."""
    subscription = consumer._subscription.subscription
    if subscription is None or subscription.assignment is None or tp not in subscription.assignment.tps:
        return None
    state = subscription.assignment.state_value(tp)
    return int(state.position) if state.has_valid_position else None


def fetched(consumer: Any) -> dict[TopicPartition, int]:
    """Return the received bytes of each partition that are not taken yet.

    aiokafka discards the records of a paused partition when it handles that partition.
    """
    return fetch_buffer.sizes(consumer._fetcher)


def drop_fetched(consumer: Any, tps: Collection[TopicPartition]) -> None:
    """Discard the untaken records of these partitions; the next fetch requests them again.

    aiokafka also discards the records of a paused partition, but leaves a reference cycle with all the bytes until a garbage collection.
    """
    fetcher = consumer._fetcher
    for tp in tps:
        result = fetcher._records.pop(tp, None)
        records = getattr(result, "_partition_records", None)
        if records is not None and records._records_iterator is not None:
            records._records_iterator.close()
            records._records_iterator = None
    if tps:
        fetch_buffer.wake_fetching_task(fetcher)


def drop_all_fetched(consumer: Any) -> None:
    """Discard all fetched records of a stopped consumer, even if it never started."""
    if consumer._fetcher is not None:
        drop_fetched(consumer, list(consumer._fetcher._records))


def keep_fetching(consumer: Any) -> None:
    """Restart aiokafka's fetching task if an error ended it. Positions stay, and untaken records are fetched again.

    aiokafka's ``getmany`` would raise the task's error at each call.
    """
    fetcher = consumer._fetcher
    task: asyncio.Task[None] = fetcher._fetch_task
    if not task.done():
        return
    log.error("the fetch task ended and starts again: %r", ended_by(task))
    # A failed pending fetch would end the new task at once, because the task awaits all of them.
    fetcher._pending_tasks = {task for task in fetcher._pending_tasks if not task.done()}
    fetcher._fetch_task = asyncio.create_task(fetcher._fetch_requests_routine())


def ended_by(task: asyncio.Task[None] | None) -> BaseException | None:
    """Return the error that ended a task; None = no error ended it."""
    if task is None or not task.done() or task.cancelled():
        return None
    error = task.exception()
    return error and (error.__cause__ or error)


async def end(consumer: Any, limit: float) -> None:
    """Stop a consumer in any state of it and the broker, within about ``limit`` seconds. Never raises.

    aiokafka's ``stop`` raises CancelledError if a fetch has just failed, and leaves connections open.
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
    """Wait until something is fetched, at most ``limit_s`` seconds.

    Raises:
        KafkaError: the broker refuses all fetches.
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
    """Take fetched records of one partition, at most ``records_max``, without waiting.

    Also returns, by offset, the problems of records that :mod:`ringfence_kafka.aiokafka_patches.lenient_records` read in a changed form.

    Raises:
        KafkaError: the fetch of this partition failed, or its bytes cannot be read.
    """
    fetcher = consumer._fetcher
    subscriptions = fetcher._subscriptions
    # During a rebalance aiokafka would wait, and positions would change meanwhile.
    if subscriptions.reassignment_in_progress or tp not in fetcher._records:
        return [], {}
    parsed = fetch_buffer.parsed(fetcher, tp)
    fetched = await fetcher.fetched_records({tp}, timeout=0, max_records=records_max)
    return fetched.get(tp, []), dict(getattr(parsed, "malformed", {}))

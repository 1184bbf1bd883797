"""Private parts of aiokafka's clients and consumers. Call these functions on the loop of their client."""

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
"""aiokafka's own method with a request that creates no topic, then the bootstrap servers."""


def install() -> None:
    """Have each client return to its bootstrap servers where no known broker answers."""
    AIOKafkaClient._metadata_update = rebootstrap.rebootstrapping(
        AIOKafkaClient._metadata_update, _NO_CREATION
    )


def create_no_topics() -> None:
    """Keep aiokafka's clients from creating topics by asking for them (Kafka's default).

    Such a cluster would recreate a deleted topic with other settings, and with a partition count that moves homes. For workers, because
    :func:`never_create` does not reach Faust's clients.
    """
    aiokafka.client.MetadataRequest = _NO_CREATION


def never_create(owner: Any) -> None:
    """Have a consumer, producer or admin client create no topic by asking for its metadata.

    Clusters create what they are asked for by default (``auto.create.topics.enable``). A topic that somebody deletes while it is in use
    would be back before they create it again. aiokafka has no option for it.
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


async def ask(admin: Any, request: Any, node: int | None = None) -> Any:
    """Return the answer of one broker, by default any, to an admin client's request."""
    return await admin._send_request(request, node)


def pass_on(consumer: Any, options: Mapping[str, Any]) -> None:
    """Set options of a consumer that somebody else has made, before it connects."""
    client = consumer._client
    if (timeout_ms := options.get("request_timeout_ms")) is not None:
        consumer._request_timeout_ms = client._request_timeout_ms = timeout_ms
    if (idle_ms := options.get("connections_max_idle_ms")) is not None:
        client._connections_max_idle_ms = idle_ms
    if (backoff_ms := options.get("retry_backoff_ms")) is not None:
        consumer._retry_backoff_ms, client._retry_backoff = backoff_ms, backoff_ms / 1000


def read_committed(consumer: Any, fetch_wait_ms: int) -> None:
    """Set what a consumer asks for, before it starts: committed records only, and how long a broker holds a fetch."""
    consumer._isolation_level = "read_committed"
    consumer._fetch_max_wait_ms = fetch_wait_ms


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
    """Return the bytes, as they came, that were fetched of each partition and are not taken yet.

    aiokafka discards the records of a paused partition when that partition is due.
    """
    return fetch_buffer.sizes(consumer._fetcher)


def drop_fetched(consumer: Any, tps: Collection[TopicPartition]) -> None:
    """Discard the fetched records of these partitions that are not taken yet; the next fetch asks for them again.

    aiokafka discards the records of a paused partition too, but leaves an object cycle with all the bytes until Python's garbage collector
    runs.
    """
    fetcher = consumer._fetcher
    for tp in tps:
        result = fetcher._records.pop(tp, None)
        records = getattr(result, "_partition_records", None)
        if records is not None and records._records_iterator is not None:
            records._records_iterator.close()
            records._records_iterator = None
    if tps:
        fetch_buffer.ask_anew(fetcher)


def drop_all_fetched(consumer: Any) -> None:
    """Drop all that a stopped consumer has fetched, if it ever was started."""
    if consumer._fetcher is not None:
        drop_fetched(consumer, list(consumer._fetcher._records))


def keep_fetching(consumer: Any) -> None:
    """Start aiokafka's fetching task again if an error ended it; positions are kept, what was not drained comes again.

    Its own ``getmany`` raises the task's error on each call from then on.
    """
    fetcher = consumer._fetcher
    task: asyncio.Task[None] = fetcher._fetch_task
    if not task.done():
        return
    log.error("the fetch task ended and starts again: %r", ended_by(task))
    # A failed fetch among them would end the new task at once: it awaits those that it finds.
    fetcher._pending_tasks = {task for task in fetcher._pending_tasks if not task.done()}
    fetcher._fetch_task = asyncio.create_task(fetcher._fetch_requests_routine())


def ended_by(task: asyncio.Task[None] | None) -> BaseException | None:
    """Return the error that ended a task; None = none did."""
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
    """Take the fetched records of one partition, at most ``records_max``. Waits for nothing.

    Returns with them, by offset, the problem of each record that :mod:`ringfence_kafka.aiokafka_patches.lenient_records` read in a changed
    form.

    Raises:
        KafkaError: the fetch of this partition brought an error, or its bytes cannot be read.
    """
    fetcher = consumer._fetcher
    subscriptions = fetcher._subscriptions
    # While partitions are given out aiokafka would wait, and positions move meanwhile.
    if subscriptions.reassignment_in_progress or tp not in fetcher._records:
        return [], {}
    parsed = fetch_buffer.parsed(fetcher, tp)
    fetched = await fetcher.fetched_records({tp}, timeout=0, max_records=records_max)
    return fetched.get(tp, []), dict(getattr(parsed, "malformed", {}))

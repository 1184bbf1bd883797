"""Private parts of aiokafka's producers. Call these functions on the event loop of their producer."""

import asyncio
import itertools
from typing import Any

from aiokafka import TopicPartition


def partitions_of(producer: Any, topic: str) -> set[int] | None:
    """Return the partitions of a topic in the producer's metadata; None = the topic is not there."""
    partitions: set[int] | None = producer._metadata.partitions_for_topic(topic)
    return partitions


def leader_of(producer: Any, tp: TopicPartition) -> int | None:
    """Return the leader of a partition in the producer's metadata; None = it has none, or it is not known."""
    leader: int | None = producer._metadata.leader_for_partition(tp)
    return None if leader == -1 else leader


def batch_form(producer: Any) -> tuple[int, int]:
    """Return the size limit of the producer's record batches, in bytes, and the number of their codec."""
    accumulator = producer._message_accumulator
    return accumulator._batch_size, accumulator._compression_type


def identity(producer: Any) -> tuple[int, int]:
    """Return producer ID and epoch of an initialised producer."""
    manager = producer._txn_manager
    return manager.producer_id, manager.producer_epoch


def request_timeout_ms(producer: Any) -> int:
    """Return the request time-out, in ms."""
    return int(producer._request_timeout_ms)


def retry_backoff_s(producer: Any) -> float:
    """Return the delay between two attempts, in seconds."""
    return float(producer._sender._retry_backoff)


def encode(builder: Any) -> bytes:
    """Return the bytes of a record batch, which then accepts no more records."""
    data: bytes = builder._build()
    return data


def number(builder: Any, producer_id: int, epoch: int, sequence: int) -> None:
    """Write producer ID, epoch and first sequence number into a record batch."""
    builder._set_producer_state(producer_id, epoch, sequence)


async def find_coordinator(producer: Any, kind: int, key: str) -> int:
    """Return the coordinator of a transactional ID or a group."""
    return int(await producer._sender._find_coordinator(kind, key))


def known_coordinator(producer: Any, kind: int) -> int | None:
    """Return the last known coordinator; None = not known."""
    node: int | None = producer._sender._coordinators.get(kind)
    return node


def forget_coordinator(producer: Any, kind: int) -> None:
    """Let the coordinator be looked up again."""
    producer._sender._coordinator_dead(kind)


def use_client(producer: Any, client: Any) -> None:
    """Replace the client that aiokafka created, before it connects."""
    producer.client = producer._sender.client = client
    producer._metadata = producer._message_accumulator._cluster = client.cluster


def transaction_end(producer: Any) -> "asyncio.Future[Any] | None":
    """Return the future of the present transaction; None = there is none."""
    waiter: asyncio.Future[Any] | None = producer._txn_manager._transaction_waiter
    return waiter


def pending_offsets(producer: Any) -> list["asyncio.Future[Any]"]:
    """Return the futures of offsets that are not sent yet."""
    return [future for _, _, future in producer._txn_manager._pending_txn_offsets]


def forget_offsets(producer: Any) -> None:
    """Discard offsets that are not sent yet."""
    producer._txn_manager._pending_txn_offsets.clear()


def refuse_sends(producer: Any) -> None:
    """Let the producer accept no more batches."""
    producer._closed = True


async def end_sender(producer: Any, limit_s: float) -> None:
    """End the task that an interrupted ``stop()`` of aiokafka leaves behind, and that would retry forever."""
    task: asyncio.Task[None] | None = producer._sender.sender_task
    if task is None:
        return
    accumulator = producer._message_accumulator
    for batch in (*accumulator._pending_batches, *itertools.chain(*accumulator._batches.values())):
        batch.future.cancel()  # the task waits for batches that it cannot send
    task.remove_done_callback(producer._sender._fail_all)
    task.cancel()
    await asyncio.wait([task], timeout=limit_s)
    if task.done() and not task.cancelled():
        task.exception()

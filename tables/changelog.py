"""Reads a lane's changelog, and any other stretch of a partition that a lane needs again.

Faust's own table recovery counts a transaction's commit marker as a record that is still to come and waits
ten seconds for it, so a lane reads its changelog itself.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from conf.settings import KafkaSettings
from tables.access import client_options

STALL_LIMIT_S: Final = 90.0
"""Longer than any transaction of ours can stay open."""
STOP_LIMIT_S: Final = 5.0
_POLL_MS: Final = 200
_RECORDS_MAX: Final = 20_000
_FETCH_BYTES: Final = 4 * 2**20


class ChangelogStalledError(Exception):
    """The last stable offset stays behind the high watermark: a transaction does not end."""


async def read(
    kafka: KafkaSettings,
    topic: str,
    partition: int,
    start: int,
    high_watermark: int,
    consume: Callable[[Sequence[Any]], Awaitable[None]],
) -> int:
    """Pass all committed records of ``start <= offset < high_watermark`` to ``consume``, in order.

    Of a changelog, read to the *high watermark*: only the lane's own transactional ID ever writes here, and it has been fenced,
    so whatever is open below it is about to end, and nothing else can hold it up. A restore that stopped at the
    last stable offset would miss the records behind an open transaction.

    Returns:
        The position reached, at least ``high_watermark``; markers of transactions are passed over.

    Raises:
        ChangelogStalledError: no progress for 90 s.
    """
    if start >= high_watermark:
        return start
    consumer = AIOKafkaConsumer(
        **client_options(kafka),
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="none",
        max_partition_fetch_bytes=_FETCH_BYTES,
        fetch_max_wait_ms=_POLL_MS,
    )
    tp = TopicPartition(topic, partition)
    try:
        await consumer.start()
        consumer.assign([tp])
        consumer.seek(tp, start)
        position, moved_at = start, time.monotonic()
        while position < high_watermark:
            records = (await consumer.getmany(tp, timeout_ms=_POLL_MS, max_records=_RECORDS_MAX)).get(tp, [])
            if records:
                await consume(records)
            reached = await consumer.position(tp)
            if reached > position:
                position, moved_at = reached, time.monotonic()
            else:
                require_moving(tp, moved_at, position, high_watermark)
        return position
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_LIMIT_S):
                await consumer.stop()


def require_moving(tp: TopicPartition, moved_at: float, position: int, end: int) -> None:
    """For who reads committed data up to an end and has not moved since ``moved_at`` (monotonic, s).

    Raises:
        ChangelogStalledError: that was too long ago.
    """
    if time.monotonic() - moved_at > STALL_LIMIT_S:
        raise ChangelogStalledError(
            f"{tp.topic}/{tp.partition}: stuck at {position} of {end}: a transaction does not end; is the transaction "
            "coordinator of the cluster well?"
        )

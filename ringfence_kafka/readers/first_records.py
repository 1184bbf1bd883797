"""The first record at or behind an offset, of many partitions at once: how old is what waits, and whose is it?"""

import contextlib
import time
from collections.abc import Mapping
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from ringfence_kafka.aiokafka_patches import internals
from ringfence_kafka.auth.client_options import client_options
from ringfence_kafka.config.settings import KafkaSettings

LOOK_LIMIT_S: Final = 5.0
_POLL_MS: Final = 100
_FETCH_BYTES: Final = 64 * 2**10
"""Kafka gives a whole batch in any case."""

Place = tuple[str, int]
"""Topic and partition."""


async def first_records(
    kafka: KafkaSettings, spans: Mapping[Place, tuple[int, int]], *, committed: bool = True
) -> dict[Place, Any]:
    """The first record of each span; None = it has none, as of a span of markers alone. What cannot be told within the limit is absent.

    Args:
        kafka: Where, and how to get in.
        spans: Begin and end of each.
        committed: Whether only committed records count; else the first at all, decided or not.
    """
    wanted = {TopicPartition(*place): span for place, span in spans.items() if span[0] < span[1]}
    if not wanted:
        return {}
    consumer = AIOKafkaConsumer(
        **client_options(kafka),
        isolation_level="read_committed" if committed else "read_uncommitted",
        enable_auto_commit=False,
        auto_offset_reset="earliest",  # retention may have deleted the first
        max_partition_fetch_bytes=_FETCH_BYTES,
        fetch_max_wait_ms=_POLL_MS,
    )
    internals.never_create(consumer)
    found: dict[Place, Any] = {}
    try:
        await consumer.start()
        consumer.assign(list(wanted))
        for tp, (begin, _) in wanted.items():
            consumer.seek(tp, begin)
        deadline = time.monotonic() + LOOK_LIMIT_S
        while wanted and time.monotonic() < deadline:
            for tp, records in (await consumer.getmany(*wanted, timeout_ms=_POLL_MS)).items():
                end = wanted[tp][1]
                records = [record for record in records if record.offset < end]  # noqa: PLW2901
                if records:
                    found[tp.topic, tp.partition] = records[0]
            for tp in [item for item in wanted if (item.topic, item.partition) in found]:
                del wanted[tp]
                consumer.pause(tp)
            for tp in list(wanted):
                if await consumer.position(tp) >= wanted[tp][1]:
                    found[tp.topic, tp.partition] = None
                    del wanted[tp]
    except (KafkaError, OSError, UnicodeDecodeError):
        pass  # a right that is missing, a record that cannot be read: the rest of the answer stands
    finally:
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            await consumer.stop()
    return found

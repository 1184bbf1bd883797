"""Takes what aiokafka has fetched of a partition: as it lies in its bytes, where the core can read it, else as aiokafka makes it.

This knows aiokafka's fetcher as :mod:`ringfence_kafka.records` does. Positions move as in ``Fetcher.fetched_records``.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from aiokafka import TopicPartition, codec
from aiokafka.consumer.fetcher import READ_COMMITTED, FetchResult

from agents import raw
from agents.batch import Record
from agents.raw import RawRecords
from ringfence_kafka.records import TolerantRecords

log: Final = logging.getLogger("ringfence.worker")

_DECODERS: Final[Mapping[int, Callable[[bytes], bytes]]] = {
    1: codec.gzip_decode, 2: codec.snappy_decode, 3: codec.lz4_decode, 4: codec.zstd_decode,
}  # fmt: skip


async def take(fetcher: Any, tp: TopicPartition, records_max: int) -> Sequence[Record]:
    """At most so many records of what was fetched of a partition. Waits for nothing.

    Raises:
        KafkaError: what was fetched is an error, or cannot be read.
    """
    result = fetcher._records[tp]  # noqa: SLF001
    parsed = getattr(result, "_partition_records", None)
    if type(result) is not FetchResult or not isinstance(parsed, TolerantRecords) or not _is_raw(parsed):
        fetched = await fetcher.fetched_records({tp}, timeout=0, max_records=records_max)
        return cast("Sequence[Record]", fetched.get(tp, []))
    taken = _taken(result, tp, parsed, records_max)
    if not result.has_more():
        del fetcher._records[tp]  # noqa: SLF001
        fetcher._notify(fetcher._wait_consume_future)  # noqa: SLF001
    return taken


def _is_raw(parsed: TolerantRecords) -> bool:
    """Whether the core has read it. It is asked once, before anything is taken."""
    if parsed.raw is None:
        committed = parsed._isolation_level == READ_COMMITTED  # noqa: SLF001
        begin, aborted = parsed.next_fetch_offset, list(parsed._aborted_transactions)  # noqa: SLF001
        parsed.raw = raw.parse(parsed.data, begin, aborted, _decompress, committed=committed) or False
        if parsed.raw:
            # Nobody will run it to its end, which is where aiokafka breaks this cycle: the bytes would stay until a collection.
            parsed._records_iterator = None  # noqa: SLF001
    return parsed.raw is not False


def _taken(result: Any, tp: TopicPartition, parsed: TolerantRecords, records_max: int) -> Sequence[Record]:
    if not result.check_assignment(tp):
        return []
    records, end = cast("tuple[RawRecords, int]", parsed.raw)
    if len(records) < records_max:
        parsed.next_fetch_offset = end
        result._update_position()  # noqa: SLF001
        result._partition_records = None  # noqa: SLF001
        return records
    taken = records[:records_max]
    parsed.raw = records[records_max:], end
    parsed.next_fetch_offset = taken[-1].offset + 1
    result._update_position()  # noqa: SLF001
    return taken


def _decompress(number: int, data: bytes) -> bytes | None:
    """None = aiokafka's own reader is to say what is wrong with it."""
    try:
        return bytes(_DECODERS[number](data))
    except Exception as error:  # noqa: BLE001 - each library has its own
        log.debug("a record batch cannot be decompressed: %r", error)
        return None

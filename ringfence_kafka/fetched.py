"""What aiokafka has fetched of a partition, for who reads its bytes otherwise. Knows aiokafka's fetcher as :mod:`ringfence_kafka.records` does."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiokafka import TopicPartition, codec
from aiokafka.consumer.fetcher import FetchResult

from ringfence_kafka.records import TolerantRecords

log: Final = logging.getLogger("ringfence.worker")

_DECODERS: Final[Mapping[int, Callable[[bytes], bytes]]] = {
    1: codec.gzip_decode, 2: codec.snappy_decode, 3: codec.lz4_decode, 4: codec.zstd_decode,
}  # fmt: skip


def readable(fetcher: Any, tp: TopicPartition) -> tuple[Any, TolerantRecords] | None:
    """Aiokafka's result and its records, which may be read otherwise; None = nothing is there, or it is for aiokafka to read."""
    result = fetcher._records.get(tp)  # noqa: SLF001
    parsed = getattr(result, "_partition_records", None)
    if type(result) is not FetchResult or not isinstance(parsed, TolerantRecords) or parsed.raw is False:
        return None
    if not result.check_assignment(tp):
        drop(fetcher, tp)  # what aiokafka leaves of it cannot be read
        return None
    return result, parsed


def drop(fetcher: Any, tp: TopicPartition) -> None:
    """Nothing more is there: ask for more."""
    result = fetcher._records.pop(tp)  # noqa: SLF001
    result._partition_records = None  # noqa: SLF001
    fetcher._notify(fetcher._wait_consume_future)  # noqa: SLF001


def decompress(number: int, data: bytes) -> bytes | None:
    """A batch's records, by Kafka's number of their compression; None = aiokafka's own reader is to say what is wrong with it."""
    try:
        return bytes(_DECODERS[number](data))
    except Exception as error:  # noqa: BLE001 - each library has its own
        log.debug("a record batch cannot be decompressed: %r", error)
        return None

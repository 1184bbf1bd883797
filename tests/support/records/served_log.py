"""A log without a broker: only the consumer that would fetch its records is replaced."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from native.records import RawRecords
from ringfence_kafka.readers.log_reader import LogReader
from tests.support.records.stored_batches import Stored, raw_records


def serve(monkeypatch: pytest.MonkeyPatch, records: Callable[[], Iterable[Any]]) -> None:
    """Have LogReader.read_range pass on the present records; with ``take``, two of three parts as the core reads them."""

    async def read_range(*arguments: Any) -> int:
        *_, start, high_watermark, consume, take = arguments
        found = [record for record in records() if start <= record.offset < high_watermark]
        third = len(found) // 3
        for number, part in enumerate((found[:third], found[third : 2 * third], found[2 * third :])):
            if part:
                await consume(part if take is None or number == 1 else raw(part))
        return int(high_watermark)

    monkeypatch.setattr(LogReader, "read_range", read_range)


def raw(records: Sequence[Any]) -> Sequence[Any]:
    found = raw_records(Stored(record.offset, key=record.key, value=record.value) for record in records)
    return records if found is None else RawRecords(found.core)

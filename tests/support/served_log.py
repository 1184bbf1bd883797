"""A log without a broker: only the consumer that would fetch its records is replaced."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ringfence_kafka import log_reader


def serve(monkeypatch: pytest.MonkeyPatch, records: Callable[[], Iterable[Any]]) -> None:
    """Have :func:`ringfence_kafka.log_reader.read` pass on those that there are when it is called."""

    async def read(*arguments: Any) -> int:
        *_, start, high_watermark, consume = arguments
        await consume([each for each in records() if start <= each.offset < high_watermark])
        return int(high_watermark)

    monkeypatch.setattr(log_reader, "read", read)

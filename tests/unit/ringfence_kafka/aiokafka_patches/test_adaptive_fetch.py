import random
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import RequestTimedOutError
from aiokafka.protocol.fetch import FetchRequest

from ringfence_kafka.aiokafka_patches.adaptive_fetch import LEAST_BYTES, AdaptiveFetch, FetchSize

MOST = 2**24
PARTITION_MOST = MOST // 8
LIMIT_S = 10.0
SEED = 5


def test_follows_the_link() -> None:
    """The size follows the link: a fetch takes between a quarter and half of the limit, at any width."""
    rng = random.Random(SEED)
    for _ in range(200):
        width = 10 ** rng.uniform(4.5, 8)
        portion = FetchSize(MOST, LIMIT_S)
        for _ in range(20):
            seconds = portion.bytes / width
            if seconds > LIMIT_S:
                portion.failed()
            else:
                portion.took(portion.bytes, seconds)
        assert portion.bytes in {MOST, LEAST_BYTES} or 0.25 <= portion.bytes / width / LIMIT_S <= 0.5
        assert portion.bytes / width <= 0.5 * LIMIT_S or portion.bytes == LEAST_BYTES
        for _ in range(20):
            portion.took(portion.bytes, 0.01)
        assert portion.bytes == MOST


def test_little_says_nothing() -> None:
    """A small fetch that is quick does not raise the size; otherwise the next large one would fail."""
    portion = FetchSize(MOST, LIMIT_S)
    portion.failed()
    for _ in range(50):
        portion.took(portion.bytes // 2 - 1, 0.01)
    assert portion.bytes == MOST // 4
    portion.took(portion.bytes // 2, 0.01)
    assert portion.bytes == MOST // 2


def _consumer(answer: Any) -> Any:
    async def send(node: object, request: object, **options: object) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    sizes = {"_fetch_max_bytes": MOST, "_max_partition_fetch_bytes": PARTITION_MOST}
    client = SimpleNamespace(send=send, _request_timeout_ms=10_000)
    return SimpleNamespace(_client=client, _fetcher=SimpleNamespace(**sizes), **sizes)


async def test_fetches_that_come_too_late() -> None:
    """The next asks for less, of all and of one partition; other requests say nothing of it."""
    consumer = _consumer(RequestTimedOutError())
    fetches = AdaptiveFetch(consumer)
    for request, asked in ((object(), MOST), (FetchRequest(100, 1, MOST, 0, [], ""), MOST // 4)):
        with pytest.raises(RequestTimedOutError):
            await consumer._client.send(1, request)
        assert consumer._fetcher._fetch_max_bytes == asked
        assert consumer._fetcher._max_partition_fetch_bytes == min(PARTITION_MOST, asked // 8)
    fetches.limit(LEAST_BYTES - 1)
    assert consumer._fetcher._max_partition_fetch_bytes == LEAST_BYTES - 1


async def test_fetches_that_are_quick() -> None:
    records: list[Any] = [(0, 0, 9, 9, [], b"x" * (MOST // 8)), (1, 0, 9, 9, [], None)]
    answer = SimpleNamespace(topics=[("t", records)])
    consumer = _consumer(answer)
    portion = AdaptiveFetch(consumer).portion
    portion.failed()
    request = FetchRequest(100, 1, MOST, 0, [], "")
    assert await consumer._client.send(1, request) is answer
    assert consumer._fetcher._fetch_max_bytes == portion.bytes == MOST // 2

import asyncio

from app.worker.faust_app import repeat
from ringfence_kafka.concurrency.coalesce import StoppedError


async def test_question_under_way_at_the_end() -> None:
    """A question under way at the stop is answered by the stop, and does not count as a crash of the worker."""
    asked = 0

    async def look() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise StoppedError

    async with asyncio.timeout(10):
        await repeat(look, 0)

    assert asked == 2

import asyncio
from typing import Any, cast

from app.worker.run import RingfenceApp
from ringfence_kafka.concurrency.coalesce import StoppedError


async def test_question_under_way_at_the_end() -> None:
    """While the broker is away one always is: it is answered by the stop, and that is no crash of the worker."""
    asked = 0

    async def look() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise StoppedError

    async with asyncio.timeout(10):
        await RingfenceApp._watch(cast("Any", None), look, 0)

    assert asked == 2

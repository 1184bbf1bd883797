import asyncio
import resource
from typing import Any, cast

from app.worker.run import RingfenceApp, allow_files
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


def test_files_for_many_lanes() -> None:
    """A shell's 1,024 open files are less than a hundred lanes need, where the system would give more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = before[1] - 1, before[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        allow_files()
        after = resource.getrlimit(resource.RLIMIT_NOFILE)
        allow_files()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    assert after == (hard, hard)

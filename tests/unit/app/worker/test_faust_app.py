import asyncio
from collections import Counter
from unittest.mock import AsyncMock

from app.worker.faust_app import progress_line, repeat
from ringfence_kafka.concurrency.coalesce import StoppedError


def test_line_of_progress() -> None:
    """The worker's line each minute leaves out what is nought and unusual."""
    counts = Counter({"accepted": 1_200, "unchecked": 34, "duplicates": 5, "forwarded": 2})

    assert progress_line(counts, 60.2, 4, [0, 7, 0, 0]) == (
        "in 60 s 1,234 accepted, 5 duplicates, 2 forwarded; lag 7; 4 of 4 lanes open"
    )
    assert progress_line(Counter(accepted=100), 60, 3, [1, None, 0, 0]) == (
        "in 60 s 100 accepted, 0 duplicates; lag 1 and unknown of 1 lanes; 3 of 4 lanes open"
    )


async def test_question_under_way_at_the_end() -> None:
    """A question under way at the stop is answered by the stop, and does not count as a crash of the worker."""
    look = AsyncMock(side_effect=[None, StoppedError])
    async with asyncio.timeout(10):
        await repeat(look, 0)

    assert look.call_count == 2

import asyncio
from unittest.mock import AsyncMock

from app.worker.faust_app import ProgressLine, repeat
from ringfence_kafka.concurrency.coalesce import StoppedError


def test_line_of_progress() -> None:
    """Counts of the worker's line each minute are those since the last one; what is nought and unusual is left out."""
    line = ProgressLine("http://w1:6066")
    counts = {"accepted": 1_200, "unchecked": 34, "duplicates": 5, "forwarded": 2}

    assert line.line(counts, 60.2, (4, 4), [0, 7, 0, 0]) == (
        "in 60 s 1,234 accepted, 5 duplicates, 2 forwarded; lag 7; 4 of 4 lanes open; http://w1:6066/"
    )
    assert line.line(counts | {"accepted": 1_300}, 60, (3, 4), [1, None, 0, 0]) == (
        "in 60 s 100 accepted, 0 duplicates; lag 1 and unknown of 1 lanes; 3 of 4 lanes open; http://w1:6066/"
    )


async def test_question_under_way_at_the_end() -> None:
    """A question under way at the stop is answered by the stop, and does not count as a crash of the worker."""
    look = AsyncMock(side_effect=[None, StoppedError])
    async with asyncio.timeout(10):
        await repeat(look, 0)

    assert look.call_count == 2

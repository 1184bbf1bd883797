import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from ringfence_kafka.concurrency.coalesce import RequestCoalescer, StoppedError


class Oracle:
    """Answers with the number of its request, when it is let."""

    def __init__(self) -> None:
        self.requests: list[set[str]] = []
        self.may = asyncio.Event()

    async def __call__(self, questions: Collection[str]) -> Mapping[str, int | Exception]:
        self.requests.append(set(questions))
        number = len(self.requests)
        await self.may.wait()
        if "down" in questions:
            raise OSError("down")
        return {question: ValueError(question) if question == "bad" else number for question in questions}


async def _turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_one_request_for_many() -> None:
    """Questions of one turn form one request; those that come meanwhile form the next, even repeated ones."""
    oracle = Oracle()
    together = RequestCoalescer(oracle)
    first = [asyncio.create_task(together.answer(name)) for name in ("a", "b", "a")]
    await _turn()
    second = [asyncio.create_task(together.answer(name)) for name in ("a", "c")]
    await _turn()
    oracle.may.set()

    assert await asyncio.gather(*first) == [1, 1, 1]
    assert await asyncio.gather(*second) == [2, 2]
    assert oracle.requests == [{"a", "b"}, {"a", "c"}]


async def test_error_of_one_question() -> None:
    """An answer that is an error is one question's; what the request itself raises is everybody's, and the next works."""
    oracle = Oracle()
    oracle.may.set()
    together = RequestCoalescer(oracle)

    async def ends(*questions: str) -> list[Any]:
        return await asyncio.gather(*map(together.answer, questions), return_exceptions=True)

    assert [type(end) for end in await ends("a", "bad")] == [int, ValueError]
    assert [type(end) for end in await ends("a", "down")] == [OSError, OSError]
    assert await together.answer("a") == 3


async def test_cancelled_while_it_waits() -> None:
    """A cancelled caller does not cancel others, and its question is dropped if the request has not begun."""
    oracle = Oracle()
    together = RequestCoalescer(oracle)
    one, other = (asyncio.create_task(together.answer("a")) for _ in range(2))
    await _turn()
    late = asyncio.create_task(together.answer("late"))
    await _turn()
    one.cancel()
    late.cancel()
    await _turn()
    oracle.may.set()

    assert await other == 1
    assert one.cancelled()
    await _turn()
    assert oracle.requests == [{"a"}]


async def test_stopped() -> None:
    """A stop ends every wait: for the running request, for the next one, for one that has not begun, and for a late question."""
    oracle = Oracle()
    together, idle = RequestCoalescer(oracle), RequestCoalescer(oracle)
    waiting = [asyncio.create_task(together.answer("a"))]
    await _turn()
    waiting += [asyncio.create_task(together.answer("b")), asyncio.create_task(idle.answer("a"))]
    await asyncio.sleep(0)  # it has asked, and nothing has begun
    await idle.stop()
    await _turn()
    await together.stop()

    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(item) for item in ends] == [StoppedError] * 3
    with pytest.raises(StoppedError):
        await together.answer("c")

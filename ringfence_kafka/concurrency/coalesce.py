"""Coalesces questions that arrive together into one request."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from typing import Generic, TypeVar

Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")


class StoppedError(Exception):
    """The coalescer was stopped."""


class RequestCoalescer(Generic[Q, A]):
    """Answers many questions with one request at a time.

    A question that arrives during a request waits for the next one, so that each answer is newer than its question. Requests run in their
    own task, so that the cancellation of one waiting caller does not affect the others.
    """

    def __init__(self, answer: Callable[[Collection[Q]], Awaitable[Mapping[Q, A | Exception]]]) -> None:
        """Create the coalescer. ``answer`` returns an answer or an error for each question; an exception is the answer to all questions."""
        self._answer = answer
        self._waiting: dict[Q, list[asyncio.Future[A]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    async def answer(self, question: Q) -> A:
        """Return an answer that is newer than this call.

        Raises:
            StoppedError: :meth:`stop` was called first.
            Exception: the answer is an error.
        """
        if self._stopped:
            raise StoppedError
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(question, []).append(future)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._serve())
        return await future

    async def stop(self) -> None:
        """Stop, and raise StoppedError in all waiting calls. Never raises."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        # A task that was cancelled before it started has answered no question.
        waiting, self._waiting = self._waiting, {}
        for futures in waiting.values():
            _settle(futures, StoppedError())

    async def _serve(self) -> None:
        while self._waiting:
            asked, self._waiting = self._waiting, {}
            wanted = {
                question: futures
                for question, futures in asked.items()
                if not all(future.done() for future in futures)
            }
            if not wanted:
                continue
            answers: Mapping[Q, A | Exception]
            try:
                answers = await self._answer(wanted.keys())
            except Exception as error:
                answers = dict.fromkeys(wanted, error)
            except BaseException:
                self._waiting, left = {}, [*wanted.values(), *self._waiting.values()]
                for futures in left:
                    _settle(futures, StoppedError())
                raise
            for question, futures in wanted.items():
                _settle(futures, answers[question] if question in answers else KeyError(question))


def _settle(futures: "list[asyncio.Future[A]]", answer: A | Exception) -> None:
    for future in futures:
        if future.done():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
            future.exception()  # marks it as retrieved, for callers that have given up
        else:
            future.set_result(answer)

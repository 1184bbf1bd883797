"""Questions that come together are answered by one request."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from typing import Generic, TypeVar

Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")


class StoppedError(Exception):
    """Nobody answers any more."""


class RequestCoalescer(Generic[Q, A]):
    """Asks for many at once; one request at a time.

    A question that comes while a request is under way waits for the next one: each answer was asked for after its
    question. Requests run in a task of their own, so that who is cancelled while it waits takes nobody along.
    """

    def __init__(self, answer: Callable[[Collection[Q]], Awaitable[Mapping[Q, A | Exception]]]) -> None:
        """``answer`` answers every question that it is given, some perhaps with an error; what it raises is the answer to all of them."""
        self._answer = answer
        self._waiting: dict[Q, list[asyncio.Future[A]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    async def ask(self, question: Q) -> A:
        """Return the answer, asked for now.

        Raises:
            StoppedError: :meth:`stop` came before it.
            Exception: whatever the answer is.
        """
        if self._stopped:
            raise StoppedError
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(question, []).append(future)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._serve())
        return await future

    async def stop(self) -> None:
        """Answer nobody any more. Never raises."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        # One that was cancelled before it began has answered nobody.
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
            future.exception()  # whoever waits sees it; nobody needs to
        else:
            future.set_result(answer)

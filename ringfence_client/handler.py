"""Runs of a handler: in the event loop, or in threads; and those that outlive the claim that they began under."""

import asyncio
import concurrent.futures
import inspect
from collections.abc import Callable
from typing import Any, cast

from ringfence_client.message import Message

Handler = Callable[[Message], Any]


class HandlerRuns:
    """Those of one consumer."""

    def __init__(self, handler: Handler, concurrency: int) -> None:
        """``handler``: a coroutine function, or a plain one, which runs in threads."""
        self._handler = handler
        self._pool = (
            None
            if _is_async(handler)
            else concurrent.futures.ThreadPoolExecutor(concurrency, "ringfence-handler")
        )
        self._left: dict[tuple[str, int, int], asyncio.Future[Any]] = {}

    async def run(self, message: Message) -> None:
        """Call the handler.

        Raises:
            CancelledError: somebody cancelled this task; a thread goes on meanwhile.
            Exception: what the handler raised.
        """
        try:
            if self._pool is None:
                await self._handler(message)
            else:
                await self._in_thread(message, self._pool)
        except asyncio.CancelledError:
            if cast("asyncio.Task[None]", asyncio.current_task()).cancelling():
                raise
            # Not we: the handler waited for something that was cancelled. That must not end who runs it.
            raise RuntimeError("what the handler waited for was cancelled") from None

    def left(self, topic: str, partition: int, offset: int) -> "asyncio.Future[Any] | None":
        """A run of this message that outlives its claim: whoever gets the message here again waits."""
        return self._left.get((topic, partition, offset)) if self._left else None

    def any_left(self, topic: str, partition: int) -> bool:
        """Whether such a run of any message of a partition goes on."""
        return any(key[:2] == (topic, partition) for key in self._left)

    def outlives(self, topic: str, partition: int, offset: int, run: "asyncio.Future[Any]") -> None:
        """This run does; it is forgotten when it ends."""
        key = (topic, partition, offset)
        self._left[key] = run

        def ended(_: "asyncio.Future[Any]") -> None:
            if self._left.get(key) is run:
                del self._left[key]
            if not run.cancelled():
                run.exception()  # nobody else may ask

        run.add_done_callback(ended)

    def stop(self) -> None:
        """Begin nothing more in threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, message: Message, pool: concurrent.futures.Executor) -> None:
        run: concurrent.futures.Future[Any] = pool.submit(self._handler, message)
        thread = asyncio.wrap_future(run)
        try:
            await asyncio.shield(thread)
        except asyncio.CancelledError:
            # A thread cannot be ended, unless it has not begun.
            if not run.cancel():
                self.outlives(message.topic, message.partition, message.offset, thread)
            raise


def _is_async(handler: Handler) -> bool:
    call = getattr(handler, "__call__", handler)  # noqa: B004 - an object with an asynchronous __call__
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)

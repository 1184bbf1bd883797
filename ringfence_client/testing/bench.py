"""The bench for plain tests, which have no event loop."""

import asyncio
import functools
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Concatenate, Final, ParamSpec, Self

from ringfence_client.consumer.partition_task import Lost
from ringfence_client.handlers.effects import Data
from ringfence_client.handlers.handler import Handler
from ringfence_client.handlers.message import Message
from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.testing.async_bench import AsyncHandlerBench
from ringfence_client.testing.messages import ADDRESS, DeadLetterRecord, HandlerRun, SentRecord
from ringfence_kafka.config.settings import Settings

END_LIMIT_S: Final = 10.0


P = ParamSpec("P")


def _blocking(
    method: Callable[Concatenate[AsyncHandlerBench, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate["HandlerBench", P], None]:
    """Return a method that does the same without ``await``."""

    @functools.wraps(method)
    def call(bench: "HandlerBench", /, *args: P.args, **kwargs: P.kwargs) -> None:
        bench._run(method(bench._bench, *args, **kwargs))

    return call


class HandlerBench:
    """Runs a handler in memory, in a separate event loop. Does the same as :class:`AsyncHandlerBench` without ``await``."""

    def __init__(
        self,
        handler: Handler,
        options: ConsumerOptions | None = None,
        *,
        lost: Lost | None = None,
        addresses: Iterable[str] = (),
        topics: Mapping[str, int] | None = None,
        states: Mapping[bytes, Data] | None = None,
        settings: Settings | None = None,
        address: str = ADDRESS,
        consumer_group: str = ADDRESS,
    ) -> None:
        """Take the arguments of :class:`AsyncHandlerBench`."""
        self._bench = AsyncHandlerBench(
            handler,
            options,
            lost=lost,
            addresses=addresses,
            topics=topics,
            states=states,
            settings=settings,
            address=address,
            consumer_group=consumer_group,
        )
        self._loop = asyncio.new_event_loop()
        # A test need not close it: waiting tasks of the loop end with the bench.
        self._ended = weakref.finalize(self, _end, self._loop, self._bench)

    deliver = _blocking(AsyncHandlerBench.deliver)
    pass_time = _blocking(AsyncHandlerBench.pass_time)
    commit = _blocking(AsyncHandlerBench.commit)
    hand_over = _blocking(AsyncHandlerBench.hand_over)
    take_over = _blocking(AsyncHandlerBench.take_over)
    crash = _blocking(AsyncHandlerBench.crash)
    crash_before_commit = _blocking(AsyncHandlerBench.crash_before_commit)
    redrive = _blocking(AsyncHandlerBench.redrive)

    def close(self) -> None:
        """Stop. Committed records stay readable. An unused bench stops by itself."""
        self._ended()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def runs(self) -> list[HandlerRun]:
        """Calls of the handler, in order."""
        return self._bench.runs

    @property
    def sent(self) -> list[SentRecord]:
        """Committed sends of all topics, in order."""
        return self._bench.sent

    @property
    def dead_letters(self) -> list[DeadLetterRecord]:
        """Committed dead letters, in order."""
        return self._bench.dead_letters

    @property
    def unfinished(self) -> list[Message]:
        """Messages that no commit counts as finished, in the order of the log: waiting, unwritten or parked."""
        return self._bench.unfinished

    @property
    def delays(self) -> list[float]:
        """Waits of groups between attempts and after releases, in order, in seconds."""
        return self._bench.delays

    @property
    def time(self) -> float:
        """Time since the start, in seconds."""
        return self._bench.time

    def state(self, group: Data) -> bytes | None:
        """Return the committed state of a group; None = no state."""
        return self._bench.state(group)

    def _run(self, doing: Coroutine[Any, Any, None]) -> None:
        if _is_in_loop():
            doing.close()
            raise RuntimeError(
                "HandlerBench has an event loop of its own, and this test runs in another one: use AsyncHandlerBench, and await its methods"
            )
        if self._loop.is_closed():
            doing.close()
            raise RuntimeError("this bench is closed: make another one")
        self._loop.run_until_complete(doing)


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _end(loop: asyncio.AbstractEventLoop, bench: AsyncHandlerBench) -> None:
    """Stop a bench and its loop. Python may collect it while another loop runs, and a thread cannot run two loops."""

    def end() -> None:
        loop.run_until_complete(bench.close())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    if _is_in_loop():
        thread = threading.Thread(target=end)
        thread.start()
        thread.join(END_LIMIT_S)
    else:
        end()

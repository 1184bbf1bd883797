"""The bench for plain tests, which have no event loop."""

import asyncio
import threading
import weakref
from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from ringfence_client.consumer.lost_groups import Lost
from ringfence_client.handlers.effects import Data
from ringfence_client.handlers.handler import Handler
from ringfence_client.handlers.message import Message
from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.testing.async_bench import AsyncHandlerBench
from ringfence_client.testing.messages import ADDRESS
from ringfence_client.testing.results import DeadLetterRecord, HandlerRun, SentRecord
from ringfence_kafka.config.settings import Settings

END_LIMIT_S: Final = 10.0


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

    # -- what happens ---------------------------------------------------------------------------------------------

    def deliver(self, *messages: Message, wait: bool = True, commit: bool = True) -> None:
        """Publish messages, and run the handler until no work is left, as :meth:`AsyncHandlerBench.deliver` does."""
        self._run(self._bench.deliver(*messages, wait=wait, commit=commit))

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and run the handler when delays are over."""
        self._run(self._bench.pass_time(seconds))

    def commit(self) -> None:
        """Write the acknowledgements of ``deliver(…, commit=False)``."""
        self._run(self._bench.commit())

    def hand_over(self, *, wait: bool = True) -> None:
        """Give the partition to another process, as in a rebalance: everything is written, and ``lost(groups)`` is called."""
        self._run(self._bench.hand_over(wait=wait))

    def take_over(self, *, wait: bool = True) -> None:
        """Let another process take the partition. It repeats unwritten messages; ``lost(groups)`` is called in this one."""
        self._run(self._bench.take_over(wait=wait))

    def crash(self, *, wait: bool = True) -> None:
        """Kill the process. The next one repeats unwritten messages; ``lost(groups)`` is not called."""
        self._run(self._bench.crash(wait=wait))

    def crash_before_commit(self, *messages: Message) -> None:
        """Deliver messages, and kill the process after the handler and before the write. The next process repeats them."""
        self._run(self._bench.crash_before_commit(*messages))

    def redrive(self, letter: DeadLetterRecord | None = None) -> None:
        """Process the message of a dead letter again (None = the last one), as :meth:`AsyncHandlerBench.redrive` does."""
        self._run(self._bench.redrive(letter))

    def close(self) -> None:
        """Stop. Committed records stay readable. An unused bench stops by itself."""
        self._ended()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what can be looked at ------------------------------------------------------------------------------------

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

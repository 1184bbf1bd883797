"""The bench within a running event loop."""

import asyncio
import gc
import inspect
import warnings

import pytest

from ringfence_client import ConsumerOptions, Message
from ringfence_client.testing import AsyncHandlerBench, HandlerBench, message


@pytest.mark.parametrize("cancels", [False, True])
async def test_a_handler_that_does_not_end(cancels: bool) -> None:
    """A handler that takes too long, or cancels its own task, has failed: its message comes again before the next one."""

    async def handle(given: Message) -> None:
        if given.value == b"5" and given.attempt == 1:
            task = asyncio.current_task()
            assert task is not None
            if cancels:
                task.cancel()
            await asyncio.sleep(30)
        await given.send("out", given.value)

    async with AsyncHandlerBench(handle, ConsumerOptions(concurrency=1, handler_timeout=0.05)) as bench:
        await bench.deliver(message("5", group="alice"), message("6", group="alice"))

        assert [run.message.attempt for run in bench.runs] == [1, 2, 1]
        assert [record.value for record in bench.sent] == [b"5", b"6"]


async def test_a_takeover_while_the_handler_runs() -> None:
    """The run is cancelled and sees why; the next process handles the message."""
    running, fenced = asyncio.Event(), list[bool]()

    async def handle(given: Message) -> None:
        await given.send("out", str(given.fence))
        if len(bench.runs) == 1:
            running.set()
            try:
                await asyncio.Event().wait()
            finally:
                fenced.append(given.fenced)

    async with AsyncHandlerBench(handle) as bench:
        delivering = asyncio.create_task(bench.deliver(message("5", group="alice")))
        await asyncio.wait_for(running.wait(), 10)
        await bench.take_over()
        await asyncio.wait_for(delivering, 10)

        assert fenced == [True]
        assert [record.value for record in bench.sent] == [b"2"]
        assert bench.unfinished == []


async def test_the_other_bench_says_what_to_use_here() -> None:
    """The other bench cannot run in an event loop, but can be collected in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bench = HandlerBench(print)
        with pytest.raises(RuntimeError, match="use AsyncHandlerBench"):
            bench.deliver(message())
        del bench
        gc.collect()


def test_both_benches_offer_the_same() -> None:
    def public(bench: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in inspect.getmembers(bench, inspect.isfunction)
            if not name.startswith("_")
        } | {name: [] for name, _ in inspect.getmembers(bench, lambda item: isinstance(item, property))}

    own: dict[str, list[str]] = {"runs": []}  # an attribute of the one, a property of the other
    assert public(AsyncHandlerBench) | own == public(HandlerBench)
    assert inspect.signature(AsyncHandlerBench.__init__) == inspect.signature(HandlerBench.__init__)

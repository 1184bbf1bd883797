"""Objects that may be a handler, and objects that only look like one."""

import asyncio
import concurrent.futures
import functools
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringfence_client.handlers import handler as handler_module
from ringfence_client.handlers.handler import HandlerError, HandlerRuns, check_handler
from ringfence_client.handlers.message import Fence, Message

MESSAGE: Any = object()


def with_more(message: Any, _also: int = 1, *_rest: Any, **_options: Any) -> None: ...


class Desk:
    """Has handlers."""

    def method(self, message: Any) -> None: ...

    async def __call__(self, message: Any) -> None: ...


class GeneratorDesk:
    """Looks as if it had one."""

    def __call__(self, message: Any) -> Iterator[Any]:
        yield message


def generator(message: Any) -> Iterator[Any]:
    yield message


async def async_generator(message: Any) -> AsyncIterator[Any]:
    yield message


def two_arguments(message: Any, offset: int) -> None: ...


def named_only(*, message: Any) -> None: ...


BOUND = functools.partial(two_arguments, offset=1)


@pytest.mark.parametrize("handler", [with_more, Desk().method, Desk(), BOUND, print])
def test_may_be_one(handler: Any) -> None:
    check_handler(handler, "it")


@pytest.mark.parametrize(
    ("handler", "complaint"),
    [
        (generator, "is a generator function"),
        (async_generator, "is a generator function"),
        (functools.partial(generator), "is a generator function"),
        (GeneratorDesk(), "is a generator function"),
        (Desk, "is a class"),
        (Desk.method, "cannot be called with one message"),
        (two_arguments, "cannot be called with one message.*async def handle"),
        (named_only, "cannot be called with one message"),
        (7, "is not a function"),
    ],
)
def test_cannot_be_one(handler: Any, complaint: str) -> None:
    """An object that cannot be a handler raises an error before the first message, which shows the correct form."""
    name = getattr(handler, "__name__", "it")
    with pytest.raises(HandlerError, match=f"(?s){complaint}"):
        check_handler(handler, name)


async def run(handler: Callable[[Any], Any]) -> None:
    runs = HandlerRuns(handler, 1)
    try:
        await runs.call([MESSAGE])
    finally:
        runs.stop()


async def test_what_is_returned_is_awaited() -> None:
    """A returned coroutine, task or future runs to its end, and its error is the handler's."""
    done: list[str] = []

    async def work(name: str) -> None:
        await asyncio.sleep(0)
        if name == "bad":
            raise ValueError(name)
        done.append(name)

    async def around_a_task(_: Any) -> Any:
        return asyncio.ensure_future(work("task"))

    def around_a_pool(_: Any) -> Any:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: done.append("pool"))

    await run(lambda _: work("plain"))
    await run(around_a_task)
    await run(around_a_pool)
    with pytest.raises(ValueError, match="bad"):
        await run(lambda _: work("bad"))

    assert done == ["plain", "task", "pool"]


@pytest.mark.parametrize("handler", [lambda _: generator(MESSAGE), lambda _: async_generator(MESSAGE)])
async def test_returned_generators_are_no_success(handler: Callable[[Any], Any]) -> None:
    """A returned generator is an error, because nothing of it has run."""
    with pytest.raises(HandlerError, match="returned a generator"):
        await run(handler)


# -- what handlers raise --------------------------------------------------------------------------------------------


class Held:
    """The parts of a message that a run uses."""

    held = Fence(1)
    offset = 0


def _empty(_message: Any) -> Any:
    return next(iter([]))


def _empty_elsewhere(_message: Any) -> Any:
    run: concurrent.futures.Future[Any] = concurrent.futures.Future()
    run.set_exception(StopIteration())
    return run


def _closes(_message: Any) -> Any:
    raise GeneratorExit


@pytest.mark.parametrize(
    ("handler", "named"),
    [(_empty, "StopIteration"), (_empty_elsewhere, "StopIteration"), (_closes, "GeneratorExit")],
)
async def test_what_coroutines_take_for_their_own(handler: Callable[[Any], Any], named: str) -> None:
    """A plain handler that raises it has failed: asyncio would wait for ever, or close all coroutines that wait."""
    runs = HandlerRuns(handler, 1)
    try:
        with pytest.raises(RuntimeError, match=named):
            await asyncio.wait_for(runs.call([cast("Message", Held())]), 10)
    finally:
        runs.stop()


async def test_the_run_that_goes_on_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest run, in all and of each partition, is the first that began of those under way, however others ended."""
    now = 100.0
    monkeypatch.setattr(handler_module, "time", SimpleNamespace(monotonic=lambda: now))
    gates: list[asyncio.Event] = []

    async def handle(_message: Any) -> None:
        gates.append(asyncio.Event())
        await gates[-1].wait()

    runs = HandlerRuns(handle, 2)

    def longest() -> tuple[float, dict[int, float]]:
        return runs.longest_s, {number: seconds for number, (_, seconds) in runs.longest().items()}

    assert longest() == (0, {})

    tasks = []
    for partition, now in enumerate((100.0, 130.0, 170.0)):  # noqa: B007 - the clock
        message: Any = SimpleNamespace(partition=partition // 2)
        tasks.append(asyncio.create_task(runs.call([message])))
        await asyncio.sleep(0)
    assert longest() == (70, {0: 70, 1: 0})

    gates[0].set()
    await asyncio.wait(tasks[:1])
    assert longest() == (40, {0: 40, 1: 0})

    tasks[1].cancel()
    tasks[2].cancel()
    await asyncio.wait(tasks[1:])
    assert longest() == (0, {})
    assert runs.times.count == 3


async def test_left_thread_that_returns_a_coroutine() -> None:
    """A run in a thread that outlives its turn ends only after the coroutine that it returned."""
    go_on, ended = threading.Event(), asyncio.Event()

    async def rest() -> None:
        ended.set()

    def handle(_message: Any) -> Any:
        go_on.wait(10)
        return rest()

    runs = HandlerRuns(handle, 1)
    try:
        run = asyncio.create_task(runs.call([cast("Message", Held())]))
        await asyncio.sleep(0)
        run.cancel()
        await asyncio.wait([run])
        left = runs.left(Held.held.log, 0)
        assert left is not None
        go_on.set()
        await asyncio.wait_for(left, 10)

        assert ended.is_set()
    finally:
        go_on.set()
        runs.stop()


FORKING = """
import asyncio, os, types
from ringfence_client.handlers.handler import HandlerRuns

children = []

{kind} handle(message):
    if child := os.fork():
        children.append(child)
    else:
        {child}

async def run():
    runs = HandlerRuns(handle, 1)
    await runs.call([types.SimpleNamespace(partition=0)])
    runs.stop()

asyncio.run(run())
_, status = os.waitpid(children[0], 0)
print("parent", os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("child", ["return", "raise ValueError"])
def test_a_forked_process_never_leaves_the_handler(kind: str, child: str) -> None:
    """It has the same connections, and must not go on as a second consumer."""
    script = FORKING.format(kind=kind, child=child)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout, done.returncode) == ("parent 1\n", 0), done.stderr
    assert done.stderr.startswith("ringfence: a process that the handler forked")

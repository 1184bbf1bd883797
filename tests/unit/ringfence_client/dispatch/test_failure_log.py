"""Log lines about failed attempts and dead letters."""

from typing import Any

import pytest

from ringfence_client.dispatch.failure_log import LINES_MAX, TEXT_MAX, FailureLog, trace_of
from ringfence_client.handlers.handler import HandlerRuns

MESSAGE: Any = object()


async def test_many_failures_are_summarised(caplog: pytest.LogCaptureFixture) -> None:
    """The first ones have a line each, the rest of ten seconds is one line, and then lines come again."""
    failures = FailureLog()
    for number in range(500):
        failures.attempt_failed(f"attempt {number}")
    failures.dead_letter("letter", None)
    failures._summarise()
    failures.attempt_failed("later")

    lines = [record.getMessage() for record in caplog.records]
    assert lines[:LINES_MAX] == [f"attempt {number}" for number in range(LINES_MAX)]
    assert lines[LINES_MAX] == "letter"
    assert lines[LINES_MAX + 1].startswith("within 10 s 490 more attempts failed,")
    assert lines[LINES_MAX + 1].endswith("; the last: attempt 499")
    assert lines[LINES_MAX + 2 :] == ["later"]


def _raises(_: object) -> None:
    raise ValueError("x" * 3_000_000)


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_trace_begins_with_the_handler(*, asynchronous: bool) -> None:
    """A trace begins with the handler's own frame, and a long text is cut."""

    async def handler(message: object) -> None:
        _raises(message)

    runs = HandlerRuns(handler if asynchronous else _raises, 1)
    with pytest.raises(ValueError, match="xxx") as raised:
        await runs.call([MESSAGE])
    runs.stop()
    assert raised.value.__traceback__ is not None
    trace = trace_of(
        raised.value.with_traceback(raised.value.__traceback__.tb_next)
    )  # without this test's frame

    assert trace.count("File ") == (2 if asynchronous else 1)
    assert trace.count(__file__) == trace.count("File ")
    assert len(trace) < TEXT_MAX + 1_000
    assert trace.endswith("(3,000,012 characters)")

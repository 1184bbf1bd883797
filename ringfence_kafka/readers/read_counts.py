"""Count of the records that a command has read from logs, for its progress report. Pure."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

_observer: ContextVar[Callable[[int], None] | None] = ContextVar("observer", default=None)


@contextlib.contextmanager
def observed(observer: Callable[[int], None]) -> Iterator[None]:
    """Report the records of each fetch to ``observer``, for what this context and its tasks read meanwhile."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def report(records: int) -> None:
    """Report so many records as read."""
    observer = _observer.get()
    if observer is not None:
        observer(records)

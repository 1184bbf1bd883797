"""Counts the records that a command reads from logs, for its progress report. Pure."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

_observer: ContextVar[Callable[[int], None] | None] = ContextVar("observer", default=None)


@contextlib.contextmanager
def observed(observer: Callable[[int], None]) -> Iterator[None]:
    """Report the records of each fetch in this context and its tasks to ``observer``."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def report(records: int) -> None:
    """Report a number of records as read."""
    observer = _observer.get()
    if observer is not None:
        observer(records)

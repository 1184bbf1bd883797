"""Checks of the exception classes that send a handler's message to the dead letters at once."""

from typing import Any

from ringfence_client.handlers.message import Disposition


def check_rejected_errors(classes: Any) -> None:
    """Refuse classes of ``reject_on`` that say nothing about a message.

    Raises:
        ValueError: A class is unsuitable; the text names it and the alternative.
    """
    if not isinstance(classes, tuple):
        raise ValueError(f"reject_on = {classes!r}: a tuple of exception classes, such as (ValueError,)")  # noqa: TRY004
    for item in classes:
        if (fault := _fault(item)) is not None:
            raise ValueError(f"reject_on = {getattr(item, '__name__', repr(item))}: {fault}")


def _fault(item: Any) -> str | None:
    """Return the reason why a class is unsuitable; None = it is suitable."""
    if not (isinstance(item, type) and issubclass(item, BaseException)):
        return "this is no class of exceptions: name one, such as ValueError or your_module.YourError"
    if not issubclass(item, Exception):
        return "it ends tasks or processes and says nothing about a message: name a subclass of Exception"
    if item is Exception:
        return (
            "every failed attempt would make a dead letter, also in an outage: name the classes that only a bad message raises; for one "
            "attempt of each message choose max_attempts = 1"
        )
    if issubclass(item, Disposition):
        return "a handler raises it to decide otherwise than by failing: leave it out"
    if issubclass(item, StopIteration):
        return "Python makes it a RuntimeError on its way out of a handler: raise another class"
    return None

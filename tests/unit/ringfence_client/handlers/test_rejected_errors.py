"""Which classes of exceptions may send a message to the dead letters at once."""

import asyncio
import json
from typing import Any

import pytest

from ringfence_client import ConsumerOptions, Reject, Release, Retry


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (Exception, "reject_on = Exception: every failed attempt would make a dead letter"),
        (BaseException, "reject_on = BaseException: it ends tasks or processes"),
        (asyncio.CancelledError, "reject_on = CancelledError: it ends tasks or processes"),
        (SystemExit, "reject_on = SystemExit: it ends tasks or processes"),
        (Reject, "reject_on = Reject: a handler raises it to decide"),
        (Release, "reject_on = Release: a handler raises it to decide"),
        (Retry, "reject_on = Retry: a handler raises it to decide"),
        (StopIteration, "reject_on = StopIteration: Python makes it a RuntimeError"),
        (json.loads, "reject_on = loads: this is no class of exceptions"),
        (int, "reject_on = int: this is no class of exceptions"),
        ("ValueError", "reject_on = 'ValueError': this is no class of exceptions"),
    ],
)
def test_classes_that_say_nothing_of_a_message(item: Any, text: str) -> None:
    """A class unrelated to a message is refused with the reason, and with the alternative."""
    with pytest.raises(ValueError, match=text):
        ConsumerOptions(reject_on=(ValueError, item))


@pytest.mark.parametrize("classes", [ValueError, [ValueError]])
def test_no_tuple(classes: Any) -> None:
    """A single class, or a list that may change later, is refused in place of a tuple."""
    with pytest.raises(ValueError, match="a tuple of exception classes"):
        ConsumerOptions(reject_on=classes)

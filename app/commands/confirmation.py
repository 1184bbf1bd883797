"""Asks before a change that cannot be undone."""

import sys
from typing import ClassVar

import click

from ringfence_kafka.errors import RingfenceError


class DeclinedError(RingfenceError):
    """The answer was no."""

    exit_code: ClassVar[int] = 1


def can_ask() -> bool:
    """Return whether a person can answer: a script has decided before."""
    return sys.stdin.isatty()


def confirmed(question: str, *, yes: bool = False) -> None:
    """Ask if a person can answer; ``yes``: do not ask.

    Raises:
        DeclinedError: the person declined.
        click.Abort: there was no answer.
    """
    if not yes and can_ask() and not click.confirm(question, err=True):
        raise DeclinedError("nothing was done: the answer was no")

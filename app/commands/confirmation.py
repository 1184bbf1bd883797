"""Asks for confirmation before a change that cannot be undone."""

import sys
from typing import ClassVar

import click

from ringfence_kafka.errors import RingfenceError


class DeclinedError(RingfenceError):
    """The operator declined."""

    exit_code: ClassVar[int] = 1


def can_ask() -> bool:
    """Return whether an operator can answer; in a script nobody can."""
    return sys.stdin.isatty()


def confirmed(question: str, *, yes: bool = False) -> None:
    """Ask if an operator can answer. ``yes``: do not ask.

    Raises:
        DeclinedError: The operator declined.
        click.Abort: The input ended without an answer.
    """
    if not yes and can_ask() and not click.confirm(question, err=True):
        raise DeclinedError("nothing was done: the answer was no")

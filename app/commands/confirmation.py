"""Asks before what cannot be undone."""

import sys
from typing import ClassVar

import click

from ringfence_kafka.errors import RingfenceError


class DeclinedError(RingfenceError):
    """Whoever was asked said no."""

    exit_code: ClassVar[int] = 1


def can_ask() -> bool:
    """Whether a person is there to answer. Who runs a verb from a script has decided."""
    return sys.stdin.isatty()


def confirmed(question: str, *, yes: bool = False) -> None:
    """Ask, where a person is there to answer; ``yes`` answers beforehand.

    Raises:
        DeclinedError: the answer is no.
        click.Abort: there is none.
    """
    if not yes and can_ask() and not click.confirm(question, err=True):
        raise DeclinedError("nothing was done: the answer was no")

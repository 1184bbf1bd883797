"""Asks before what cannot be undone."""

import sys

import click


def can_ask() -> bool:
    """Whether a person is there to answer. Who runs a verb from a script has decided."""
    return sys.stdin.isatty()


def confirmed(question: str, *, yes: bool = False) -> None:
    """Ask, where a person is there to answer; ``yes`` answers beforehand.

    Raises:
        click.Abort: the answer is no.
    """
    if not yes and can_ask():
        click.confirm(question, abort=True, err=True)

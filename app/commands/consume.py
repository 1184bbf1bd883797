"""``ringfence consume``: the same program as ringfence-consume."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click


@click.command(
    add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def consume(arguments: Sequence[str]) -> NoReturn:
    """Run a handler over the accepted messages of an address; the same as ringfence-consume.

    In a program of its own, which has loaded nothing of this one: a handler may live in a package of any name.
    """
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "ringfence_client", *arguments])  # noqa: S606 - this very Python

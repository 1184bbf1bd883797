"""Terminals: one with typed input, a command that is entered, and the lines of progress that commands print."""

import io
import re
from typing import Final

import click
import pytest

from app import cli
from ringfence_client.__main__ import consume
from ringfence_kafka.process import command_line


class Keyboard(io.StringIO):
    """Standard input with this text typed."""

    def isatty(self) -> bool:
        return True


def entered(*arguments: str) -> int | str | None:
    # `consume` becomes another program, which would take this one's place.
    of_its_own = arguments[:1] == ("consume",)
    command: click.Command = consume if of_its_own else cli.cli
    with pytest.raises(SystemExit) as ended:
        command_line.run(command, arguments[1:] if of_its_own else arguments, "ringfence")
    return ended.value.code


_TOOK: Final = re.compile(r"(, |: )[\d,.]+ s$")


def steps(err: str) -> list[str]:
    """Return the steps that ended, with their counts and without their times; errors and notes are left out."""
    return [
        _TOOK.sub("", line)
        for line in err.splitlines()
        if _TOOK.search(line) and not line.startswith("ringfence:")
    ]

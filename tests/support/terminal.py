"""Terminals: one with typed input, and the lines of progress that commands print."""

import io
import re
from typing import Final


class Keyboard(io.StringIO):
    """Standard input with this text typed."""

    def isatty(self) -> bool:
        return True


_TOOK: Final = re.compile(r"(, |: )[\d,.]+ s$")


def steps(err: str) -> list[str]:
    """Return the steps that ended, with their counts and without their times; errors and notes are left out."""
    return [
        _TOOK.sub("", line)
        for line in err.splitlines()
        if _TOOK.search(line) and not line.startswith("ringfence:")
    ]

"""The lines of progress of a command, as tests compare them."""

import re
from typing import Final

_TOOK: Final = re.compile(r"(, |: )[\d,.]+ s$")


def steps(err: str) -> list[str]:
    """The steps that ended, with their counts and without their times; errors and notes are left out."""
    return [
        _TOOK.sub("", line)
        for line in err.splitlines()
        if _TOOK.search(line) and not line.startswith("ringfence:")
    ]

"""Files of Java properties, as Kafka's own tools read them. Pure."""

import re
from typing import Final

_ENTRY: Final = re.compile(r"(?P<key>(?:\\.|[^\\=:\s])+)[ \t\f]*(?:[=:][ \t\f]*)?(?P<value>.*)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse(text: str) -> dict[str, str]:
    """Key → value; of a key that stands twice the last counts.

    Raises:
        ValueError: a line is none; names its number.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            raise ValueError(f"line {number} is no property: write key=value")
        found[_plain(entry["key"])] = _plain(entry["value"])
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Without comments and empty ones; one that ends with a backslash goes on in the next."""
    lines: list[tuple[int, str]] = []
    continued = False
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.lstrip(" \t\f")
        if continued:
            lines[-1] = (lines[-1][0], lines[-1][1] + line)
        elif not line or line[0] in "#!":
            continue
        else:
            lines.append((number, line))
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if continued:
            lines[-1] = (lines[-1][0], lines[-1][1][:-1])
    return lines


def _plain(text: str) -> str:
    return _ESCAPED.sub(
        lambda found: chr(int(found[1][1:], 16)) if len(found[1]) > 1 else _LETTERS.get(found[1], found[1]),
        text,
    )

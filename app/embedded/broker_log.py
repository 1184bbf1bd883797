"""Reasons of a failed start in a broker's log. Pure."""

import re
from typing import Final

from ringfence_kafka.errors import PrerequisiteError

_LINES_SHOWN: Final = 20
_FRAME: Final = re.compile(r"\s+(at |\.\.\. \d+ more)")
_LEVEL: Final = re.compile(r"\S+ \S+ (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) ")
_REFUSED: Final = re.compile(
    r"(?:ConfigException: |IllegalArgumentException: requirement failed: |KafkaException: (?=Class ))(.+)"
)
"""Messages with which Kafka refuses a property."""


def raise_if_refused(text: str) -> None:
    """Raise PrerequisiteError if Kafka refused a property."""
    if found := _REFUSED.search(text):
        raise PrerequisiteError(f"Kafka refuses a property: {found[1].strip()}: correct or remove it")


def relevant_lines(text: str) -> str:
    """Return a log's errors without stack frames, else its last lines, indented. Errors may stand earlier."""
    lines = [line for line in text.strip().splitlines() if not _FRAME.match(line)]
    levels = [match and match[1] for match in map(_LEVEL.match, lines)]
    if {"ERROR", "FATAL"} & set(levels):
        pairs = zip(lines, levels, strict=True)
        lines = [line for line, level in pairs if level in {None, "ERROR", "FATAL"}]
    return "\n".join(f"  {line}" for line in lines[-_LINES_SHOWN:])

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
"""Kafka's reasons to refuse a property."""


def raise_if_refused(text: str) -> None:
    """Look for Kafka's own reason.

    Raises:
        PrerequisiteError: it is a property.
    """
    if found := _REFUSED.search(text):
        raise PrerequisiteError(f"Kafka refuses a property: {found[1].strip()}: correct or remove it")


def telling(text: str) -> str:
    """The lines that explain a failure, indented: the errors, else the last lines."""
    return "\n".join(f"  {line}" for line in _telling(text.strip().splitlines())[-_LINES_SHOWN:])


def _telling(lines: list[str]) -> list[str]:
    """Leave out frames of traces, and all but errors where there are some: a shutdown logs much after them."""
    lines = [line for line in lines if not _FRAME.match(line)]
    levels = [found and found[1] for found in map(_LEVEL.match, lines)]
    if not {"ERROR", "FATAL"} & set(levels):
        return lines
    return [line for line, level in zip(lines, levels, strict=True) if level in {None, "ERROR", "FATAL"}]

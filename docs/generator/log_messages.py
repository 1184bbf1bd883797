"""Generates docs/log-messages.md from the catalogue of log messages, for ``docs/generator/reference.py``."""

import re
from typing import Any, Final

from ringfence_kafka.process.log_setup import catalog

_HEAD: Final = """\
# Log messages

Made from the catalogue by `make cli-docs`. Each line of a log ends with the ID of its message, such as `[RF-133]`; with `--log-format json` it
is the field `id`. An ID never changes its meaning. In the texts below, `…` stands for a name, a number or a reason.

"""
_ROOMS: Final = {
    "1": "Lanes",
    "2": "Workers",
    "3": "Consumers",
    "5": "Bridges",
    "6": "Kafka and web servers",
}
_VALUE: Final = re.compile(r"%[\d.]*[sdrgf]|%%")
_NOTES: Final = "| ID | level | line | means | do |\n|---|---|---|---|---|\n"
_COURSE: Final = "| ID | line |\n|---|---|\n"


def page() -> str:
    """Return the text of the page."""
    parts = [_HEAD]
    for hundred, title in _ROOMS.items():
        own = {name: entry for name, entry in catalog().items() if _hundred(name) == hundred}
        problems = [_problem(name, entry) for name, entry in own.items() if "means" in entry]
        course = [f"| {name} | {_line(entry)} |\n" for name, entry in own.items() if "means" not in entry]
        parts.append(f"## {title}\n\n{_NOTES}{''.join(problems)}\n")
        if course:
            parts.append(f"These lines show the course of things:\n\n{_COURSE}{''.join(course)}\n")
    return "".join(parts).rstrip() + "\n"


def _hundred(name: str) -> str:
    number = name.removeprefix("RF-")[0]
    return "3" if number == "4" else number


def _problem(name: str, entry: dict[str, Any]) -> str:
    return f"| {name} | {entry['level']} | {_line(entry)} | {entry['means']} | {entry['do']} |\n"


def _line(entry: dict[str, Any]) -> str:
    text = _VALUE.sub(lambda found: "%" if found[0] == "%%" else "…", entry["text"])
    return f"`{text.replace('|', chr(92) + '|')}`"

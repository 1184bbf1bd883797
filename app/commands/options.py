"""Options that several commands share."""

import functools
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import click

from ringfence_kafka.config.settings import Settings
from ringfence_kafka.process.command_line import config_option, settings_of, settings_with_addresses

Verb = Callable[..., int]
Decorator = Callable[[Verb], Verb]

JSON: Final = click.option("--json", "as_json", is_flag=True, help="One JSON document for programs.")
YES: Final = click.option("--yes", is_flag=True, help="Do not ask.")
DRY_RUN: Final = click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")

DRY_RUN_OBSTACLES: Final = click.option(
    "--dry-run", is_flag=True, help="Change nothing; show what would be done, and what prevents it now."
)


_UNITS: Final = {
    "NUMBER": ({"": 1, "k": 10**3, "M": 10**6, "G": 10**9}, "500, 5k, 1.5M or 2G"),
    "SIZE": ({"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
        "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}, "100B, 2KiB, 1.5MB or 4GiB"),
    "TIME": ({"s": 1, "m": 60, "h": 3_600, "d": 86_400}, "90s, 30m, 2h or 7d"),
}  # fmt: skip


class Quantity(click.ParamType):
    """Number with a unit: NUMBER, SIZE or TIME."""

    def __init__(self, name: str, *, zero: bool = True) -> None:
        self.name, self._zero = name, zero

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse a value. Failures are usage errors."""
        units, examples = _UNITS[self.name]
        parts = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)", value.strip())
        if parts is None or parts[2] not in units or not (self._zero or float(parts[1])):
            kind = self.name.lower() if self._zero else f"{self.name.lower()} above 0"
            self.fail(f"{value!r} is not a {kind}: write for example {examples}", param, ctx)
        return float(parts[1]) * units[parts[2]]


def _passing(settings_from: Callable[[Path], Settings]) -> Decorator:
    """Return a decorator that passes the configuration as the parameter ``settings``."""

    def decorate(verb: Verb) -> Verb:
        @functools.wraps(verb)
        def call(*, config: Path, **given: Any) -> int:
            return verb(settings=settings_from(config), **given)

        return config_option(call)

    return decorate


addresses_option: Final = _passing(settings_with_addresses)
"""Pass a configuration with at least one address."""
settings_option: Final = _passing(settings_of)


def grouped(name: str, record: type, *options: Decorator) -> Decorator:
    """Pass the values of several options as one parameter: a dataclass with fields of their names."""

    def decorate(verb: Verb) -> Verb:
        @functools.wraps(verb)
        def call(**given: Any) -> int:
            values = {field.name: given.pop(field.name) for field in fields(record) if field.name in given}
            return verb(**given, **{name: record(**values)})

        return stacked(*options)(call)

    return decorate


def stacked(*options: Decorator) -> Decorator:
    """Return one decorator for several options, in the order of the help."""
    return lambda verb: functools.reduce(lambda made, option: option(made), reversed(options), verb)

"""Options that several commands share."""

import functools
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import click

from ringfence_kafka.process.command_line import config_option, settings_of, settings_with_addresses

Verb = Callable[..., int]
Decorator = Callable[[Verb], Verb]

JSON: Final = click.option("--json", "as_json", is_flag=True, help="One JSON document for programs.")
YES: Final = click.option("--yes", is_flag=True, help="Do not ask.")
DRY_RUN: Final = click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")

DRY_RUN_OBSTACLES: Final = click.option(
    "--dry-run", is_flag=True, help="Change nothing; show what would be done, and what prevents it now."
)


def addresses_option(verb: Verb) -> Verb:
    """Pass the configuration, with at least one address, as the parameter ``settings``."""

    @functools.wraps(verb)
    def call(*, config: Path, **given: Any) -> int:
        return verb(settings=settings_with_addresses(config), **given)

    return config_option(call)


def settings_option(verb: Verb) -> Verb:
    """Pass the configuration, with or without addresses, as the parameter ``settings``."""

    @functools.wraps(verb)
    def call(*, config: Path, **given: Any) -> int:
        return verb(settings=settings_of(config), **given)

    return config_option(call)


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

    def decorate(verb: Verb) -> Verb:
        for option in reversed(options):
            verb = option(verb)
        return verb

    return decorate

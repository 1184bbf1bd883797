"""``--log-level`` and ``--log-format`` of the programs that go on until they are stopped."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from ringfence_kafka.process import log_setup

Command = TypeVar("Command", bound=Callable[..., Any])

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")


def _level(_context: click.Context, _parameter: click.Parameter, value: str) -> None:
    log_setup.choose(level=value)


def _format(_context: click.Context, _parameter: click.Parameter, value: str) -> None:
    log_setup.choose(as_json=value == "json")


def log_options(command: Command) -> Command:
    """Both; the environment may set them for all programs of a machine."""
    level = click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        default="info",
        show_default=True,
        envvar="RINGFENCE_LOG_LEVEL",
        show_envvar=True,
        expose_value=False,
        callback=_level,
        help="What Ringfence itself logs; its libraries always log from warnings on.",
    )
    shape = click.option(
        "--log-format",
        type=click.Choice(FORMATS, case_sensitive=False),
        default="text",
        show_default=True,
        envvar="RINGFENCE_LOG_FORMAT",
        show_envvar=True,
        expose_value=False,
        callback=_format,
        help="json: an object a line, for programs that collect logs.",
    )
    return level(shape(command))

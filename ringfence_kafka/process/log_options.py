"""Options ``--log-level`` and ``--log-format`` of programs that run until they are stopped."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ringfence_kafka.process import log_setup

Command = TypeVar("Command", bound=Callable[..., Any])


def log_options(command: Command) -> Command:
    """Add both options. Environment variables can set them for all programs of a machine."""
    for name, choices, default, text in (
        ("format", ("text", "json"), "text", "json writes an object a line, for log collectors."),
        (
            "level",
            ("debug", "info", "warning", "error"),
            "info",
            "Level of Ringfence's own lines; its libraries always log from warnings on.",
        ),
    ):
        command = click.option(
            f"--log-{name}",
            type=click.Choice(choices, case_sensitive=False),
            default=default,
            show_default=True,
            envvar=f"RINGFENCE_LOG_{name.upper()}",
            show_envvar=True,
            expose_value=False,
            callback=_choose,
            help=text,
        )(command)
    return command


def _choose(_context: click.Context, parameter: click.Parameter, choice: str) -> None:
    log_setup.choose(**{str(parameter.name): choice})

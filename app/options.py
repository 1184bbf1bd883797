"""What the verbs of the command line have in common."""

import logging
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from conf.load import load
from conf.settings import Settings

DEFAULT_CONFIG: Final = Path("conf/ringfence.toml")
PORT: Final = click.IntRange(0, 65535)

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=DEFAULT_CONFIG,
    show_default=True,
    metavar="FILE",
    help="The TOML file; RINGFENCE_<SECTION>__<KEY> in the environment overrides its keys.",
)


def settings_if_any(config: Path) -> Settings:
    """The settings of a file that was named or is there; else the defaults, for verbs that need no addresses."""
    named = click.get_current_context().get_parameter_source("config") is not ParameterSource.DEFAULT
    return load(config) if named or config.exists() else Settings()


def silence_clients() -> None:
    """What aiokafka logs of a failed connection, the error that the verb ends with says better."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    # A connection that is refused leaves futures that nobody awaits; the verb tells of it in one line.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)

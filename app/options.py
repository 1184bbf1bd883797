"""What the verbs of the command line have in common."""

import logging
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from conf.errors import ConfigurationError
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


def settings_with_addresses(config: Path) -> Settings:
    """The settings of a file, for verbs that work on addresses.

    Raises:
        ConfigurationError: it cannot be used, or has no address.
    """
    settings = load(config)
    if not settings.addresses:
        raise ConfigurationError(
            f"{config}: no addresses: add an [[addresses]] entry with a name; one with a pattern such as 'orders-*' only sets "
            "defaults for those that match"
        )
    return settings


def silence_clients() -> None:
    """What aiokafka logs of a failed connection, the error that the verb ends with says better."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    # A connection that is refused leaves futures that nobody awaits; the verb tells of it in one line.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)

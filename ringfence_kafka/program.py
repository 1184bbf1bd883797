"""What the programs of the command line have in common: options, and how they end."""

import logging
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

import click
from click.core import ParameterSource

from ringfence_kafka.config.load import load
from ringfence_kafka.config.names import require_consumer_group
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import ConfigurationError, RingfenceError, unforeseen
from ringfence_kafka.loading import interrupted

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


def run(command: click.Command, arguments: Sequence[str] | None, name: str) -> NoReturn:
    """Run a command and exit: 0 ok, 1 what was checked is not ok, 2 could not run, 3 unknown, 130 interrupted."""
    try:
        code = command.main(arguments, prog_name=name, standalone_mode=False)
    except RingfenceError as error:
        click.echo(f"ringfence: {error}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = 2
    except (click.Abort, KeyboardInterrupt):
        code = interrupted()
    except Exception as error:  # noqa: BLE001 - 1 would say that what was checked is not ok
        click.echo(f"{traceback.format_exc()}ringfence: {unforeseen(error)}", err=True)
        code = RingfenceError.exit_code
    sys.exit(code)


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


class _ConsumerGroup(click.ParamType):
    """A name that a consumer group may have."""

    name = "NAME"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """What may not be one is an error of usage."""
        try:
            return require_consumer_group(value)
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


CONSUMER_GROUP: Final = _ConsumerGroup()

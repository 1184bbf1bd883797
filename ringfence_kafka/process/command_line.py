"""What the programs of the command line have in common: options, and how they end."""

import codecs
import errno
import io
import logging
import math
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import click
from click.core import ParameterSource

from ringfence_kafka.config.load import Connection, load
from ringfence_kafka.config.section import require_consumer_group
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import ConfigurationError, RingfenceError, said, unforeseen

DEFAULT_CONFIG: Final = Path("conf/ringfence.toml")
PORT: Final = click.IntRange(0, 65535)
EXIT_INTERRUPTED: Final = 130
"""The exit code of a shell after SIGINT."""

CONFIG_VARIABLE: Final = "RINGFENCE_CONFIG"
_CONNECTION: Final = "ringfence.connection"
Verb = TypeVar("Verb", bound=Callable[..., Any])


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """What the command line says of the connection goes along with the context, and not through each verb."""
    if value:
        context.meta.setdefault(_CONNECTION, {})[parameter.name] = value


def _properties(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> None:
    found = {}
    for name in values:
        key, equals, value = name.partition("=")
        if not (key and equals):
            raise click.BadParameter(
                f"{name!r} is not key=value; write for example retry.backoff.ms=200", context, parameter
            )
        found[key.strip()] = value.strip()
    _keep(context, parameter, found)


_OPTIONS: Final = (
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        default=DEFAULT_CONFIG,
        show_default=True,
        metavar="FILE",
        envvar=CONFIG_VARIABLE,
        show_envvar=True,
        help="The TOML file; RINGFENCE_<SECTION>__<KEY> in the environment overrides its keys.",
    ),
    click.option(
        "--bootstrap-server",
        "--bootstrap-servers",
        "bootstrap_servers",
        metavar="HOST:PORT,…",
        expose_value=False,
        callback=_keep,
        help="Instead of kafka.bootstrap_servers.",
    ),
    click.option(
        "--command-config",
        "command_config",
        metavar="FILE",
        expose_value=False,
        callback=_keep,
        help="Java properties, as Kafka's tools take them: how to get in, instead of what [kafka] says.",
    ),
    click.option(
        "-X",
        "properties",
        metavar="KEY=VALUE",
        multiple=True,
        expose_value=False,
        callback=_properties,
        help="A property for all Kafka clients that know it, by Kafka's name; repeat it for more.",
    ),
)
CONNECTION_OPTIONS: Final = ("--bootstrap-server", "--bootstrap-servers", "--command-config", "-X")
"""They take a value each."""


def config_option(verb: Verb) -> Verb:
    """What each verb takes: the configuration, as its parameter ``config``, and the connection, for :func:`settings_of`."""
    for option in reversed(_OPTIONS):
        verb = option(verb)
    return verb


def settings_of(config: Path, *, optional: bool = False) -> Settings:
    """The settings of a file and of the command line that runs. Raises as :func:`ringfence_kafka.config.load.load` does."""
    given = click.get_current_context().meta.get(_CONNECTION, {})
    settings = load(config, connection=Connection(**given), optional=optional)
    if settings.kafka.properties:
        from ringfence_kafka.auth import client_properties

        client_properties.check(settings.kafka)
    return settings


def refuse_connection(verb: str, why: str = "which brings its own broker") -> None:
    """Of a verb that brings its own broker, or asks none: nothing of the command line may name one.

    Raises:
        UsageError: it does.
    """
    for name in click.get_current_context().meta.get(_CONNECTION, {}):
        option = {
            "bootstrap_servers": "--bootstrap-server",
            "command_config": "--command-config",
            "properties": "-X",
        }[name]
        raise click.UsageError(f"{option} has no effect with {verb}, {why}: leave it out")


def run(command: click.Command, arguments: Sequence[str] | None, name: str) -> NoReturn:
    """Run a command and exit: 0 ok, 1 what was checked is not ok, 2 could not run, 3 unknown, 130 interrupted."""
    _write_anything()
    try:
        code = command.main(arguments, prog_name=name, standalone_mode=False)
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except RingfenceError as error:
        click.echo(f"ringfence: {error}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = 2
    except (click.Abort, KeyboardInterrupt):
        code = EXIT_INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.EPIPE, errno.ENOSPC) and not error.filename:
            sys.exit(_lost_output(error))
        if (refusal := _of_the_cluster(error)) is not None:
            click.echo(f"ringfence: {refusal}", err=True)
            sys.exit(RingfenceError.exit_code)
        click.echo(f"{traceback.format_exc()}ringfence: {unforeseen(error)}", err=True)
        code = RingfenceError.exit_code
    sys.exit(code)


_PLAIN: Final = {"…": "...", "→": "->", "·": "-", "\u2013": "-", "\u00d7": "x", "✓": "ok", "µ": "u"}
"""Replacements of our own characters on a terminal that does not have them."""


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """Return what stands for the characters that a terminal's encoding does not have: an escape, if it is not ours."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    plain = (_PLAIN.get(name) or name.encode("ascii", "backslashreplace").decode() for name in text)
    return "".join(plain), error.end


def _write_anything() -> None:
    """Let both outputs take any character, whatever encoding the locale gives them."""
    codecs.register_error("ringfence", _replaced)
    for item in (sys.stdout, sys.stderr):
        if isinstance(item, io.TextIOWrapper):
            item.reconfigure(errors="ringfence")


def _lost_output(error: OSError) -> int:
    """Return the exit code after standard output failed: 1 if its reader left, as click has it."""
    # The interpreter flushes once more at its end: that must not fail again, with a trace.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:
        return 1
    click.echo(
        f"ringfence: the output cannot be written ({error.strerror}), so some of it is missing: make room where it goes, or name another "
        "place",
        err=True,
    )
    return RingfenceError.exit_code


def _of_the_cluster(error: Exception) -> str | None:
    """What is said where it is a client's of Kafka: the cluster went away, or refused. None = it is not; or a client was used wrongly."""
    ours, theirs = sys.modules.get("aiokafka.errors"), sys.modules.get("confluent_kafka")
    if ours is not None and isinstance(error, ours.IllegalStateError):
        return None
    if not (
        isinstance(error, TimeoutError)
        or (ours is not None and isinstance(error, ours.KafkaError))
        or (theirs is not None and isinstance(error, theirs.KafkaException))
    ):
        return None
    return (
        f"the cluster does not do what it was asked for ({said(error)}): look at the brokers and at this user's rights, and run it "
        "again"
    )


def settings_if_any(config: Path) -> Settings:
    """The same of a file that was named or is there; else the defaults, for verbs that need no addresses."""
    named = click.get_current_context().get_parameter_source("config") is not ParameterSource.DEFAULT
    return settings_of(config, optional=not named)


def settings_with_addresses(config: Path) -> Settings:
    """The settings of a file, for verbs that work on addresses.

    Raises:
        ConfigurationError: it cannot be used, or has no address.
    """
    settings = settings_of(config)
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


class NumberRange(click.FloatRange):
    """A finite number in a range: click's own takes NaN for one in any range, and infinity where no end is given."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """What is none is an error of usage."""
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is no number in the range {self._describe_range()}", param, ctx)
        return found


SECONDS_MAX: Final = 14 * 86_400
"""What is to take longer is a typing error; clients of Kafka count milliseconds in 31 bits."""
SECONDS: Final = NumberRange(0, SECONDS_MAX, min_open=True)
SECONDS_OR_NONE: Final = NumberRange(0, SECONDS_MAX)
"""0 = without."""

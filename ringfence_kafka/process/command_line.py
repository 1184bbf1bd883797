"""Options and exit codes of all command line programs."""

import codecs
import errno
import io
import logging
import math
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import click
from click.core import ParameterSource

from ringfence_kafka.config.load import Connection, Document, read_document, validate
from ringfence_kafka.config.section import require_consumer_group
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import ConfigurationError, RingfenceError, said, unforeseen

DEFAULT_CONFIG: Final = Path("conf/ringfence.toml")
PORT: Final = click.IntRange(0, 65535)
EXIT_INTERRUPTED: Final = 130
"""Exit code of a shell after SIGINT."""

CONFIG_VARIABLE: Final = "RINGFENCE_CONFIG"
_CONNECTION: Final = "ringfence.connection"
Verb = TypeVar("Verb", bound=Callable[..., Any])


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Store a connection option in the context instead of in each verb's parameters."""
    if value:
        context.meta.setdefault(_CONNECTION, {})[parameter.name] = value


def _properties(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> None:
    properties = {}
    for pair in values:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise click.BadParameter(
                f"{pair!r} is not key=value; write for example retry.backoff.ms=200", context, parameter
            )
        properties[key.strip()] = value.strip()
    _keep(context, parameter, properties)


def _connection_option(*names: str, callback: Any = _keep, **given: Any) -> Callable[[Verb], Verb]:
    return click.option(*names, expose_value=False, callback=callback, **given)


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
    _connection_option(
        "--bootstrap-server",
        "--bootstrap-servers",
        "bootstrap_servers",
        metavar="HOST:PORT,…",
        help="Brokers to ask first; overrides kafka.bootstrap_servers.",
    ),
    _connection_option(
        "--command-config",
        "command_config",
        metavar="FILE",
        help="File of Java properties, as Kafka's tools take it; replaces the access settings of [kafka].",
    ),
    _connection_option(
        "-X",
        "properties",
        metavar="KEY=VALUE",
        multiple=True,
        callback=_properties,
        help="A property for all Kafka clients that know it, by Kafka's name; repeat it for more.",
    ),
)
_NAMES: Final = {
    "bootstrap_servers": "--bootstrap-server",
    "command_config": "--command-config",
    "properties": "-X",
}
CONNECTION_OPTIONS: Final = ("--bootstrap-server", "--bootstrap-servers", "--command-config", "-X")
"""Connection options; each has a value."""


def config_option(verb: Verb) -> Verb:
    """Add the configuration as the parameter ``config``, and the connection options for :func:`settings_of`."""
    for option in reversed(_OPTIONS):
        verb = option(verb)
    return verb


def given_options() -> list[str]:
    """Return the configuration and connection options of this command line, for a command that repeats them."""
    context = click.get_current_context(silent=True)
    if context is None:
        return []
    kept = context.meta.get(_CONNECTION, {})
    named = [(_NAMES[key], kept.get(key)) for key in ("bootstrap_servers", "command_config")]
    named += [("-X", f"{key}={value}") for key, value in kept.get("properties", {}).items()]
    if context.get_parameter_source("config") is ParameterSource.COMMANDLINE:
        named.insert(0, ("--config", str(context.params["config"])))
    return [part for option, value in named if value is not None for part in (option, value)]


def suggest(*words: str) -> None:
    """Write the usual next command to stderr, with the configuration and connection options of this one."""
    if click.get_current_context(silent=True) is not None:
        print_next("ringfence", *words, *given_options())


def print_next(*command: str) -> None:
    """Write the usual next command to stderr."""
    click.echo(f"next: {shlex.join(command)}", err=True)


def settings_of(config: Path, *, optional: bool = False) -> Settings:
    """Return the settings of a file and the present command line. Raises as :func:`ringfence_kafka.config.load.load`."""
    return validated(document_of(config, optional=optional))


def document_of(config: Path, *, optional: bool = False) -> Document:
    """Return a file, overridden by the environment and the present command line, before validation."""
    given = click.get_current_context().meta.get(_CONNECTION, {})
    return read_document(config, connection=Connection(**given), optional=optional)


def validated(document: Document) -> Settings:
    """Return the validated settings of a document, including the clients' properties.

    Raises:
        ConfigurationError: they are not valid.
    """
    settings = validate(document.data, document.origin)
    if settings.kafka.properties:
        from ringfence_kafka.auth import client_properties

        client_properties.check(settings.kafka)
    return settings


def refuse_connection(verb: str, why: str = "which brings its own broker") -> None:
    """Refuse connection options for a verb that queries no broker or starts its own.

    Raises:
        UsageError: the command line has such an option.
    """
    for name in click.get_current_context().meta.get(_CONNECTION, {}):
        raise click.UsageError(f"{_NAMES[name]} has no effect with {verb}, {why}: leave it out")


def run(command: click.Command, arguments: Sequence[str] | None, name: str) -> NoReturn:
    """Run a command and exit: 0 ok, 1 a check failed, 2 could not run, 3 unknown, 130 interrupted."""
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
        if (refusal := _cluster_error(error)) is not None:
            click.echo(f"ringfence: {refusal}", err=True)
        else:
            click.echo(f"{traceback.format_exc()}ringfence: {unforeseen(error)}", err=True)
        code = RingfenceError.exit_code
    sys.exit(code)


_PLAIN: Final = {"…": "...", "→": "->", "·": "-", "\u2013": "-", "\u00d7": "x", "✓": "ok", "µ": "u"}
"""Replacements of Ringfence's own characters on a terminal that lacks them."""


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that a terminal's encoding lacks; foreign ones become escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    plain = (_PLAIN.get(char) or char.encode("ascii", "backslashreplace").decode() for char in text)
    return "".join(plain), error.end


def _write_anything() -> None:
    """Let standard output and error accept any character in any locale."""
    codecs.register_error("ringfence", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="ringfence")


def _lost_output(error: OSError) -> int:
    """Return the exit code after standard output failed: 1 if its reader has left, as in click."""
    # The interpreter flushes once more at its end. That must not fail with a traceback.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:
        return 1
    click.echo(
        f"ringfence: the output cannot be written ({error.strerror}), so some of it is missing: make room where it goes, or name another "
        "place",
        err=True,
    )
    return RingfenceError.exit_code


def _cluster_error(error: Exception) -> str | None:
    """Return the text of a Kafka client's error: the cluster is unavailable or refuses. None for other errors and wrong use of a client."""
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
        f"the cluster refuses the request ({said(error)}): look at the brokers and at this user's rights, "
        "and run it again"
    )


def settings_if_any(config: Path) -> Settings:
    """Return the settings of a named or existing file, else the defaults, for verbs without addresses."""
    named = click.get_current_context().get_parameter_source("config") is not ParameterSource.DEFAULT
    return settings_of(config, optional=not named)


def settings_with_addresses(config: Path) -> Settings:
    """Return the settings of a file, for verbs that need addresses.

    Raises:
        ConfigurationError: the file is not valid, or has no address.
    """
    settings = settings_of(config)
    if not settings.addresses:
        raise ConfigurationError(
            f"{config}: no addresses: add an [[addresses]] entry with a name; one with a pattern such as 'orders-*' only sets "
            "defaults for those that match"
        )
    return settings


def silence_clients() -> None:
    """Silence aiokafka's logs of failed connections, and asyncio's of their futures: the verb reports the error."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)


class _ConsumerGroup(click.ParamType):
    name = "NAME"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse another name as a usage error."""
        try:
            return require_consumer_group(value)
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


CONSUMER_GROUP: Final = _ConsumerGroup()


class NumberRange(click.FloatRange):
    """Finite number in a range: click's own type accepts NaN in any range, and infinity without a bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Refuse any other value as a usage error."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a number in the range {self._describe_range()}", param, ctx)
        return number


SECONDS_MAX: Final = 14 * 86_400
"""Larger values are typing errors; Kafka's clients count milliseconds in 31 bits."""
SECONDS: Final = NumberRange(0, SECONDS_MAX, min_open=True)
SECONDS_OR_NONE: Final = NumberRange(0, SECONDS_MAX)
"""0 = no limit."""

"""The verbs of those who consume: ``consume``, ``consumers`` and ``groups``."""

from pathlib import Path
from typing import Final

import click

from app.options import PORT, config_option, settings_with_addresses, silence_clients
from conf.errors import ConfigurationError
from conf.names import require_consumer_group

_SECONDS: Final = click.FloatRange(0, min_open=True)


class _ConsumerGroup(click.ParamType):
    """A name that a consumer group may have."""

    name = "NAME"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """What may not be one is an error of usage."""
        try:
            return require_consumer_group(value)
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


_CONSUMER_GROUP: Final = _ConsumerGroup()


@click.command()
@click.argument("address")
@click.option("--handler", required=True, metavar="MODULE:FUNCTION", help="Called with each message.")
@click.option(
    "--consumer-group", "group", type=_CONSUMER_GROUP, required=True, help="Its progress is its own."
)
@click.option(
    "--concurrency", type=click.IntRange(1), default=10, show_default=True, help="Handlers that run at once."
)
@click.option(
    "--prefetch",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Messages of its group a handler holds.",
)
@click.option(
    "--max-attempts",
    type=click.IntRange(1),
    show_default="5",
    help="A message is a dead letter after so many failed ones, and not before --retry-time.",
)
@click.option(
    "--retry-time",
    type=click.FloatRange(0),
    show_default="600; 0 with --max-attempts",
    help="Seconds since its first failure before which a message is no dead letter.",
)
@click.option(
    "--breaker/--no-breaker",
    default=True,
    show_default=True,
    help="While nearly everything fails, slow down and give nothing up.",
)
@click.option(
    "--handler-timeout",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Seconds after which a handler's run is ended, as a failed attempt; 0 = never.",
)
@click.option(
    "--ack-interval",
    type=_SECONDS,
    default=0.1,
    show_default=True,
    help="Seconds between writes of the progress.",
)
@click.option(
    "--drain-timeout",
    type=_SECONDS,
    default=30.0,
    show_default=True,
    help="Seconds that handlers get to end.",
)
@click.option(
    "--lease-timeout",
    type=_SECONDS,
    default=10.0,
    show_default=True,
    help="Seconds of silence after which another consumer's lease is taken.",
)
@click.option(
    "--lease-idle",
    type=_SECONDS,
    default=2.0,
    show_default=True,
    help="The same where it has nothing unacknowledged.",
)
@click.option(
    "--session-timeout",
    type=_SECONDS,
    default=10.0,
    show_default=True,
    help="Seconds after which the group gives a dead consumer's partitions to others.",
)
@click.option(
    "--memory",
    "memory_mib",
    type=click.IntRange(16),
    default=512,
    show_default=True,
    help="MiB of messages kept in memory, all partitions together.",
)
@click.option("--web-port", type=PORT, help="0 = no web server; not given = any free port.")
@config_option
def consume(
    address: str,
    handler: str,
    group: str,
    concurrency: int,
    prefetch: int,
    max_attempts: int | None,
    retry_time: float | None,
    breaker: bool,
    handler_timeout: float,
    ack_interval: float,
    drain_timeout: float,
    lease_timeout: float,
    lease_idle: float,
    session_timeout: float,
    memory_mib: int,
    web_port: int | None,
    config: Path,
) -> int:
    """Run a handler over the accepted messages of ADDRESS: each group in order, groups beside one another.

    Returning acknowledges a message; raising tries it again later. Run as many consumers as you like. SIGTERM drains
    and writes the progress.
    """
    settings = settings_with_addresses(config)
    from app import consume as consume_module  # noqa: PLC0415
    from ringfence_client import ConsumerOptions  # noqa: PLC0415

    try:
        options = ConsumerOptions(
            concurrency=concurrency,
            prefetch=prefetch,
            max_attempts=max_attempts,
            retry_time=retry_time,
            breaker=breaker,
            handler_timeout=handler_timeout,
            ack_interval=ack_interval,
            drain_timeout=drain_timeout,
            lease_timeout=lease_timeout,
            lease_idle=lease_idle,
            session_timeout=session_timeout,
            memory_max=memory_mib * 2**20,
        )
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    return consume_module.run(settings, address, handler, group, options, web_port)


@click.group()
def consumers() -> None:
    """Look at who consumes what."""
    silence_clients()


@consumers.command("show")
@click.argument("address", required=False)
@click.option("--consumer-group", "group", type=_CONSUMER_GROUP, help="Of this one only.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document for programs.")
@config_option
def consumers_show(address: str | None, group: str | None, as_json: bool, config: Path) -> int:
    """The lease of each partition of ADDRESS, or of all: holder, token, state, age, how far, and who waits."""
    settings = settings_with_addresses(config)
    from app import consumers as consumers_module  # noqa: PLC0415

    return consumers_module.show(settings, address, group, as_json)


@click.group()
def groups() -> None:
    """Look at message groups and how far a consumer group is in them."""
    silence_clients()


_consumer_group = click.option(
    "--consumer-group", "group", type=_CONSUMER_GROUP, required=True, help="Whose progress."
)


@groups.command("show")
@click.argument("address")
@_consumer_group
@click.option("--json", "as_json", is_flag=True, help="One JSON document for programs.")
@config_option
def groups_show(address: str, group: str, as_json: bool, config: Path) -> int:
    """Groups of ADDRESS with messages that are not finished: depth, acquired, owner, age of the first."""
    settings = settings_with_addresses(config)
    from app import groups as groups_module  # noqa: PLC0415

    return groups_module.show(settings, address, group, as_json)


@groups.command("purge")
@click.argument("address")
@click.argument("name", metavar="GROUP")
@_consumer_group
@config_option
def groups_purge(address: str, name: str, group: str, config: Path) -> int:
    """Drop all messages of GROUP at ADDRESS that are there now and no handler has; other consumer groups keep them.

    GROUP is text, or hex:... for other bytes; text:... for a text that begins so.
    """
    settings = settings_with_addresses(config)
    from app import group_verbs  # noqa: PLC0415

    return group_verbs.drop(settings, address, group, name, skip=False)


@groups.command("release")
@click.argument("address")
@click.argument("name", metavar="GROUP")
@_consumer_group
@config_option
def groups_release(address: str, name: str, group: str, config: Path) -> int:
    """End the handler that runs the first message of GROUP at ADDRESS: a failed attempt; the group rests for 10 s or more.

    A coroutine is cancelled. A thread cannot be: it keeps its group, and no handler's place. `groups skip` drops the message.
    """
    settings = settings_with_addresses(config)
    from app import group_verbs  # noqa: PLC0415

    return group_verbs.release(settings, address, group, name)


@groups.command("skip")
@click.argument("address")
@click.argument("name", metavar="GROUP")
@_consumer_group
@config_option
def groups_skip(address: str, name: str, group: str, config: Path) -> int:
    """Drop the first message of GROUP at ADDRESS, such as one that fails again and again; the next one follows."""
    settings = settings_with_addresses(config)
    from app import group_verbs  # noqa: PLC0415

    return group_verbs.drop(settings, address, group, name, skip=True)

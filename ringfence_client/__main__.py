"""The ``ringfence-consume`` program, also ``python -m ringfence_client`` and ``ringfence consume``."""

from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.process.command_line import (
    CONSUMER_GROUP,
    PORT,
    SECONDS,
    SECONDS_OR_NONE,
    NumberRange,
    config_option,
    run,
    settings_with_addresses,
)
from ringfence_kafka.process.log_setup import log_options

_option: Final = partial(click.option, show_default=True)
_COUNT: Final = click.IntRange(1, 10_000)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("address")
@click.option(
    "--handler",
    required=True,
    metavar="MODULE:FUNCTION",
    help="Function that handles a message: orders:handle is `handle` in orders.py. The current folder comes first.",
)
@click.option(
    "--consumer-group",
    type=CONSUMER_GROUP,
    required=True,
    help="Consumer group; each group gets all messages.",
)
@_option("--concurrency", type=_COUNT, default=10, help="Number of handlers that run at once.")
@_option("--prefetch", type=_COUNT, default=1, help="Messages of one group that a handler holds.")
@_option(
    "--batch",
    type=click.IntRange(0, 10_000),
    default=0,
    help="Call the handler with a list of up to this many messages of one group; 0 = with one message.",
)
@click.option(
    "--max-attempts",
    type=click.IntRange(1),
    show_default="5",
    help="Attempts of a failing message; after the last one it is a dead letter.",
)
@click.option(
    "--retry-time",
    type=SECONDS_OR_NONE,
    show_default="600; 0 with --max-attempts",
    help="Seconds over which the attempts are spread.",
)
@_option("--retry-delay", type=SECONDS, default=0.1, help="Seconds before the second attempt.")
@click.option(
    "--retry-multiplier",
    type=NumberRange(1, 1000),
    show_default="what --max-attempts and --retry-time need, or 2",
    help="Growth of each delay; without --max-attempts, attempts follow until --retry-time is over.",
)
@click.option(
    "--retry-max",
    type=SECONDS,
    show_default="60, or none where the growth follows",
    help="Seconds of the longest delay; without --max-attempts, attempts follow until --retry-time is over.",
)
@_option(
    "--retry-jitter",
    type=NumberRange(0, 1),
    default=0.2,
    help="Fraction by which a delay is longer or shorter at random.",
)
@click.option(
    "--reject-on",
    multiple=True,
    metavar="EXCEPTION,…",
    help="Exceptions with which a message is a dead letter at once: ValueError, or MODULE.CLASS; repeatable.",
)
@_option(
    "--breaker/--no-breaker",
    default=True,
    help="Slow down while nearly every attempt fails, and discard nothing.",
)
@_option(
    "--on-dead-letter",
    type=click.Choice(["flow", "park"]),
    default="flow",
    help="Whether the group continues after a dead letter, or waits until it is redriven, dropped or "
    "skipped.",
)
@_option(
    "--handler-timeout",
    type=SECONDS_OR_NONE,
    default=0.0,
    help="Seconds after which a handler's run is ended, as a failed attempt; 0 = never.",
)
@_option("--ack-interval", type=SECONDS, default=0.1, help="Seconds between writes of the progress.")
@_option("--drain-timeout", type=SECONDS, default=30.0, help="Seconds that handlers get to end.")
@_option(
    "--lease-timeout",
    type=SECONDS,
    default=10.0,
    help="Seconds of silence after which another consumer's lease is taken.",
)
@_option(
    "--lease-idle", type=SECONDS, default=2.0, help="The same for a consumer without unacknowledged messages."
)
@_option(
    "--session-timeout",
    type=SECONDS,
    default=10.0,
    help="Seconds after which the group assigns a dead consumer's partitions to others.",
)
@_option(
    "--memory",
    type=click.IntRange(16, 2**20),
    default=512,
    help="MiB of messages kept in memory, all partitions together.",
)
@_option(
    "--start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    help="Start position of a new consumer group; one that has consumed before continues where it is.",
)
@click.option("--web-port", type=PORT, help="0 = no web server; not given = any free port.")
@log_options
@config_option
@click.version_option(
    package_name="ringfence-client", prog_name="ringfence-client", message="%(prog)s %(version)s"
)
def consume(
    address: str,
    handler: str,
    consumer_group: str,
    memory: int,
    web_port: int | None,
    reject_on: tuple[str, ...],
    config: Path,
    **options: Any,
) -> int:
    """Run a handler over the accepted messages of ADDRESS: each group in order, groups beside one another.

    Returning acknowledges a message; raising tries it again later. Run as many consumers as you like. SIGTERM drains
    and writes the progress.
    """
    settings = settings_with_addresses(config)
    from ringfence_client import command
    from ringfence_client.handlers.options import ConsumerOptions

    try:
        chosen = ConsumerOptions(memory_max=memory * 2**20, **options)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    return command.run_consumer(settings, address, handler, consumer_group, chosen, web_port, reject_on)


def main() -> NoReturn:
    """Consume, and exit."""
    run(consume, None, "ringfence-consume")


if __name__ == "__main__":
    main()

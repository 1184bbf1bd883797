"""The ``ringfence-consume`` program, also ``python -m ringfence_client`` and ``ringfence consume``."""

from pathlib import Path
from typing import Literal, NoReturn

import click

from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.process.command_line import (
    CONSUMER_GROUP,
    PORT,
    SECONDS,
    SECONDS_OR_NONE,
    config_option,
    run,
    settings_with_addresses,
)
from ringfence_kafka.process.log_options import log_options


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("address")
@click.option("--handler", required=True, metavar="MODULE:FUNCTION", help="Called with each message.")
@click.option(
    "--consumer-group", "group", type=CONSUMER_GROUP, required=True, help="Its progress is its own."
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    help="Handlers that run at once.",
)
@click.option(
    "--prefetch",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Messages of its group a handler holds.",
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
@click.option(
    "--breaker/--no-breaker",
    default=True,
    show_default=True,
    help="While nearly everything fails, slow down and give nothing up.",
)
@click.option(
    "--on-dead-letter",
    type=click.Choice(["flow", "park"]),
    default="flow",
    show_default=True,
    help="Whether the group goes on behind a dead letter, or waits until it is redriven, dropped or skipped.",
)
@click.option(
    "--handler-timeout",
    type=SECONDS_OR_NONE,
    default=0.0,
    show_default=True,
    help="Seconds after which a handler's run is ended, as a failed attempt; 0 = never.",
)
@click.option(
    "--ack-interval",
    type=SECONDS,
    default=0.1,
    show_default=True,
    help="Seconds between writes of the progress.",
)
@click.option(
    "--drain-timeout",
    type=SECONDS,
    default=30.0,
    show_default=True,
    help="Seconds that handlers get to end.",
)
@click.option(
    "--lease-timeout",
    type=SECONDS,
    default=10.0,
    show_default=True,
    help="Seconds of silence after which another consumer's lease is taken.",
)
@click.option(
    "--lease-idle",
    type=SECONDS,
    default=2.0,
    show_default=True,
    help="The same where it has nothing unacknowledged.",
)
@click.option(
    "--session-timeout",
    type=SECONDS,
    default=10.0,
    show_default=True,
    help="Seconds after which the group gives a dead consumer's partitions to others.",
)
@click.option(
    "--memory",
    "memory_mib",
    type=click.IntRange(16, 2**20),
    default=512,
    show_default=True,
    help="MiB of messages kept in memory, all partitions together.",
)
@click.option(
    "--start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
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
    group: str,
    concurrency: int,
    prefetch: int,
    max_attempts: int | None,
    retry_time: float | None,
    breaker: bool,
    on_dead_letter: Literal["flow", "park"],
    handler_timeout: float,
    ack_interval: float,
    drain_timeout: float,
    lease_timeout: float,
    lease_idle: float,
    session_timeout: float,
    memory_mib: int,
    start: Literal["earliest", "latest"],
    web_port: int | None,
    config: Path,
) -> int:
    """Run a handler over the accepted messages of ADDRESS: each group in order, groups beside one another.

    Returning acknowledges a message; raising tries it again later. Run as many consumers as you like. SIGTERM drains
    and writes the progress.
    """
    settings = settings_with_addresses(config)
    from ringfence_client import command
    from ringfence_client.handlers.options import ConsumerOptions

    try:
        options = ConsumerOptions(
            concurrency=concurrency,
            prefetch=prefetch,
            max_attempts=max_attempts,
            retry_time=retry_time,
            breaker=breaker,
            on_dead_letter=on_dead_letter,
            handler_timeout=handler_timeout,
            ack_interval=ack_interval,
            drain_timeout=drain_timeout,
            lease_timeout=lease_timeout,
            lease_idle=lease_idle,
            session_timeout=session_timeout,
            memory_max=memory_mib * 2**20,
            start=start,
        )
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    return command.run(settings, address, handler, group, options, web_port)


def main() -> NoReturn:
    """Consume, and exit."""
    run(consume, None, "ringfence-consume")


if __name__ == "__main__":
    main()

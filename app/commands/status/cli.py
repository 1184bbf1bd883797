"""``ringfence status``: options, and its function."""

from pathlib import Path

import click

from ringfence_kafka.process.command_line import (
    CONSUMER_GROUP,
    config_option,
    settings_of,
    settings_with_addresses,
    silence_clients,
)


@click.command()
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document for programs; with --watch a line each."
)
@click.option("--watch", is_flag=True, help="Repeat every 2 seconds, until Ctrl-C.")
@click.option(
    "--ignore-group",
    "ignored",
    type=CONSUMER_GROUP,
    multiple=True,
    help="Leave out this unused consumer group; repeat it for more.",
)
@config_option
def status(as_json: bool, watch: bool, ignored: tuple[str, ...], config: Path) -> int:
    """Show addresses, lanes, consumers and bridges; and for each problem its reason and a remedy.

    It only reads: Kafka first, then the web servers of workers and consumers; it works without any of them.
    Exit code 1: something is stopped, or soon will be, until somebody acts.
    """
    silence_clients()
    settings = settings_of(config)
    if not (settings.bridges or settings.cluster_connections):
        settings = settings_with_addresses(config)
    from app.commands.status import status as verb

    return verb.print_status(settings, as_json=as_json, watch=watch, ignored=ignored)

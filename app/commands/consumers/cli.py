"""``ringfence consumers``: options, and which function runs."""

from pathlib import Path

import click

from ringfence_kafka.process.command_line import (
    CONSUMER_GROUP,
    config_option,
    settings_with_addresses,
    silence_clients,
)


@click.group()
def consumers() -> None:
    """Show who consumes each partition, and forget groups that are gone."""
    silence_clients()


@consumers.command("show")
@click.argument("address", required=False)
@click.option("--consumer-group", "group", type=CONSUMER_GROUP, help="Of this one only.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document for programs.")
@config_option
def consumers_show(address: str | None, group: str | None, as_json: bool, config: Path) -> int:
    """The lease of each partition of ADDRESS, or of all: holder, token, state, age, how far, and who waits."""
    settings = settings_with_addresses(config)
    from app.commands.consumers import show as consumers_module

    return consumers_module.show(settings, address, group, as_json)


@consumers.command("forget")
@click.argument("name", type=CONSUMER_GROUP, metavar="GROUP")
@click.option(
    "--discard-redriven", is_flag=True, help="Also when redriven messages wait for it: nothing handles them."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_option
def consumers_forget(name: str, discard_redriven: bool, yes: bool, config: Path) -> int:
    """Delete the progress and the offsets of consumer GROUP, which has no consumers any more and is not coming back.

    Its dead letters stay. It refuses while redriven messages wait for GROUP. Exit code 1: nothing is kept of such a group.
    """
    settings = settings_with_addresses(config)
    from app.commands.consumers.forget import forget

    return forget(settings, name, yes=yes, discard_redriven=discard_redriven)

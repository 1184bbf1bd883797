"""``ringfence groups``: options, and which function runs."""

from pathlib import Path

import click

from ringfence_kafka.process.command_line import (
    CONSUMER_GROUP,
    config_option,
    settings_with_addresses,
    silence_clients,
)


@click.group()
def groups() -> None:
    """Look at message groups and how far a consumer group is in them."""
    silence_clients()


_consumer_group = click.option(
    "--consumer-group", "group", type=CONSUMER_GROUP, required=True, help="Whose progress."
)


@groups.command("show")
@click.argument("address")
@_consumer_group
@click.option("--json", "as_json", is_flag=True, help="One JSON document for programs.")
@config_option
def groups_show(address: str, group: str, as_json: bool, config: Path) -> int:
    """Groups of ADDRESS with messages that are not finished: depth, acquired, owner, age of the first."""
    settings = settings_with_addresses(config)
    from app.commands.groups import show as groups_module

    return groups_module.show(settings, address, group, as_json)


_to_dlq = click.option("--to-dlq", "letters", is_flag=True, help="Send them to the dead letters.")
_yes = click.option("--yes", is_flag=True, help="Do not ask.")


@groups.command("purge")
@click.argument("address")
@click.argument("name", metavar="GROUP")
@_consumer_group
@_to_dlq
@_yes
@config_option
def groups_purge(address: str, name: str, group: str, letters: bool, yes: bool, config: Path) -> int:
    """Drop all messages of GROUP at ADDRESS that are there now and no handler has; other consumer groups keep them.

    GROUP is text, or hex:... for other bytes; text:... for a text that begins so.
    """
    settings = settings_with_addresses(config)
    from app.commands.groups import changes

    return changes.drop(settings, address, group, name, skip=False, yes=yes, letters=letters)


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
    from app.commands.groups import changes

    return changes.release(settings, address, group, name)


@groups.command("skip")
@click.argument("address")
@click.argument("name", metavar="GROUP")
@_consumer_group
@_to_dlq
@_yes
@config_option
def groups_skip(address: str, name: str, group: str, letters: bool, yes: bool, config: Path) -> int:
    """Drop the first message of GROUP at ADDRESS, such as one that fails again and again; the next one follows."""
    settings = settings_with_addresses(config)
    from app.commands.groups import changes

    return changes.drop(settings, address, group, name, skip=True, yes=yes, letters=letters)

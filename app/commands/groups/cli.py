"""``ringfence groups``: options, and which function runs."""

import click

from app.commands.options import JSON, YES, addresses_option, stacked
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.process.command_line import CONSUMER_GROUP, silence_clients


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
@JSON
@addresses_option
def groups_show(settings: Settings, address: str, group: str, as_json: bool) -> int:
    """Show groups of ADDRESS with unfinished messages: depth, acquired, owner, age of the first."""
    from app.commands.groups import show as groups_module

    return groups_module.show(settings, address, group, as_json)


_target = stacked(click.argument("address"), click.argument("name", metavar="GROUP"), _consumer_group)
_to_dlq = click.option("--to-dlq", "letters", is_flag=True, help="Send them to the dead letters.")


@groups.command("purge")
@_target
@_to_dlq
@YES
@addresses_option
def groups_purge(settings: Settings, address: str, name: str, group: str, letters: bool, yes: bool) -> int:
    """Drop all messages of GROUP at ADDRESS that are there now and no handler has; other consumer groups keep them.

    GROUP is text, or hex:... for other bytes; text:... for a text that begins so.
    """
    from app.commands.groups import changes

    return changes.drop(settings, address, group, name, skip=False, yes=yes, letters=letters)


@groups.command("release")
@_target
@addresses_option
def groups_release(settings: Settings, address: str, name: str, group: str) -> int:
    """End the handler that runs the first message of GROUP at ADDRESS: a failed attempt; the group rests for 10 s or more.

    A coroutine is cancelled. A thread cannot be: it keeps its group, and no handler's place. `groups skip` drops the message.
    """
    from app.commands.groups import changes

    return changes.release(settings, address, group, name)


@groups.command("skip")
@_target
@_to_dlq
@YES
@addresses_option
def groups_skip(settings: Settings, address: str, name: str, group: str, letters: bool, yes: bool) -> int:
    """Drop the first message of GROUP at ADDRESS, such as one that fails again and again; the next one follows."""
    from app.commands.groups import changes

    return changes.drop(settings, address, group, name, skip=True, yes=yes, letters=letters)

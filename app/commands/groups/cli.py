"""``ringfence groups``: options, and the function of each command."""

from typing import Final

import click

from app.commands.options import JSON, YES, addresses_option, stacked
from app.commands.verb_group import VerbGroup
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.process.command_line import CONSUMER_GROUP, silence_clients


@click.group(cls=VerbGroup)
def groups() -> None:
    """Look at message groups and how far a consumer group is in them."""
    silence_clients()


_consumer_group = click.option(
    "--consumer-group",
    "group",
    type=CONSUMER_GROUP,
    required=True,
    help="Consumer group whose progress counts.",
)


@groups.command("show")
@click.argument("address")
@click.argument("name", metavar="[GROUP]", required=False)
@click.option("--consumer-group", "group", type=CONSUMER_GROUP, help="Consumer group whose progress counts.")
@click.option("--messages", type=click.IntRange(min=1), help="With GROUP: number of messages; not given = 5.")
@JSON
@addresses_option
def groups_show(
    settings: Settings, address: str, name: str | None, group: str | None, messages: int | None, as_json: bool
) -> int:
    """Show which groups of ADDRESS wait for a consumer group, and why; or the next messages of GROUP.

    Without --consumer-group it lists the consumer groups. Exit code 1: no message of GROUP waits.
    """
    if name is None and messages is not None:
        raise click.UsageError(
            f"--messages is for one group: write ringfence groups show {address} GROUP --messages {messages}"
        )
    if group is None and name is not None:
        raise click.UsageError(
            "which messages come next depends on the consumer group: add --consumer-group NAME; "
            f"ringfence groups show {address} lists them"
        )
    if group is None:
        from app.commands.groups import overview

        return overview.show(settings, address, as_json)
    if name is None:
        from app.commands.groups import show as groups_module

        return groups_module.show(settings, address, group, as_json)
    from app.commands.groups.messages import show_messages

    return show_messages(settings, address, group, name, messages or 5, as_json=as_json)


_target = stacked(click.argument("address"), click.argument("name", metavar="GROUP"), _consumer_group)
_THE_GROUP: Final = "groups show {address} {name} --consumer-group={group}"
_to_dlq = click.option("--to-dlq", "letters", is_flag=True, help="Send them to the dead letters.")


@groups.command("purge", next_step=_THE_GROUP)
@_target
@_to_dlq
@YES
@addresses_option
def groups_purge(settings: Settings, address: str, name: str, group: str, letters: bool, yes: bool) -> int:
    """Drop all present messages of GROUP at ADDRESS that no handler runs; other consumer groups keep them.

    GROUP is text, or hex:... for other bytes; text:... for text that begins with one of these prefixes.
    """
    from app.commands.groups import changes

    return changes.drop(settings, address, group, name, skip=False, yes=yes, letters=letters)


@groups.command("release", next_step=_THE_GROUP)
@_target
@addresses_option
def groups_release(settings: Settings, address: str, name: str, group: str) -> int:
    """End the handler of GROUP's first message at ADDRESS, as a failed attempt; the group pauses for 10 s or more.

    A coroutine is cancelled. A thread cannot be: its group waits for it, but it no longer counts as a running handler. `groups skip` drops the message.
    A parked message whose dead letter is gone is tried again.
    """
    from app.commands.groups import changes

    return changes.release(settings, address, group, name)


@groups.command("skip", next_step=_THE_GROUP)
@_target
@_to_dlq
@YES
@addresses_option
def groups_skip(settings: Settings, address: str, name: str, group: str, letters: bool, yes: bool) -> int:
    """Drop the first message of GROUP at ADDRESS, such as one that fails again and again; the next one follows."""
    from app.commands.groups import changes

    return changes.drop(settings, address, group, name, skip=True, yes=yes, letters=letters)

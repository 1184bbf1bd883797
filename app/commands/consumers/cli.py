"""``ringfence consumers``: options, and the function of each command."""

import click

from app.commands.options import JSON, YES, addresses_option
from app.commands.verb_group import VerbGroup
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.process.command_line import CONSUMER_GROUP, silence_clients


@click.group(cls=VerbGroup)
def consumers() -> None:
    """Show who consumes each partition, and forget groups that are gone."""
    silence_clients()


@consumers.command("show", next_step="groups show {address}")
@click.argument("address", required=False)
@click.option("--consumer-group", "group", type=CONSUMER_GROUP, help="Only this consumer group.")
@JSON
@addresses_option
def consumers_show(settings: Settings, address: str | None, group: str | None, as_json: bool) -> int:
    """Show the lease of each partition of ADDRESS, or of all: consumer, token, state, age, progress, and who waits."""
    from app.commands.consumers import show as consumers_module

    return consumers_module.show(settings, address, group, as_json)


@consumers.command("forget", next_step="consumers show")
@click.argument("name", type=CONSUMER_GROUP, metavar="GROUP")
@click.option(
    "--discard-redriven",
    is_flag=True,
    help="Forget it even if redriven messages wait for it; they are discarded.",
)
@YES
@addresses_option
def consumers_forget(settings: Settings, name: str, discard_redriven: bool, yes: bool) -> int:
    """Delete the progress, the offsets and the states of a consumer GROUP that will not return.

    Its dead letters stay. It refuses while redriven messages wait for GROUP. A later consumer of that name has token 1, and addresses drop what
    it sends again for the same messages: use another name to handle everything again. Exit code 1: no such group is known.
    """
    from app.commands.consumers.forget import forget

    return forget(settings, name, yes=yes, discard_redriven=discard_redriven)

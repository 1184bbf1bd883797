"""``ringfence topics``: options, and the function of each command."""

from typing import Any

import click

from app.commands.options import DRY_RUN_OBSTACLES, JSON, YES, addresses_option
from app.commands.verb_group import VerbGroup
from ringfence_kafka.config.addresses import MAX_PARTITIONS
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.process.command_line import silence_clients


@click.group(cls=VerbGroup)
def topics() -> None:
    """Create or verify the topics that the configuration needs."""
    silence_clients()


@topics.command("create", next_step="worker")
@click.option("--dry-run", is_flag=True, help="Create nothing; show what would be created.")
@JSON
@addresses_option
def topics_create(settings: Settings, dry_run: bool, as_json: bool) -> int:
    """Create what is missing; existing topics are left as they are.

    Outputs of an existing input get its partition count, its retention, and room for its largest messages.
    """
    from app.commands.topics import topics as topics_module

    return topics_module.create(settings, dry_run=dry_run, as_json=as_json)


@topics.command("check", next_step="worker")
@JSON
@addresses_option
def topics_check(settings: Settings, as_json: bool) -> int:
    """Verify all topics: a line for each problem, with the correction. Exit code 1 if there is one; notes stop nothing."""
    from app.commands.topics import topics as topics_module

    return topics_module.check(settings, as_json=as_json)


@topics.command("grow", next_step="worker")
@click.argument("address")
@click.option(
    "--partitions",
    type=click.IntRange(1, MAX_PARTITIONS),
    required=True,
    help="New number of partitions, a multiple of the number at the start.",
)
@click.option(
    "--despite-backlog",
    is_flag=True,
    help="Grow even if messages are not judged; later ones of a group may overtake them.",
)
@DRY_RUN_OBSTACLES
@YES
@JSON
@addresses_option
def topics_grow(settings: Settings, address: str, **options: Any) -> int:
    """Give the input of ADDRESS more partitions, and copy IDs to its new lanes.

    Stop producers and bridges, let workers reach a lag of 0, and stop them. A second run continues where the first ended.

    For an address that sets lanes, only the input gets partitions, and producers and workers may run. Its count stays
    a multiple of lanes.

    With --dry-run workers may run. Exit code 1 then: something prevents it.
    """
    from app.commands.topics import grow as grow_module

    return grow_module.grow(settings, address, **options)

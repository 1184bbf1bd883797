"""``ringfence rings``: options, and the function of each command."""

from typing import Any

import click

from app.commands.options import DRY_RUN_OBSTACLES, JSON, YES, addresses_option
from app.commands.verb_group import VerbGroup
from ringfence_kafka.config.addresses import MAX_PARTITIONS
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.process.command_line import silence_clients


@click.group(cls=VerbGroup)
def rings() -> None:
    """Look at the rings of duplicate IDs."""
    silence_clients()


@rings.command("show", next_step="rings find {address} ID")
@click.argument("address", required=False)
@JSON
@addresses_option
def rings_show(settings: Settings, address: str | None, as_json: bool) -> int:
    """Show size, capacity, oldest and newest ID of each lane's ring, of ADDRESS or of all.

    BRIDGE.ADDRESS shows what has come over bridges: source, where it arrived, floor, and how many offsets above it.
    """
    from app.commands.rings import hop_memory
    from app.commands.rings import show as rings_module

    if address is not None and (bridged := hop_memory.address_of(settings, address)) is not None:
        return hop_memory.show(settings, bridged, as_json)
    return rings_module.show(settings, address, as_json)


@rings.command("find")
@click.argument("address")
@click.argument("identifier", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--of",
    metavar="OTHER",
    help="ID belongs to address OTHER, for which a transaction of ADDRESS had a part.",
)
@JSON
@addresses_option
def rings_find(
    settings: Settings, address: str, identifier: tuple[str, ...], of: str | None, as_json: bool
) -> int:
    """Show whether ADDRESS knows ID, and where its original is. Exit code 1: it is not known.

    ID is text, or hex:… or base64:… for other bytes, or digest:… as `rings show` names a long one; text:… for a text
    that begins so. An ID of several parts is given part by part, in the order of duplicate_id_from. With BRIDGE.ADDRESS it is a hop, <bridge>/<ID of its source topic>/<partition>/<offset>: has it come?
    """
    from app.commands.rings import find, hop_memory

    if (bridged := hop_memory.address_of(settings, address)) is not None:
        if of is not None or len(identifier) > 1:
            raise click.UsageError(
                "a hop is one argument, without --of: <bridge>/<ID of its source topic>/<partition>/<offset>"
            )
        return hop_memory.find(settings, bridged, identifier[0], as_json)
    return find.find(settings, address, identifier, as_json, of)


@rings.command("clear", next_step="rings show {address}")
@click.argument("address")
@click.option(
    "--despite-lag", is_flag=True, help="Clear BRIDGE.ADDRESS even if lanes have not judged all messages."
)
@YES
@addresses_option
def rings_clear(settings: Settings, address: str, despite_lag: bool, yes: bool) -> int:
    """Forget all IDs of ADDRESS. Running workers notice it at their next message; later resends are accepted.

    BRIDGE.ADDRESS: forget what bridges sent instead, when lanes have judged the whole input. IDs stay known.
    """
    from app.commands.rings import clear

    return clear.clear(settings, address, despite_lag=despite_lag, yes=yes)


@rings.command("adopt", next_step="worker")
@click.argument("address")
@YES
@addresses_option
def rings_adopt(settings: Settings, address: str, yes: bool) -> int:
    """Give the lanes of ADDRESS the rules of this file: the ID, the group and the home of a message.

    Stop all workers first. A worker whose file has other rules than a lane does not open it, and names the difference. Rings forget their IDs
    if an old ID may equal the new ID of another message. It can be run again.
    """
    from app.commands.rings import adopt

    return adopt.adopt(settings, address, yes=yes)


@rings.command("regroup", next_step="worker")
@click.argument("address")
@click.option(
    "--lanes",
    type=click.IntRange(0, MAX_PARTITIONS),
    required=True,
    help="New number of lanes; 0 = a lane for each partition.",
)
@DRY_RUN_OBSTACLES
@YES
@JSON
@addresses_option
def rings_regroup(settings: Settings, address: str, **options: Any) -> int:
    """Rewrite the rings of ADDRESS for another number of lanes. Run it before workers start with another value of lanes.

    A lane gets the IDs of all former lanes whose partitions it owns, and the newest id_cache_size stay; where a lane is divided, each new one gets
    all of them. Offsets and what came over bridges move along.

    Let workers judge forwarded records, and stop them. A second run continues where the first ended; until its end no worker opens a lane.

    With --dry-run workers may run. Exit code 1 then: something prevents it.
    """
    from app.commands.rings import regroup

    return regroup.regroup(settings, address, **options)

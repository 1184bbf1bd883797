"""``ringfence rings show`` and ``find`` with ``BRIDGE.<address>``: hop memories in the changelog."""

import asyncio
import json

import click
from rich.table import Table

from app.commands.rings import show as rings
from app.commands.rings.find import IdFormatError
from conf.terminal import print_table
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.process.step_progress import reading
from ringfence_kafka.protocol import hop, wire_names
from tables.codec import Route
from tables.hops import OFFSETS_MAX, Held, HopMemory
from tables.restore import Restore


def address_of(settings: Settings, name: str) -> AddressSettings | None:
    """Return the address whose hop memory has this name; None = the name is an address.

    Raises:
        ConfigurationError: The address does not exist.
    """
    if not name.startswith(wire_names.HOP_MEMORY):
        return None
    try:
        return settings.configured(name.removeprefix(wire_names.HOP_MEMORY))
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from error


def show(settings: Settings, address: AddressSettings, as_json: bool) -> int:
    """Print the hop memories of an address."""
    name = wire_names.HOP_MEMORY + address.name
    with reading(name):
        routes = asyncio.run(_routes(settings, address))
    found = [
        {
            "lane": lane,
            "source": hop.encode_source(route.source).decode(),
            "arrived": f"{address.input_topic}/{route.arrived}",
            "floor": held.floor,
            "above": len(held.above),
            "highest": held.above[-1] if held.above else None,
        }
        for lane, route, held in routes
    ]
    if as_json:
        click.echo(json.dumps({"addresses": {name: found}}, indent=2))
        return 0
    if not found:
        click.echo(f"{name}: nothing has come over a bridge{_unless(address)}")
        return 0
    table = Table("lane", "source", "arrived in", "floor", "above", "highest")
    for item in found:
        cells = item | {"above": f"{item['above']:,}"}
        table.add_row(*("" if cell is None else str(cell) for cell in cells.values()))
    print_table(table)
    return 0


def find(settings: Settings, address: AddressSettings, text: str, as_json: bool) -> int:
    """Print whether a hop is known, and why; return 0 if it is known, else 1.

    Raises:
        IdFormatError: The text does not name a hop.
    """
    wanted = hop.decode(text.encode(errors="surrogateescape"))
    if wanted is None:
        raise IdFormatError(
            f"{text!r} is not a hop: write <bridge>/<ID of its source topic>/<partition>/<offset>, as "
            f"`rings show` names the source and {wire_names.HEADER_HOP} has it"
        )
    name = wire_names.HOP_MEMORY + address.name
    with reading(name):
        routes = asyncio.run(_routes(settings, address))
    found = [
        {
            "lane": lane,
            "arrived": f"{address.input_topic}/{route.arrived}",
            "floor": held.floor,
            "below": wanted.offset < held.floor,
        }
        for lane, route, held in routes
        if route.source == wanted.source and (wanted.offset < held.floor or wanted.offset in held)
    ]
    if as_json:
        click.echo(json.dumps({"known": bool(found), "lanes": found}, indent=2))
        return 0 if found else 1
    for item in found:
        why = f"below {item['floor']}, which its bridge has confirmed" if item["below"] else "it came"
        click.echo(f"known  lane {item['lane']}  where it arrives in {item['arrived']}: {why}")
    if not found:
        click.echo(
            f"not known  {text} in {name}: it never came{_unless(address)}, or was forgotten among more than "
            f"{min(address.ring_capacity, OFFSETS_MAX)} that nothing confirmed"
        )
    return 0 if found else 1


def _unless(address: AddressSettings) -> str:
    kept = ""
    if not address.id_cache_size:
        kept = ", or no lane looks: id_cache_size = 0"
    elif not address.persist_id_cache:
        kept = ", or only workers' memory has it: persist_id_cache = false"
    return f"{kept}, or it was cleared"


async def _routes(settings: Settings, address: AddressSettings) -> list[tuple[str, Route, Held]]:
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        restored = await rings.snapshots(settings, address, cluster)
    return [
        (view.lane, *item)
        for view, restore in restored
        for item in sorted(_memory(address, restore).routes.items())
    ]


def _memory(address: AddressSettings, restore: Restore) -> HopMemory:
    """Return the memory of a lane with this configuration, empty if the ring is off or in memory only."""
    is_persistent = address.id_cache_size and address.persist_id_cache
    return HopMemory.restored(address.ring_capacity, restore.hops.items() if is_persistent else ())

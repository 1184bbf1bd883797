"""``ringfence rings show`` and ``find`` with ``BRIDGE.<address>``: what has come over bridges, read from the changelog."""

import asyncio
import json
from dataclasses import asdict, dataclass

import click
from rich.table import Table

from app.commands.rings import show as rings
from conf.terminal import tell
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import ConfigurationError, RingfenceError
from ringfence_kafka.process.step_progress import reading
from ringfence_kafka.protocol import hop, wire_names
from ringfence_kafka.protocol.hop import Hop
from tables.codec import Route
from tables.hops import OFFSETS_MAX, Held, HopMemory
from tables.restore import Restore


class HopFormatError(RingfenceError):
    """What is no hop of a bridge."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What one lane remembers of one way: of what a bridge brings from one source partition into one input partition."""

    lane: str
    source: str
    """``<bridge>/<topic's ID>/<partition>``."""
    arrived: str
    """``<topic>/<partition>`` of the input that they came into."""
    floor: int
    """Offsets of the source below are known."""
    above: int
    """How many offsets at and above the floor are known."""
    highest: int | None
    """Of these."""


def address_of(settings: Settings, name: str) -> AddressSettings | None:
    """The address whose hop memory has this name; None = it is no such name. An address that is itself named so comes first.

    Raises:
        ConfigurationError: there is no such address.
    """
    if not name.startswith(wire_names.HOP_MEMORY) or any(
        address.name == name for address in settings.addresses
    ):
        return None
    try:
        return settings.configured(name.removeprefix(wire_names.HOP_MEMORY))
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from error


def show(settings: Settings, address: AddressSettings, as_json: bool) -> int:
    """Print what has come over bridges into an address.

    Raises:
        MissingTopicError: there is no changelog.
        FormatError: the changelog is of a later version.
        BrokerUnavailableError: nobody answers.
    """
    name = wire_names.HOP_MEMORY + address.name
    with reading(name):
        found = [_remembered(address, *item) for item in asyncio.run(_ways(settings, address))]
    if as_json:
        click.echo(json.dumps({"addresses": {name: [asdict(remembered) for remembered in found]}}, indent=2))
        return 0
    table = Table("lane", "source", "arrived in", "floor", "above", "highest")
    for remembered in found:
        highest = "" if remembered.highest is None else f"{remembered.highest}"
        table.add_row(
            remembered.lane,
            remembered.source,
            remembered.arrived,
            f"{remembered.floor}",
            f"{remembered.above:,}",
            highest,
        )
    if found:
        tell(table)
    else:
        click.echo(f"{name}: nothing has come over a bridge{_unless(address)}")
    return 0


def find(settings: Settings, address: AddressSettings, text: str, as_json: bool) -> int:
    """Say whether a hop is known, and by what.

    Returns:
        0 known, 1 not known.

    Raises:
        HopFormatError: ``text`` is none.
        MissingTopicError: there is no changelog.
    """
    wanted = parse(text)
    name = wire_names.HOP_MEMORY + address.name
    found = []
    with reading(name):
        ways = asyncio.run(_ways(settings, address))
    for lane, way, held in ways:
        below = wanted.offset < held.floor
        if way.source == wanted.source and (below or wanted.offset in held):
            found.append((_remembered(address, lane, way, held), below))
    if as_json:
        known = [
            {
                "lane": remembered.lane,
                "arrived": remembered.arrived,
                "floor": remembered.floor,
                "below": below,
            }
            for remembered, below in found
        ]
        click.echo(json.dumps({"known": bool(found), "lanes": known}, indent=2))
        return 0 if found else 1
    for remembered, below in found:
        why = f"below {remembered.floor}, which its bridge has confirmed" if below else "it came"
        click.echo(f"known  lane {remembered.lane}  where it arrives in {remembered.arrived}: {why}")
    if not found:
        click.echo(
            f"not known  {text} in {name}: it never came{_unless(address)}, or was forgotten among more than "
            f"{min(address.id_cache_size, OFFSETS_MAX)} that nothing confirmed"
        )
    return 0 if found else 1


def _unless(address: AddressSettings) -> str:
    """Why nobody may know, though it came."""
    kept = ""
    if not address.id_cache_size:
        kept = ", or no lane looks: id_cache_size = 0"
    elif not address.persist_id_cache:
        kept = ", or only workers' memory has it: persist_id_cache = false"
    return f"{kept}, or it was cleared"


def parse(text: str) -> Hop:
    """A hop as it stands in a header.

    Raises:
        HopFormatError: it is none.
    """
    found = hop.decode(text.encode(errors="surrogateescape"))
    if found is None:
        raise HopFormatError(
            f"{text!r} is no hop: write <bridge>/<ID of its source topic>/<partition>/<offset>, as `rings show` names the source "
            f"and {wire_names.HEADER_HOP} has it"
        )
    return found


async def _ways(settings: Settings, address: AddressSettings) -> list[tuple[str, Route, Held]]:
    """Of each lane, in order."""
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        restored = await rings.snapshots(settings, address, cluster)
    return [
        (wire_names.lane_name(address.name, number), *item)
        for number, restore in enumerate(restored)
        for item in sorted(_memory(address, restore).ways.items())
    ]


def _memory(address: AddressSettings, restore: Restore) -> HopMemory:
    """As a lane of this configuration has it: what was written down before it was off, or in memory only, nobody looks at."""
    looked_at = address.id_cache_size and address.persist_id_cache
    return HopMemory.restored(address.id_cache_size, restore.hops.items() if looked_at else ())


def _remembered(address: AddressSettings, lane: str, way: Route, held: Held) -> Remembered:
    return Remembered(
        lane,
        hop.encode_source(way.source).decode(),
        f"{address.input_topic}/{way.arrived}",
        held.floor,
        len(held.above),
        held.above[-1] if held.above else None,
    )

"""``ringfence verdict``: the verdict on the message with an ID."""

import asyncio
import json
from collections.abc import Sequence
from operator import attrgetter, itemgetter
from typing import Any

import click

from agents.decision.ids_and_groups import IdReader
from app.commands.options import JSON, addresses_option
from app.commands.repair.records import parse
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.escaping import moment, printable
from ringfence_kafka.process.command_line import silence_clients
from ringfence_kafka.process.step_progress import reading
from ringfence_kafka.readers.log_reader import LogReader


@click.command()
@click.argument("address")
@click.argument("identifier", metavar="ID...", nargs=-1, required=True)
@JSON
@addresses_option
def verdict(settings: Settings, address: str, identifier: tuple[str, ...], as_json: bool) -> int:
    """Show the verdict on the message with ID at ADDRESS. Exit code 1: it is not known as accepted.

    ACCEPTED names the message that counts, however often it was sent: its place in the input, and its time. An ID that was accepted
    in several lanes, or with several values, has a line for each message, the last one at the end. QUARANTINED names the last
    refused one, and why. UNKNOWN: no ring knows ID, and quarantine has no message with it.

    ID is written as for `rings find`.
    """
    from app.commands.rings.find import parse_id, require_parts

    silence_clients()
    owner, encoded_id = settings.configured(address), parse_id(identifier)
    require_parts(owner, identifier)
    with reading(f"the rings of {owner.name}"):
        found = asyncio.run(_find(settings, owner, encoded_id))
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _print(found, " ".join(identifier), settings, owner)
    return 0 if found["verdict"] == "ACCEPTED" else 1


def _print(found: dict[str, Any], identifier: str, settings: Settings, address: AddressSettings) -> None:
    from app.commands.rings.find import part_hint

    match found["verdict"]:
        case "ACCEPTED":
            for item in found["acceptances"]:
                click.echo(f"ACCEPTED  {item['source']}  {moment(item['timestamp'])}  lane {item['lane']}")
            if (lanes := len({item["lane"] for item in found["acceptances"]})) > 1:
                click.echo(
                    f"note   {lanes} lanes accepted it, because it arrived with different groups: with "
                    "lanes = 1 one ring knows all IDs of an address",
                    err=True,
                )
        case "QUARANTINED":
            click.echo(f"QUARANTINED  {found['source']}  {printable(found['reason'])}")
        case _:
            waiting = found["waiting"]
            rest = "; all of the input is judged"
            if waiting:
                rest = f"; {waiting:,} offsets of the input are not judged, and it may be among them"
            if not (address.persist_id_cache and address.id_cache_size):
                rest += "; with persist_id_cache = false or id_cache_size = 0 no ID can be found"
            click.echo(
                f"UNKNOWN  {identifier} in {address.name}: never sent, or overwritten in its ring, or cleared{rest}"
                f"{part_hint(settings, address)}"
            )


async def _find(settings: Settings, address: AddressSettings, encoded_id: bytes) -> dict[str, Any]:
    from app.commands.rings import find, show

    async with Cluster(settings.kafka, settings.app.id) as cluster:
        snapshots = await show.snapshots(settings, address, cluster)
        known = find.entries(address, encoded_id, snapshots)
        if known:
            kept = ("source", "timestamp", "lane")
            acceptances = [
                {key: item[key] for key in kept} for item in sorted(known, key=itemgetter("timestamp"))
            ]
            return {"verdict": "ACCEPTED", **acceptances[-1], "acceptances": acceptances}
        refused = await _quarantined(settings, address, cluster, encoded_id)
        if refused is not None:
            return {"verdict": "QUARANTINED", **refused}
        return {"verdict": "UNKNOWN", "waiting": await _waiting(address, cluster, snapshots)}


async def _quarantined(
    settings: Settings, address: AddressSettings, cluster: Cluster, encoded_id: bytes
) -> dict[str, str] | None:
    """Return source and reason of the last quarantined message with an ID; None = no such message."""
    topic = address.quarantine_topic
    counts = await cluster.topics.partition_counts([topic])
    reader, ids = LogReader(settings.kafka), IdReader(address).ids
    found: list[Any] = []

    async def take(records: Sequence[Any]) -> None:
        pairs = zip(records, ids(records)[0], strict=True)
        found.extend(record for record, identity in pairs if identity == encoded_id)

    for partition in range(counts.get(topic, 0)):
        start = await cluster.offsets.log_start(topic, partition)
        end = await cluster.offsets.stable_end(topic, partition)
        await reader.read_range(topic, partition, start, end, take)
    if not found:
        return None
    last = parse(topic, max(found, key=attrgetter("timestamp")))
    return {"source": last.source, "reason": last.reason}


async def _waiting(address: AddressSettings, cluster: Cluster, snapshots: Sequence[Any]) -> int:
    """Return the number of unjudged input offsets, including transaction markers."""
    waiting = 0
    for view, restore in snapshots:
        for partition in view.partitions:
            begin = None if restore.meta is None else restore.meta.next_of(address.input_topic, partition)
            start = await cluster.offsets.log_start(address.input_topic, partition)
            end = await cluster.offsets.stable_end(address.input_topic, partition)
            waiting += max(0, end - max(begin or 0, start))
    return waiting

"""``ringfence rings find``."""

import asyncio
import base64
import binascii
import json
from dataclasses import asdict

import click

from app.verbs import rings
from ringfence_kafka import wire
from ringfence_kafka.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import RingfenceError
from tables import codec


class IdFormatError(RingfenceError):
    """An ID that cannot be read as what it says it is."""


def parse_id(text: str) -> bytes:
    """The stored form of an ID as a person writes it: text, ``hex:…``, ``base64:…``, ``digest:…``, ``text:…``.

    Raises:
        IdFormatError: what follows the prefix is not that.
    """
    kind, colon, rest = text.partition(":")
    try:
        match kind if colon else "":
            case "hex":
                return codec.encode_id(bytes.fromhex(rest))
            case "base64":
                return codec.encode_id(base64.b64decode(rest, validate=True))
            case "digest":
                return codec.stored_digest(bytes.fromhex(rest))
            case "text":
                return codec.encode_id(rest.encode())
            case _:
                return codec.encode_id(text.encode())
    except (ValueError, binascii.Error) as error:
        raise IdFormatError(
            f"{text!r} is no {kind} ({error}): fix it, or write text:{text} if the ID itself begins so"
        ) from error


def find(settings: Settings, address: str, identifier: str, as_json: bool) -> int:
    """Say whether an ID is known, and where its original is.

    Returns:
        0 known, 1 not known.
    """
    found = asyncio.run(_find(settings, settings.configured(address), parse_id(identifier)))
    if as_json:
        click.echo(json.dumps({"known": bool(found), "lanes": found}, indent=2))
    for each in () if as_json else found:
        click.echo(f"known  lane {each['lane']}  original {each['source']}  timestamp {each['timestamp']} ms")
    if not found and not as_json:
        click.echo(f"not known  {identifier} in {address}: never accepted, or overwritten, or cleared")
    return 0 if found else 1


async def _find(settings: Settings, address: AddressSettings, encoded_id: bytes) -> list[dict[str, object]]:
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        restored = await rings.snapshots(settings, address, cluster)
    found: list[dict[str, object]] = []
    for number, restore in enumerate(restored):
        known = [slot for slot in rings.live_slots(restore) if slot.id == encoded_id]
        latest = rings.entry(address, max(known, key=lambda slot: slot.sequence, default=None))
        if latest is not None:
            found.append({"lane": wire.lane_name(address.name, number), **asdict(latest)})
    return found

"""``ringfence rings find``: looks up an ID in the rings of an address."""

import asyncio
import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any, Final

import click

from app.commands.rings import show
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.escaping import moment
from ringfence_kafka.process.step_progress import reading
from ringfence_kafka.protocol import stored_ids
from ringfence_kafka.protocol.duplicate_id import composed
from tables.codec import Slot
from tables.restore import Restore

_DIGEST_BYTES: Final = 32


class IdFormatError(RingfenceError):
    """The text of an ID does not have the form of its prefix."""


def parse_id(texts: Sequence[str]) -> bytes:
    """Return the stored form of an ID from parts: text, ``hex:…``, ``base64:…``, ``digest:…`` or ``text:…``.

    Surrogates stand for bytes of a command line that the locale cannot decode.

    Raises:
        IdFormatError: A text does not have the form of its prefix.
    """
    parts = [_parse_part(text) for text in texts]
    if len(parts) > 1:
        return stored_ids.encode_id(composed(parts))
    digest = texts[0].startswith("digest:")
    return stored_ids.stored_digest(parts[0]) if digest else stored_ids.encode_id(parts[0])


def _parse_part(text: str) -> bytes:
    kind, colon, rest = text.partition(":")
    try:
        match kind if colon else "":
            case "hex":
                return bytes.fromhex(rest)
            case "base64":
                return base64.b64decode(rest, validate=True)
            case "digest":
                digest = bytes.fromhex(rest)
                stored_ids.stored_digest(digest)
                return digest
            case "text":
                return rest.encode(errors="surrogateescape")
            case _:
                return text.encode(errors="surrogateescape")
    except (ValueError, binascii.Error) as error:
        raise IdFormatError(
            f"{text!r} is not {kind} ({error}): fix it, or write text:{text} if the ID itself begins with "
            "this prefix"
        ) from error


def find(
    settings: Settings, address: str, identifier: Sequence[str], as_json: bool, of: str | None = None
) -> int:
    """Print whether an ID is known, and the place of its original; return 0 if it is known, else 1.

    ``identifier`` is the whole ID or all its parts, see :func:`parse_id`. ``of`` is the address that the ID
    belongs to; None = ``address``.

    Raises:
        IdFormatError: A text does not have the form of its prefix, or the number of parts is wrong.
    """
    owner, encoded_id = settings.configured(address), parse_id(identifier)
    require_parts(owner if of is None else settings.configured(of), identifier)
    if of is not None and settings.configured(of).name != owner.name:
        encoded_id = stored_ids.foreign_id(of, encoded_id)
        if of not in owner.transaction_addresses:
            click.echo(
                f"note   {of} is not in transaction_addresses of {address}: no transaction of {address} may "
                "have parts for it; entries found here are older",
                err=True,
            )

    async def read() -> list[dict[str, Any]]:
        async with Cluster(settings.kafka, settings.app.id) as cluster:
            return entries(owner, encoded_id, await show.snapshots(settings, owner, cluster))

    with reading(f"the rings of {owner.name}"):
        found = asyncio.run(read())
    if as_json:
        click.echo(json.dumps({"known": bool(found), "lanes": found}, indent=2))
        return 0 if found else 1
    for item in found:
        click.echo(
            f"known  lane {item['lane']}  original {item['source']}  timestamp {moment(int(str(item['timestamp'])))}"
        )
    if not found:
        what, hint = " ".join(identifier) + (f" of {of}" if of else ""), ""
        if of is None:
            if owner.transaction_addresses:
                options = " or ".join(f"--of {name}" for name in owner.transaction_addresses)
                hint = f"; IDs of parts for other addresses are separate: {options}"
            hint += part_hint(settings, owner)
        click.echo(f"not known  {what} in {owner.name}: never accepted, or overwritten, or cleared{hint}")
    return 0 if found else 1


def require_parts(address: AddressSettings, identifier: Sequence[str]) -> None:
    """Check that the texts can be the ID of a message: the whole, or all of its parts.

    Raises:
        IdFormatError: They cannot.
    """
    if not all(map(_parse_part, identifier)):
        raise IdFormatError("an empty ID is the same as none: no ring holds it; name the ID of a message")
    given, forms = len(identifier), address.duplicate_id_from
    count = 1 if isinstance(forms, str) else len(forms)
    if given not in {1, count}:
        made = f"{count} parts, {', '.join(forms)}" if count > 1 else f"one part, {forms}"
        raise IdFormatError(
            f"{given} parts of an ID, and an ID of {address.name} has {made}; give each part, in this order, or the whole ID as "
            "'ringfence rings show' writes it"
        )
    if given != count:
        return
    for form, text in zip([forms] if isinstance(forms, str) else forms, identifier, strict=True):
        digest = text.startswith("digest:") if count == 1 else len(_parse_part(text)) == _DIGEST_BYTES
        if form == "value" and not digest:
            raise IdFormatError(
                f"{text!r} is not a digest, and an ID of this address has the digest of the value; write "
                "digest:HEX with the output of 'b2sum -l 256' for the value"
            )


def part_hint(settings: Settings, address: AddressSettings) -> str:
    """Return where IDs of an address's transaction parts are found; empty = no other address sends parts to it."""
    senders = [item.name for item in settings.addresses if address.name in item.transaction_addresses]
    commands = " or ".join(f"'ringfence rings find {sender} ID --of {address.name}'" for sender in senders)
    return f"; if it is the ID of a transaction's part: {commands}" if senders else ""


def slots_of(encoded_id: bytes, restore: Restore) -> list[Slot]:
    """Return the live slots of an ID, including its other values (``on_conflict = "accept"``)."""
    return [slot for slot in show.live_slots(restore) if stored_ids.without_value(slot.id) == encoded_id]


def entries(
    address: AddressSettings, encoded_id: bytes, restored: Iterable[tuple[Any, Restore]]
) -> list[dict[str, Any]]:
    """Return the messages with an ID that the lanes of an address accepted."""
    found: list[dict[str, Any]] = []
    for view, restore in restored:
        latest = {slot.id: slot for slot in sorted(slots_of(encoded_id, restore), key=attrgetter("sequence"))}
        found += [{"lane": view.lane, **asdict(show.entry(address, slot))} for slot in latest.values()]
    return found

"""``ringfence groups show ADDRESS GROUP``: the next messages of a group, read without asking consumers."""

import asyncio
import base64
import contextlib
import functools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import click

from app.commands.groups import show
from ringfence_client.handlers import group_names
from ringfence_client.handlers.message import Fence, MessageFactory
from ringfence_client.progress.progress_record import Progress
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.escaping import moment, printable
from ringfence_kafka.process.step_progress import reading
from ringfence_kafka.protocol.stored_ids import display_id, display_parts, encode_id
from ringfence_kafka.readers.log_reader import LogReader
from ringfence_kafka.wording import counted

SHOWN_MAX: Final = 200
"""Length limit of a printed value or header, in characters."""
NOTHING: Final = 1
"""Exit code if no message waits."""


@dataclass(frozen=True, slots=True)
class NextMessage:
    """Unfinished message."""

    partition: int
    offset: int
    timestamp: int
    duplicate_id: str | None
    attempts: int
    parked: bool
    headers: list[tuple[str, str | None]]
    value: str | None
    """Value as text, or ``base64:…`` for other bytes; None = a tombstone."""
    value_bytes: int


class _Enough(Exception):  # noqa: N818 - ends a reading
    """All wanted messages are read."""


def show_messages(
    settings: Settings, address: str, consumer_group: str, name: str, count: int, *, as_json: bool
) -> int:
    """Print the next ``count`` messages of a group in each partition, in order; return 0, or 1 if no message waits.

    Raises:
        MissingTopicError: The accepted topic does not exist.
        GroupNameError: The name is not valid.
    """
    found, key = settings.configured(address), group_names.parse(name)
    with reading(found.accepted_topic):
        messages = asyncio.run(_read(settings, found, consumer_group, key, count))
    if as_json:
        click.echo(json.dumps({"messages": list(map(asdict, messages))}, indent=2))
    elif messages:
        for message in messages:
            _print(message)
    else:
        group = group_names.in_sentence(key)
        click.echo(f"nothing  no message of {group} waits for {consumer_group} at {address}")
    return 0 if messages else NOTHING


async def _read(
    settings: Settings, address: AddressSettings, consumer_group: str, key: bytes, count: int
) -> list[NextMessage]:
    async with Cluster(settings.kafka, consumer_group) as cluster:
        await cluster.groups.await_coordinator()
        known = await show.progresses(settings, address, cluster)
        read_one = functools.partial(_next, settings, address, cluster, key=key, count=count)
        found = await show.of_each(known, read_one)
    return [message for messages in found for message in messages]


async def _next(
    settings: Settings,
    address: AddressSettings,
    cluster: Cluster,
    partition: int,
    known: Progress | None,
    *,
    key: bytes,
    count: int,
) -> list[NextMessage]:
    now = await show.read_position(cluster, address.accepted_topic, partition, known)
    waits, factory = show.waiting(now), MessageFactory(address)
    found: list[NextMessage] = []

    async def take(records: Sequence[Any]) -> None:
        for record in records:
            if record.key == key and waits(record):
                found.append(_message(address, factory, record, now.progress))
                if len(found) == count:
                    raise _Enough

    with contextlib.suppress(_Enough):
        topic = address.accepted_topic
        await LogReader(settings.kafka).read_range(topic, partition, now.first, now.end, take)
    return found


def _message(
    address: AddressSettings, factory: MessageFactory, record: Any, progress: Progress
) -> NextMessage:
    attempts = progress.attempts.get(record.offset, 0)
    message = factory.make(record, attempts, Fence(0))
    return NextMessage(
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        duplicate_id=None if message.duplicate_id is None else _id(address, message.duplicate_id),
        attempts=attempts,
        parked=record.offset in progress.blocked,
        headers=[(header, readable(value)) for header, value in message.headers],
        value=readable(record.value),
        value_bytes=len(record.value or b""),
    )


def _id(address: AddressSettings, value: bytes) -> str:
    forms, stored = address.duplicate_id_from, encode_id(value)
    parts = [] if isinstance(forms, str) else display_parts(stored, len(forms))
    return " ".join(parts) or display_id(stored)


def readable(value: bytes | None) -> str | None:
    """Return bytes as text, or as ``base64:…`` if they are not text."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(value).decode()}"


def _print(message: NextMessage) -> None:
    state = "  parked behind its dead letter" if message.parked else ""
    tried = f"  {counted(message.attempts, 'attempt')} so far" if message.attempts else ""
    place = f"{message.partition}/{message.offset}  {moment(message.timestamp)}"
    click.echo(f"{place}  ID {printable(message.duplicate_id or 'none')}{tried}{state}")
    for name, value in message.headers:
        click.echo(f"    {printable(name)}: {_short(value)}")
    size = "tombstone" if message.value is None else f"{message.value_bytes:,} bytes"
    click.echo(f"    ({size}) {_short(message.value)}")


def _short(text: str | None) -> str:
    if text is None:
        return "(none)"
    return printable(text[:SHOWN_MAX]) + ("… (--json has all)" if len(text) > SHOWN_MAX else "")

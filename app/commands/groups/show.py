"""``ringfence groups show``: the groups that wait for a consumer group.

It reads the progress topic and the accepted topic, so it works without consumers. Only the lease holder knows
which messages handlers run, so it is asked for that.
"""

import asyncio
import functools
import json
import shlex
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

import click
from rich.table import Table

from conf import terminal
from ringfence_client.handlers import group_names
from ringfence_client.progress import progress_record
from ringfence_client.progress.progress_record import Progress
from ringfence_client.progress.progress_topic import ProgressTopic
from ringfence_client.progress.resume_offset import Log, resume
from ringfence_client.progress.watermark import Watermark
from ringfence_client.web import group_rows
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_admin import NO_MEMBERS
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import MissingTopicError
from ringfence_kafka.groups.trusted_offsets import own_commit
from ringfence_kafka.http import probe_errors
from ringfence_kafka.http.auth import session
from ringfence_kafka.http.probe_errors import ProbeError
from ringfence_kafka.process.step_progress import reading
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.readers.log_reader import LogReader
from ringfence_kafka.wording import counted

ASK_LIMIT_S: Final = 5.0
"""Time limit for the web server of a lease holder, in seconds."""
PARALLEL: Final = 8
SHOWN_MAX: Final = 50
"""Number of rows in the table; ``--json`` has all."""
Found = TypeVar("Found")


@dataclass(slots=True)
class GroupRow:
    """One group in one partition."""

    partition: int
    group: str | None
    """Name of the group for commands; None = messages without a group."""
    group_hex: str | None
    """All bytes of the name in hex, for programs."""
    depth: int
    """Number of unfinished messages, including acquired ones."""
    acquired: int
    owner: str | None
    head_offset: int
    """Offset of its first unfinished message."""
    head_age_seconds: float
    redriven: list[int] = field(default_factory=list)
    """Offsets of finished messages that are redriven."""
    reason: str | None = None
    """Reason why its first message waits (:mod:`ringfence_client.web.group_rows`); None = no answer."""
    running_seconds: float | None = None
    retry_at: str | None = None
    attempts: int = 0
    """Number of attempts of its first message."""


@dataclass(slots=True)
class PartitionRow:
    """One partition of the accepted topic."""

    partition: int
    next: int
    """Offset below which every message is finished."""
    end: int
    unfinished: int
    holder: str | None
    web: str
    answered: bool
    """Whether the lease holder answered. If not, acquired messages are unknown."""
    unheard: ProbeError | None = None
    """Reason why it did not answer, if known."""


def show(settings: Settings, address: str, group: str, as_json: bool) -> int:
    """Print the waiting groups, the oldest first.

    Raises:
        MissingTopicError: A topic does not exist.
    """
    found = settings.configured(address)
    with reading(found.accepted_topic):
        partitions, groups, known = asyncio.run(_read(settings, found, group))
    if as_json:
        document = {"partitions": list(map(asdict, partitions)), "groups": list(map(asdict, groups))}
        click.echo(json.dumps(document, indent=2))
    else:
        _print(partitions, groups)
        if groups:
            name = shlex.join(
                ("groups", "show", address, groups[0].group or "GROUP", "--consumer-group", group)
            )
            click.echo(f"its next messages:\n  ringfence {name}")
    if not known:
        click.echo(
            f"not known  {group} has never consumed {address}: these messages wait for any new consumer "
            "group",
            err=True,
        )
    return 0


async def _read(
    settings: Settings, address: AddressSettings, group: str
) -> tuple[list[PartitionRow], list[GroupRow], bool]:
    async with Cluster(settings.kafka, group) as cluster:
        await cluster.groups.await_coordinator()
        idle = await cluster.groups.state() in NO_MEMBERS
        known = await progresses(settings, address, cluster)
        met = await is_known(address, cluster, known)
        read_one = functools.partial(_partition, settings, address, cluster, idle=idle)
        found = await of_each(known, read_one)
    rows = [row for _, groups in found for row in groups]
    return [row for row, _ in found], sorted(rows, key=lambda row: -row.head_age_seconds), met


async def of_each(
    known: Iterable[Progress | None], read: Callable[[int, Progress | None], Awaitable[Found]]
) -> list[Found]:
    """Read each partition with its progress record, a few at a time."""
    limit = asyncio.Semaphore(PARALLEL)

    async def read_one(partition: int, progress: Progress | None) -> Found:
        async with limit:
            return await read(partition, progress)

    return await asyncio.gather(*(read_one(number, item) for number, item in enumerate(known)))


async def is_known(address: AddressSettings, cluster: Cluster, known: Sequence[Progress | None]) -> bool:
    """Return whether the consumer group of ``cluster`` has consumed an address, or has members now.

    ``known`` is the result of :func:`progresses`. A committed offset counts too, because an operator may have
    set one.
    """
    if any(item is not None for item in known) or await cluster.groups.state() not in NO_MEMBERS:
        return True
    asked = (cluster.groups.committed_offset(address.accepted_topic, number) for number in range(len(known)))
    return any(item is not None for item in await asyncio.gather(*asked))


async def progresses(settings: Settings, address: AddressSettings, cluster: Cluster) -> list[Progress | None]:
    """Return the last progress record of each partition; None = it was never held.

    Raises:
        MissingTopicError: The accepted topic does not exist.
    """
    name = wire_names.progress_topic(settings.app.id)
    counts = await cluster.topics.partition_counts([address.accepted_topic, name])
    if address.accepted_topic not in counts:
        raise MissingTopicError(
            f"topic {address.accepted_topic} does not exist: run `ringfence topics create`"
        )
    keys = [
        progress_record.encode_key(cluster.group_id, address.accepted_topic, index)
        for index in range(counts[address.accepted_topic])
    ]
    if name not in counts:
        return [None for _ in keys]
    topic = ProgressTopic(cluster, settings.app.id)
    await topic.start()
    try:
        return list(await asyncio.gather(*(topic.latest(key) for key in keys)))
    finally:
        await topic.stop()


async def _partition(
    settings: Settings,
    address: AddressSettings,
    cluster: Cluster,
    partition: int,
    known: Progress | None,
    *,
    idle: bool,
) -> tuple[PartitionRow, list[GroupRow]]:
    topic = address.accepted_topic
    now = await read_position(cluster, topic, partition, known)
    rows = await unfinished(settings, topic, partition, now)
    held = None if known is None or known.released or idle else known.holder
    web = known.web if known is not None else ""
    live = await fetch_groups(settings, web) if held and web else None
    silent = live if isinstance(live, ProbeError) else None
    answered = isinstance(live, list)
    for waits in rows.values():
        waits.reason, waits.attempts = _recorded_reason(now.progress, waits.head_offset, bool(held))
    for item in live if isinstance(live, list) else ():
        row = rows.get(item["group_hex"])
        if row is not None and item["partition"] == partition:
            row.acquired, row.owner = item["acquired"], item["owner"]
            for name in ("reason", "running_seconds", "retry_at", "attempts"):
                setattr(row, name, item[name])
    depth = sum(row.depth for row in rows.values())
    return (
        PartitionRow(partition, now.progress.next, now.end, depth, held, web, answered, silent),
        list(rows.values()),
    )


def _recorded_reason(progress: Progress, head: int, held: bool) -> tuple[str | None, int]:
    """Return the reason from the progress record, and the number of attempts."""
    attempts = progress.attempts.get(head, 0)
    if head in progress.blocked:
        return group_rows.PARKED, attempts
    if not held:
        return group_rows.LEASE, attempts
    return group_rows.RETRY if head in progress.failures else None, attempts


class PartitionPosition(NamedTuple):
    """Progress of a consumer group in the present topic's partition."""

    progress: Progress
    topic_id: str
    start: int
    end: int
    """End for readers of committed data."""

    @property
    def first(self) -> int:
        """Offset below which no unfinished message lies."""
        return max(self.start, min((self.progress.next, *self.progress.again)))


def waiting(position: PartitionPosition) -> Callable[[Any], bool]:
    """Return a predicate that is true for unfinished records."""
    known = position.progress
    finished, again = Watermark(known.next, known.finished), frozenset(known.again)

    def waits(record: Any) -> bool:
        if record.offset in again:
            return bool(record.offset < position.end)
        done = finished.is_finished(record.offset) or record.offset in range(
            *known.purged.get(record.key, (0, 0))
        )
        return bool(not done and record.offset < position.end)

    return waits


async def read_position(
    cluster: Cluster, topic: str, partition: int, known: Progress | None
) -> PartitionPosition:
    """Return the progress in the present topic, which may be new, or have an offset set by an operator."""
    topic_id = (await cluster.topics.identity(topic)).topic_id
    start = await cluster.offsets.log_start(topic, partition)
    end = await cluster.offsets.stable_end(topic, partition)
    # Only a released or missing record may be overridden by a committed offset: a holder may have committed
    # since its record.
    if known is not None and not known.released and known.topic_id in {"", topic_id}:
        committed: int | None = known.next
    else:
        noted = await cluster.groups.committed(topic, partition)
        ours = noted if known is None else own_commit(noted)  # a foreign consumer's does not count
        committed = None if ours is None else ours.offset
    now = Log(topic_id, committed, start, await cluster.offsets.high_watermark(topic, partition))
    return PartitionPosition(resume(known, now).progress, topic_id, start, end)


async def unfinished(
    settings: Settings, topic: str, partition: int, position: PartitionPosition
) -> dict[str | None, GroupRow]:
    """Return the groups with unfinished messages by hex name, in the order of their first messages."""
    waits, again = waiting(position), frozenset(position.progress.again)
    rows: dict[str | None, GroupRow] = {}
    now = time.time() * 1000

    async def consume(records: Sequence[Any]) -> None:
        for record in records:
            key = record.key
            if not waits(record):
                continue
            row = rows.get(name := None if key is None else key.hex())
            if row is None:
                shown = None if key is None else group_names.shown(key)
                age = round(max(0.0, now - record.timestamp) / 1000, 3)
                row = rows[name] = GroupRow(partition, shown, name, 0, 0, None, record.offset, age)
            row.depth += 1
            if record.offset in again:
                row.redriven.append(record.offset)

    await LogReader(settings.kafka).read_range(topic, partition, position.first, position.end, consume)
    return rows


async def fetch_groups(settings: Settings, web: str) -> list[dict[str, Any]] | ProbeError | None:
    """Return the holder's list, or the reason why it was not readable; None = no answer."""
    async with session(settings.app, ASK_LIMIT_S) as asking:
        answer = await probe_errors.get(asking, settings.app, f"{web}/groups")
    if not isinstance(answer, dict):
        return answer
    return list(answer["groups"]) if "groups" in answer else None


def _why(row: GroupRow) -> str:
    tried = f", {counted(row.attempts, 'attempt')} so far" if row.attempts else ""
    match row.reason:
        case group_rows.RUNNING:
            seconds = "" if row.running_seconds is None else f" for {row.running_seconds:,.1f} s"
            return f"runs{seconds} in {row.owner}"
        case group_rows.RETRY:
            return f"failed, next attempt {f'at {row.retry_at}' if row.retry_at else 'soon'}{tried}"
        case group_rows.PARKED:
            return "parked behind its dead letter"
        case group_rows.WAITING:
            return f"for a handler{tried}"
        case group_rows.LEASE:
            return f"for a consumer that holds its partition{tried}"
        case _:
            return f"its consumer does not report why{tried}"


def _print(partitions: list[PartitionRow], groups: list[GroupRow]) -> None:
    console = terminal.console()
    table = Table(title=counted(len(groups), "group waits", "groups wait"))
    for column in ("group", "partition", "depth", "age", "why it waits"):
        table.add_column(column, justify="left" if column in {"group", "why it waits"} else "right")
    for row in groups[:SHOWN_MAX]:
        name = group_names.in_table(None if row.group_hex is None else bytes.fromhex(row.group_hex))
        numbers = str(row.partition), f"{row.depth:,}"
        table.add_row(name, *numbers, f"{row.head_age_seconds:,.1f} s", _why(row))
    terminal.print_table(table, console)
    if len(groups) > SHOWN_MAX:
        console.print(f"and {len(groups) - SHOWN_MAX:,} more: --json has all")
    for partition in partitions:
        holder = f"held by {partition.holder}" if partition.holder else "held by no consumer"
        if partition.holder and not partition.answered:
            holder += (
                f", whose web server does not answer ({partition.web or 'it has none'})"
                if partition.unheard is None
                else f"; of its web server at {partition.web}: {partition.unheard}"
            )
        console.print(
            f"partition {partition.partition}: {partition.unfinished:,} unfinished, {holder}", highlight=False
        )

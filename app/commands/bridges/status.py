"""``ringfence bridge status``: how far each bridge is, from what it has committed; no bridge is asked, so it works without any."""

import asyncio
import functools
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import click
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError
from rich.console import Console
from rich.table import Table

from agents.bridge.offsets import OffsetMetadata, decode, lost_end
from agents.bridge.plan import Plan, plans
from app.commands.bridges import removed_bridges
from conf import terminal
from ringfence_client.consumer.assignor import is_ours
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import BrokerUnavailableError, RingfenceError, said
from ringfence_kafka.escaping import printable, shortened
from ringfence_kafka.groups.descriptions import GroupDescription
from ringfence_kafka.groups.foreign_members import WAY_OUT, fault
from ringfence_kafka.groups.trusted_offsets import own_commit
from ringfence_kafka.process.step_progress import reading
from ringfence_kafka.protocol.hop import as_printed
from ringfence_kafka.wording import counted

NOT_WELL: Final = 1
TOLD_LIMIT_S: Final = 5.0
BEGIN_LIMIT_S: Final = 3.0
"""A bridge commits where it begins, before it sends anything; this is ample time for it."""
NOT_BEGUN: Final = "its bridge has the partition and cannot commit where it begins, so it forwards nothing: see the log of the bridge"
NOT_OURS: Final = "a foreign consumer committed the offset {offset} here: the bridge does not follow it, and continues where it was"
NOT_TOLD: Final = "its brokers do not tell where it ends: is its leader away?"


@dataclass(frozen=True, slots=True)
class Row:
    """One source partition of a bridge."""

    partition: int
    confirmed: int | None
    """Everything below is at the target; None = the bridge has not begun here."""
    lag: int | None
    """From there to the end that committed readers see; None = the source does not tell."""
    forwarded: int
    retried: int
    filtered: int
    quarantined: int
    gap_records: int
    error: str | None
    since: str | None
    """When that began, in UTC."""
    member: str | None
    """Who has the partition now; None = nobody, or the group is giving out partitions."""
    web: str | None
    recreated: bool = False
    """What was committed is of a topic of that name that was deleted."""
    rebalancing: bool = False
    """The group gives out its partitions at this moment."""
    returned: int = 0
    """Messages that had been at the target, or here: of those that were filtered, or forwarded all the same."""

    @property
    def standing(self) -> bool:
        """Whether somebody has to look."""
        return self.error is not None or self.abandoned

    @property
    def not_begun(self) -> bool:
        """Whether a member has the partition, messages wait, and nothing was ever committed."""
        return bool(self.lag) and self.member is not None and self.confirmed is None and self.error is None

    @property
    def abandoned(self) -> bool:
        """Whether messages wait and nobody forwards them."""
        return bool(self.lag) and self.member is None and not self.rebalancing


@dataclass(frozen=True, slots=True)
class Shown:
    """One bridge."""

    bridge: str
    group: str
    source_topic: str
    target_topic: str
    state: str = "unknown"
    """Of the consumer group, in Kafka's words."""
    members: list[str] = field(default_factory=list)
    partitions: list[Row] = field(default_factory=list)
    fault: str | None = None
    """Why nothing can be told of it."""
    foreign: list[str] = field(default_factory=list)
    """A line for each member of its group that is not Ringfence's."""


def show(settings: Settings, names: Sequence[str], as_json: bool) -> int:
    """Print all bridges, or those that are named.

    Returns:
        0 well; 1 something stands.

    Raises:
        ConfigurationError: a name is not known, or there are no bridges.
        BrokerUnavailableError: no source answers.
    """
    with reading("offsets of bridges"):
        found = asyncio.run(read(plans(settings, names)))
        left, untold = ([], []) if names else asyncio.run(removed_bridges.read(settings))
    for name in untold:
        click.echo(f"note: {printable(name)}", err=True)
    if all(shown.fault for shown in found):
        raise BrokerUnavailableError(
            "\n".join(dict.fromkeys(f"bridge {shown.bridge}: {shown.fault}" for shown in found))
        )
    if as_json:
        document = {
            "bridges": {shown.bridge: asdict(shown) for shown in found},
            "left": [asdict(item) for item in left],
        }
        click.echo(json.dumps(document, indent=2))
    else:
        _print(found)
        for one in left:
            click.echo(printable(f"{one.bridge}: {one.what}: {one.do}"))
    abandoned = any(item.read_by is None for item in left)
    stands = any(
        shown.fault or shown.foreign or any(row.standing for row in shown.partitions) for shown in found
    )
    return NOT_WELL if stands or abandoned else 0


async def read(wanted: Iterable[Plan]) -> list[Shown]:
    """As the sources tell it now."""
    return list(await asyncio.gather(*map(_one, wanted)))


async def _one(plan: Plan) -> Shown:
    try:
        async with Cluster(plan.source, plan.group) as cluster:
            shown = await _read(plan, cluster)
            if any(partition.not_begun for partition in shown.partitions):
                await asyncio.sleep(BEGIN_LIMIT_S)
                shown = await _read(plan, cluster)
            return replace(shown, partitions=[_with_fault(partition) for partition in shown.partitions])
    except TopicAuthorizationFailedError as error:
        fault = f"topic {error.args[0]}: this user may not see it: allow Describe on it"
    except RingfenceError as error:
        fault = " ".join(str(error).split())
    except (KafkaError, OSError, TimeoutError) as error:
        fault = f"the source does not answer: {said(error)}"
    return Shown(plan.name, plan.group, plan.source_topic, plan.target_topic, fault=fault)


async def _read(plan: Plan, cluster: Cluster) -> Shown:
    topic = plan.source_topic
    counts = await cluster.topics.partition_counts([topic])
    if topic not in counts:
        raise BrokerUnavailableError(
            f"{topic} does not exist at {plan.source.bootstrap_servers}: fix source_topic, or create it"
        )
    numbers = range(counts[topic])
    present = as_printed((await cluster.topics.identity(topic)).topic_id)
    committed = await asyncio.gather(*(cluster.groups.committed(topic, number) for number in numbers))
    places = [(topic, number) for number in numbers]
    ends, starts, marks = await asyncio.gather(
        cluster.offsets.known_stable_ends(places, TOLD_LIMIT_S),
        cluster.offsets.known_starts(places, TOLD_LIMIT_S),
        cluster.offsets.known_ends(places, TOLD_LIMIT_S),
    )
    group = (await cluster.groups.describe([plan.group]))[plan.group]
    rows = []
    for number, found in zip(numbers, committed, strict=True):
        note = OffsetMetadata() if found is None else decode(found.note) or OffsetMetadata()
        recreated = note.topic_id not in {"", present}
        confirmed = None if found is None else found.offset
        place = (topic, number)
        lag = None
        if found is not None and decode(found.note) is None and own_commit(found) is None:
            note = replace(note, error=NOT_OURS.format(offset=found.offset))
            confirmed = None
        if not all(place in item for item in (ends, starts, marks)):
            note = replace(note, error=note.error or NOT_TOLD)
        else:
            at = starts[place] if recreated or confirmed is None else max(starts[place], confirmed)
            if found is None and plan.start == "latest":
                at = ends[place]
            lag = max(0, ends[place] - at)
            if not note.error and not recreated and confirmed is not None and confirmed > marks[place]:
                reached = confirmed if note.topic_id else 0
                note = replace(note, error=lost_end(plan, number, marks[place], confirmed, reached))
        rows.append(_row(number, confirmed, lag, note, group, topic, recreated=recreated))
    foreign = [
        fault(plan.group, member)
        for member in await cluster.groups.foreign_members(functools.partial(is_ours, topic))
    ]
    return Shown(
        plan.name,
        plan.group,
        topic,
        plan.target_topic,
        group.state,
        sorted(group.members),
        rows,
        foreign=foreign,
    )


def _with_fault(row: Row) -> Row:
    """Name the fault of a bridge that cannot tell it itself: its errors travel in what it commits."""
    return replace(row, error=NOT_BEGUN) if row.not_begun else row


def _row(
    number: int,
    confirmed: int | None,
    lag: int | None,
    note: OffsetMetadata,
    group: GroupDescription,
    topic: str,
    *,
    recreated: bool,
) -> Row:
    return Row(
        partition=number,
        confirmed=confirmed,
        lag=lag,
        forwarded=note.forwarded,
        retried=note.retried,
        filtered=note.filtered,
        quarantined=note.quarantined,
        gap_records=note.gap_records,
        error=note.error or None,
        since=None
        if not note.since_ms
        else datetime.fromtimestamp(note.since_ms / 1000, UTC).isoformat(timespec="seconds"),
        member=group.assigned.get((topic, number)),
        web=note.web or None,
        recreated=recreated,
        rebalancing="REBALANC" in group.state,
        returned=note.returned,
    )


_WHOLE: Final = "--json has all"
_COLUMNS: Final = ("partition", "confirmed", "lag", "forwarded", "sent again", "filtered", "quarantined")


def _print(found: Sequence[Shown]) -> None:
    console = terminal.console()
    for shown in found:
        title = f"{shown.bridge}: {shown.source_topic} to {shown.target_topic}"
        if shown.fault:
            _say(console, f"{title}\n  FAULT  {shortened(shown.fault, _WHOLE)}")
            continue
        members = counted(len(shown.members), "member")
        terminal.tell(
            _table(f"{title} ({shown.state.lower().replace('_', ' ')}, {members})", shown.partitions), console
        )
        for text in standing(shown):
            _say(console, f"  {shortened(text, _WHOLE)}")


def standing(shown: Shown) -> list[str]:
    """What somebody has to look at, each once for all partitions that it concerns."""
    told: dict[str, list[int]] = {}
    foreign = [
        f"FAULT: {name}: messages that it reads are not forwarded until it has left: {WAY_OUT}"
        for name in shown.foreign
    ]
    for row in shown.partitions:
        if row.error:
            told.setdefault(f"FAULT{_since(row.since)}: {row.error}", []).append(row.partition)
        if row.abandoned:
            told.setdefault("NOBODY forwards it, and messages wait: run 'ringfence bridge'", []).append(
                row.partition
            )
        if row.gap_records:
            told.setdefault("GAP: retention deleted messages before they were forwarded", []).append(
                row.partition
            )
        if row.recreated:
            told.setdefault(
                "the topic was deleted and created again since: it begins at its start", []
            ).append(row.partition)
        if row.returned:
            told.setdefault(
                "messages came back to where they had been: bridges lead in a circle: stop one, or see 'returns' in docs/bridges.md",
                [],
            ).append(row.partition)
        if row.quarantined:
            told.setdefault(
                f"the target refused messages for good: see {shown.bridge}.quarantine there", []
            ).append(row.partition)
    return [
        *foreign,
        *(f"partition {', '.join(map(str, numbers))}: {text}" for text, numbers in told.items()),
    ]


def _since(since: str | None) -> str:
    return "" if since is None else f" since {since} ({_ago(since)})"


def _ago(since: str) -> str:
    seconds = max(0, round(time.time() - datetime.fromisoformat(since).timestamp()))
    if seconds < 120:
        return f"{seconds} s ago"
    return f"{seconds // 60} min ago" if seconds < 7_200 else f"{seconds // 3_600} h ago"


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def _table(title: str, rows: Iterable[Row]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for row in rows:
        figures: list[Any] = [row.lag, row.forwarded, row.retried, row.filtered, row.quarantined]
        confirmed = "not begun" if row.confirmed is None else f"{row.confirmed:,}"
        table.add_row(
            str(row.partition), confirmed, *("?" if figure is None else f"{figure:,}" for figure in figures)
        )
    return table

"""``ringfence consumers``: who holds which partition, since when, how far, and who waits for it.

The leases stand in the progress topic, and who is a member of a consumer group its coordinator knows: both are read here, and no
consumer is asked. So this works while consumers hang, and without any.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

import click
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError
from rich.table import Table

from conf import terminal
from ringfence_client.consumer.assignor import is_ours
from ringfence_client.progress import progress_record, progress_topic, record_parts
from ringfence_client.progress.progress_record import RELEASED, Progress, ProgressFormatError
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import MissingTopicError, PrerequisiteError
from ringfence_kafka.groups.descriptions import GroupDescription
from ringfence_kafka.groups.foreign_members import fault
from ringfence_kafka.process.step_progress import reading
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.wording import counted

NONE: Final = "none"
"""Nobody ever held it."""
UNREADABLE: Final = "unreadable"
NOT_WELL: Final = 1
TOLD_LIMIT_S: Final = 5.0

Place = tuple[str, str, int]
"""Consumer group, topic, partition."""


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """One partition for one consumer group."""

    consumer_group: str
    address: str | None
    """None = the configuration has no address of this accepted topic."""
    topic: str
    partition: int
    state: str
    """As in the record: held, draining, released; or none, unreadable."""
    holder: str | None
    """Who wrote the record; None = nobody has."""
    holder_is_member: bool | None
    """Whether the group has such a member now; without one its process is dead, stopped, cut off, or on its way out.
    None = it has released the partition, or there is no holder."""
    token: int
    age_seconds: float | None
    """Since the record's timestamp, by this machine's clock: for people. Consumers judge by their own clocks."""
    delivered: int
    acknowledged: int
    """Everything below is finished."""
    running: int
    """Delivered and not acknowledged."""
    lag: int | None
    """Offsets from what is acknowledged to the end that committed readers see, as Kafka counts them; None = not known."""
    waits: str | None
    """The member that the group has given the partition to, while another one has the lease."""
    web: str
    recreated: bool = False
    """The record is of a topic of that name that was deleted: nothing of the present one is delivered or acknowledged yet."""
    fault: str | None = None
    """Why the record cannot be read."""
    head_attempts: int = 0
    """How often the first unfinished message was begun."""
    failing_offset: int | None = None
    """Of the messages that handlers failed at and that are tried again, the one that fails for the longest; None = there is none."""
    failing_attempts: int = 0
    failing_since_ms: int | None = None
    blocked: int = 0
    """Messages that are not tried again, because their dead letters are written: their groups wait."""
    blocked_offset: int | None = None
    """The first of these; None = there is none."""
    waiting: int | None = None
    """Offsets of the lag that are not finished, and messages that are to be done again. Markers that nobody has read count too."""


class _Stored(NamedTuple):
    """A record as it was found."""

    progress: Progress | None
    timestamp_ms: int
    fault: str | None


class Found(NamedTuple):
    """What stands in the progress topic, and the groups that it names."""

    rows: list[LeaseRow]
    groups: dict[str, GroupDescription]
    faults: list[str]
    foreign: dict[str, list[str]]
    """By consumer group, a line for each member that is not Ringfence's; groups without are absent."""


def show(settings: Settings, address: str | None, group: str | None, as_json: bool) -> int:
    """Print a row a partition: of one address or of all, of one consumer group or of all that ever consumed.

    Returns:
        0 well; 1 the consumer group that was asked for is not known, or a record cannot be read.

    Raises:
        ConfigurationError: unknown address.
        PrerequisiteError: this user may not see a topic or a group.
        MissingTopicError: the accepted topic that was asked for does not exist.
        BrokerUnavailableError: nobody answers.
    """
    topic = None if address is None else settings.configured(address).accepted_topic
    try:
        with reading(wire_names.progress_topic(settings.app.id)):
            found = asyncio.run(read(settings, topic, group))
    except TopicAuthorizationFailedError as error:
        raise PrerequisiteError(
            f"topic {error.args[0]}: this user may not see it: allow Describe on it, and Read on "
            f"{wire_names.progress_topic(settings.app.id)}"
        ) from error
    if as_json:
        document = {
            "groups": {
                name: {
                    "state": group.state,
                    "members": sorted(group.members),
                    "foreign": found.foreign.get(name, []),
                }
                for name, group in found.groups.items()
            },
            "partitions": list(map(asdict, found.rows)),
            "faults": found.faults,
        }
        click.echo(json.dumps(document, indent=2))
    else:
        _print(found)
    strangers = [name for value in found.foreign.values() for name in value]
    for each in [*strangers, *found.faults]:
        click.echo(f"ringfence: {each}", err=True)
    if group and not found.rows:
        click.echo(
            f"nothing known  {group} never held a partition{f' of {address}' if address else ''}: the name may be another, or "
            f"app.id ({settings.app.id}); without --consumer-group all that is known is shown",
            err=True,
        )
        return NOT_WELL
    return NOT_WELL if found.faults or found.foreign else 0


async def read(
    settings: Settings, topic: str | None = None, group: str | None = None, *, partial: bool = False
) -> Found:
    """Of one accepted topic or of all, of one consumer group or of all.

    ``partial``: a consumer group that this user may not see is a fault, and the others are told; else it is an error.
    """
    async with Cluster(settings.kafka, group or settings.app.id) as cluster:
        kept = wire_names.progress_topic(settings.app.id)
        counts = await cluster.topics.partition_counts([kept] if topic is None else [kept, topic])
        if topic is not None and topic not in counts:
            raise MissingTopicError(f"topic {topic} does not exist: `ringfence topics create` makes it")
        stored, faults = await _stored(settings, cluster, kept, counts.get(kept, 0))
        repair = wire_names.repair_group(
            settings.app.id
        )  # nobody's lease: what `dlq` and `quarantine` have settled
        stored = {
            place: item
            for place, item in stored.items()
            if group in {None, place[0]} and topic in {None, place[1]} and place[0] != repair
        }
        names = {name for name, _, _ in stored} | _only(group)
        groups = await cluster.groups.describe(sorted(names), partial=partial)
        stored = {place: item for place, item in stored.items() if place[0] in groups}
        faults += [
            f"{name} is left out: this user may not see its members: allow Describe on that group"
            for name in sorted(names - groups.keys())
        ]
        addresses = {address.accepted_topic: address.name for address in settings.addresses}
        assigned = {(name, *item) for name, described in groups.items() for item in described.assigned}
        consumed = {
            (name, where)
            for name, where, _ in (*stored, *(item for item in assigned if item[1] in addresses))
            if topic in {None, where}
        }
        counts = (
            await cluster.topics.partition_counts(sorted({where for _, where in consumed}))
            if consumed
            else {}
        )
        places = sorted(
            {(name, where, index) for name, where in consumed for index in range(counts.get(where, 0))}
            | set(stored)
        )
        present = {(where, number) for _, where, number in places if number < counts.get(where, 0)}
        ends = await cluster.offsets.known_stable_ends(present, TOLD_LIMIT_S)
        identities = await cluster.topics.ids(sorted({where for where, _ in present}))
        old = {
            place: await cluster.offsets.log_start(*place[1:])
            for place, item in stored.items()
            if place[1:] in present and _is_of_another(item, identities[place[1]])
        }
        foreign = await _foreign(
            cluster, {name: [item for n, item, _ in places if n == name] for name in groups}
        )
        rows = [
            _row(
                place,
                addresses.get(place[1]),
                stored.get(place),
                groups[place[0]],
                ends.get(place[1:]),
                old.get(place),
            )
            for place in places
        ]
    faults += [
        f"{where}/{number}: its brokers do not tell where it ends: is its leader away?"
        for where, number in sorted(present - ends.keys())
    ]
    faults += [f"{row.consumer_group} {row.topic}/{row.partition}: {row.fault}" for row in rows if row.fault]
    return Found(rows, groups, faults, foreign)


async def _foreign(cluster: Cluster, topics: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """``topics``: by consumer group. Nothing of a group whose coordinator does not tell it."""

    async def ask(group: str) -> list[str]:
        def ours(user_data: bytes) -> bool:
            return any(is_ours(topic, user_data) for topic in topics[group])

        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            async with asyncio.timeout(TOLD_LIMIT_S):
                return [fault(group, member) for member in await cluster.groups.foreign_members(ours, group)]
        return []

    found = await asyncio.gather(*map(ask, topics))
    return {group: items for group, items in zip(topics, found, strict=True) if items}


def _is_of_another(stored: _Stored, topic_id: str) -> bool:
    """Whether a record is of a topic of that name that was deleted."""
    return stored.progress is not None and stored.progress.topic_id not in {"", topic_id}


def _only(name: str | None) -> set[str]:
    return set() if name is None else {name}


async def _stored(
    settings: Settings, cluster: Cluster, topic: str, partitions: int
) -> tuple[dict[Place, _Stored], list[str]]:
    """All leases; and what is wrong with records that name no place."""
    read = [progress_topic.read(settings.kafka, cluster, topic, index) for index in range(partitions)]
    found, faults = {}, []
    pairs = [(records, record) for records in await asyncio.gather(*read) for record in records.values()]
    for beside, each in pairs:
        if record_parts.is_key(each.key or b""):
            continue  # its head names it, or nobody does any more
        try:
            place = progress_record.decode_key(each.key or b"")
        except ProgressFormatError as error:
            faults.append(f"{topic}/{each.partition} offset {each.offset}: {error}: somebody else wrote it")
            continue
        try:
            found[place] = _Stored(progress_topic.decode(beside, each.key), each.timestamp, None)
        except ProgressFormatError as error:
            found[place] = _Stored(None, each.timestamp, str(error))
    return found, faults


def _row(
    place: Place,
    address: str | None,
    stored: _Stored | None,
    group: GroupDescription,
    end: int | None,
    recreated_from: int | None,
) -> LeaseRow:
    """``recreated_from``: where the log begins, if it is not the one that the record is of."""
    progress = (stored.progress if stored else None) or Progress(
        0, state=NONE if stored is None else UNREADABLE
    )
    name = progress.holder.rpartition("/")[0]
    assigned = group.assigned.get(place[1:])
    ours = assigned == name and not progress.released
    recreated = recreated_from is not None
    acknowledged = progress.next if recreated_from is None else recreated_from
    blocked = () if recreated else progress.blocked
    failures = {} if recreated else {k: v for k, v in progress.failures.items() if k not in blocked}
    failing = min(failures, key=lambda offset: failures[offset].since_ms, default=None)
    return LeaseRow(
        consumer_group=place[0],
        address=address,
        topic=place[1],
        partition=place[2],
        state=progress.state,
        holder=progress.holder or None,
        holder_is_member=None if progress.released or not progress.holder else name in group.members,
        token=progress.token,
        age_seconds=None if stored is None else round(max(0.0, time.time() - stored.timestamp_ms / 1000), 3),
        delivered=0 if recreated else progress.delivered,
        acknowledged=acknowledged,
        running=progress.running,
        lag=None if end is None or stored is None or stored.fault else max(0, end - acknowledged),
        waits=None if ours else assigned,
        web=progress.web,
        recreated=recreated,
        fault=stored.fault if stored else None,
        head_attempts=0 if recreated else progress.attempts.get(progress.next, 0),
        failing_offset=failing,
        failing_attempts=0 if failing is None else failures[failing].attempts,
        failing_since_ms=None if failing is None else failures[failing].since_ms,
        blocked=len(blocked),
        blocked_offset=min(blocked, default=None),
        waiting=None
        if end is None or stored is None or stored.fault
        else _waiting(progress, acknowledged, end, recreated=recreated),
    )


def _waiting(progress: Progress, acknowledged: int, end: int, *, recreated: bool) -> int:
    """Offsets that are not finished: handlers may finish later messages before the first one."""
    lag = max(0, end - acknowledged)
    if recreated:
        return lag
    finished = sum(max(0, min(last, end) - first) for first, last in progress.finished)
    return lag - finished + len(progress.again)


_COLUMNS: Final = ("partition", "state", "token", "age", "delivered", "acknowledged", "running", "lag")
"""What fits a terminal of 80 columns; names do not."""


def _print(found: Found) -> None:
    console = terminal.console()
    if not found.rows:
        console.print("no consumer has held a partition yet", highlight=False)
    for name, topic in sorted({(row.consumer_group, row.topic) for row in found.rows}):
        rows = [row for row in found.rows if (row.consumer_group, row.topic) == (name, topic)]
        group = found.groups[name]
        members = counted(len(group.members), "member")
        state = group.state.lower().replace("_", " ")
        terminal.tell(_table(f"{name} at {rows[0].address or topic} ({state}, {members})", rows), console)
        for row in rows:
            if text := _names(row):
                console.print(f"partition {row.partition}: {text}", highlight=False, soft_wrap=True)
    if any(row.holder_is_member is False for row in found.rows):
        console.print(
            "gone: the group has no such member; it is dead, stopped, cut off, or about to end. Who waits gets its partition "
            "when it has released it, or written nothing for --lease-timeout (--lease-idle where nothing runs).",
            highlight=False, soft_wrap=True,
        )  # fmt: skip


def _names(row: LeaseRow) -> str:
    """Who has it and who waits."""
    parts = []
    if row.holder and row.state != RELEASED:
        parts.append(f"held by {row.holder}{' (gone)' if row.holder_is_member is False else ''}")
    if row.recreated:
        parts.append("deleted and created again since: begins at its start")
    if row.waits:
        parts.append(f"{row.waits} waits")
    return ", ".join(parts)


def _table(title: str, rows: Iterable[LeaseRow]) -> Table:
    table = Table(title=title)
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column == "state" else "right")
    for row in rows:
        known = row.state not in {NONE, UNREADABLE}
        figures = (row.token, row.delivered, row.acknowledged, row.running)
        token, *others = (f"{figure:,}" if known else "" for figure in figures)
        age = "" if row.age_seconds is None else f"{row.age_seconds:,.1f} s"
        lag = "" if row.lag is None else f"{row.lag:,}"
        table.add_row(str(row.partition), row.state, token, age, *others, lag)
    return table

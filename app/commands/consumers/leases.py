"""Reads leases from the progress topic, and members from group coordinators, without asking consumers."""

import asyncio
import contextlib
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from aiokafka.errors import KafkaError

from ringfence_client.consumer.assignor import is_ours
from ringfence_client.progress import progress_record, progress_topic, record_parts
from ringfence_client.progress.progress_record import Progress, ProgressFormatError
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import MissingTopicError
from ringfence_kafka.groups.descriptions import GroupDescription
from ringfence_kafka.groups.foreign_members import fault
from ringfence_kafka.protocol import wire_names

NONE: Final = "none"
"""State of a partition without a lease so far."""
UNREADABLE: Final = "unreadable"
TOLD_LIMIT_S: Final = 5.0

Place = tuple[str, str, int]
"""Consumer group, topic, partition."""


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """One partition for one consumer group."""

    consumer_group: str
    address: str | None
    """Name of the address; None = no configured address has this accepted topic."""
    topic: str
    partition: int
    state: str
    """State in the record: held, draining or released; else none or unreadable."""
    holder: str | None
    """Writer of the record; None = no record."""
    holder_is_member: bool | None
    """False = the holder's process is dead, stopped, disconnected or ending; None = no holder."""
    token: int
    age_seconds: float | None
    """Age of the record by this machine's clock, for display. Consumers judge by their own clocks."""
    delivered: int
    acknowledged: int
    """Offset below which every message is finished."""
    running: int
    """Messages delivered but not acknowledged."""
    lag: int | None
    """Offsets from the acknowledged one to the end for readers of committed data; None = unknown."""
    waits: str | None
    """Member that the group assigned the partition to, while another one has the lease."""
    web: str
    recreated: bool = False
    """Whether the record belongs to a deleted topic of this name, so that nothing is delivered."""
    fault: str | None = None
    """Reason why the record cannot be read."""
    head_attempts: int = 0
    """Number of attempts of the first unfinished message."""
    failing_offset: int | None = None
    """Failed message that is retried for the longest time; None = no failed message."""
    failing_attempts: int = 0
    failing_since_ms: int | None = None
    blocked: int = 0
    """Messages with written dead letters whose groups wait."""
    blocked_offset: int | None = None
    """First of these messages; None = no such message."""
    waiting: int | None = None
    """Unfinished offsets of the lag, plus redriven messages. Transaction markers count too."""
    failing: int = 0
    """Number of failed messages that are retried."""


class _Stored(NamedTuple):
    progress: Progress | None
    timestamp_ms: int
    fault: str | None


class Found(NamedTuple):
    """Leases, and the consumer groups that they name."""

    rows: list[LeaseRow]
    groups: dict[str, GroupDescription]
    faults: list[str]
    foreign: dict[str, list[str]]
    """Consumer group → a line for each member that is not a consumer of Ringfence, if it has any."""
    settled: dict[tuple[str, int], Progress]
    """Topic and partition → settled records of dead-letter and quarantine topics."""


async def read_leases(
    settings: Settings, topic: str | None = None, group: str | None = None, *, partial: bool = False
) -> Found:
    """Read the leases of one accepted topic or all, and of one consumer group or all.

    ``partial``: report a consumer group that this user may not see as a problem, instead of an error.
    """
    async with Cluster(settings.kafka, group or settings.app.id) as cluster:
        kept = wire_names.progress_topic(settings.app.id)
        counts = await cluster.topics.partition_counts([kept] if topic is None else [kept, topic])
        if topic is not None and topic not in counts:
            raise MissingTopicError(f"topic {topic} does not exist: run `ringfence topics create`")
        stored, faults = await _stored(settings, cluster, kept, counts.get(kept, 0))
        repair = wire_names.repair_group(settings.app.id)  # no lease: what `dlq` and `quarantine` settled
        settled = {
            (where, number): item.progress
            for (name, where, number), item in stored.items()
            if name == repair and item.progress is not None
        }
        stored = {
            place: item
            for place, item in stored.items()
            if group in {None, place[0]} and topic in {None, place[1]} and place[0] != repair
        }
        names = {name for name, _, _ in stored} | ({group} if group is not None else set())
        groups = await cluster.groups.describe(sorted(names), partial=partial)
        stored = {place: item for place, item in stored.items() if place[0] in groups}
        faults += [
            f"{name} is left out: this user may not see its members: allow Describe on that group"
            for name in sorted(names - groups.keys())
        ]
        addresses = {address.accepted_topic: address.name for address in settings.addresses}
        consumed = {place[:2] for place in stored} | {
            (name, where)
            for name, described in groups.items()
            for where, _ in described.assigned
            if where in addresses and topic in {None, where}
        }
        topics = sorted({where for _, where in consumed})
        counts = await cluster.topics.partition_counts(topics) if topics else {}
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
            if place[1:] in present
            and item.progress is not None
            and item.progress.topic_id not in {"", identities[place[1]]}
        }
        foreign = await _foreign(
            cluster, {name: [where for owner, where in consumed if owner == name] for name in groups}
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
        f"{where}/{number}: its brokers do not report its end: look for its leader"
        for where, number in sorted(present - ends.keys())
    ]
    faults += [f"{row.consumer_group} {row.topic}/{row.partition}: {row.fault}" for row in rows if row.fault]
    return Found(rows, groups, faults, foreign, settled)


async def _foreign(cluster: Cluster, topics: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """Return foreign members by group; silent groups are absent. ``topics``: consumer group → its topics."""

    async def ask(group: str) -> list[str]:
        def ours(user_data: bytes) -> bool:
            return any(is_ours(topic, user_data) for topic in topics[group])

        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            async with asyncio.timeout(TOLD_LIMIT_S):
                return [fault(group, member) for member in await cluster.groups.foreign_members(ours, group)]
        return []

    found = await asyncio.gather(*map(ask, topics))
    return {group: items for group, items in zip(topics, found, strict=True) if items}


async def _stored(
    settings: Settings, cluster: Cluster, topic: str, partitions: int
) -> tuple[dict[Place, _Stored], list[str]]:
    """Return all leases, and problems with records whose key cannot be read."""
    read = [progress_topic.read_latest(settings.kafka, cluster, topic, index) for index in range(partitions)]
    found, faults = {}, []
    pairs = [(records, record) for records in await asyncio.gather(*read) for record in records.values()]
    for beside, record in pairs:
        if record_parts.is_key(record.key or b""):
            continue  # its head names it, or it is abandoned
        try:
            place = progress_record.decode_key(record.key or b"")
        except ProgressFormatError as error:
            faults.append(
                f"{topic}/{record.partition} offset {record.offset}: {error}: another program wrote it"
            )
            continue
        try:
            found[place] = _Stored(progress_topic.decode(beside, record.key), record.timestamp, None)
        except ProgressFormatError as error:
            found[place] = _Stored(None, record.timestamp, str(error))
    return found, faults


def _row(
    place: Place,
    address: str | None,
    stored: _Stored | None,
    group: GroupDescription,
    end: int | None,
    recreated_from: int | None,
) -> LeaseRow:
    """Return the row of a place. ``recreated_from``: log start, if the record belongs to a deleted topic."""
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
    lag = None if end is None or stored is None or stored.fault else max(0, end - acknowledged)
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
        lag=lag,
        waits=None if ours else assigned,
        web=progress.web,
        recreated=recreated,
        fault=stored.fault if stored else None,
        head_attempts=0 if recreated else progress.attempts.get(progress.next, 0),
        failing=len(failures),
        failing_offset=failing,
        failing_attempts=0 if failing is None else failures[failing].attempts,
        failing_since_ms=None if failing is None else failures[failing].since_ms,
        blocked=len(blocked),
        blocked_offset=min(blocked, default=None),
        waiting=lag if lag is None or recreated else _waiting(progress, acknowledged, lag),
    )


def _waiting(progress: Progress, acknowledged: int, lag: int) -> int:
    """Return the number of unfinished offsets. Handlers may finish later messages before the first."""
    end = acknowledged + lag
    finished = sum(max(0, min(last, end) - first) for first, last in progress.finished)
    return lag - finished + len(progress.again)

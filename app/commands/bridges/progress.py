"""Reads the progress of bridges from their commits, without asking the bridges."""

import asyncio
import functools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from agents.bridge.offsets import OffsetMetadata, decode, lost_end
from agents.bridge.plan import Plan
from ringfence_client.consumer.assignor import is_ours
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.errors import BrokerUnavailableError, RingfenceError, said
from ringfence_kafka.groups.descriptions import GroupDescription
from ringfence_kafka.groups.foreign_members import fault
from ringfence_kafka.groups.trusted_offsets import own_commit
from ringfence_kafka.protocol.hop import as_printed

TOLD_LIMIT_S: Final = 5.0
BEGIN_LIMIT_S: Final = 3.0
"""Time for a bridge to commit its start offset, which it does before it sends anything, in seconds."""
NOT_BEGUN: Final = (
    "its bridge cannot commit a start offset, so it forwards nothing: see the log of the bridge"
)
NOT_OURS: Final = (
    "a foreign consumer committed the offset {offset} here: the bridge does not follow it, and "
    "continues at its own offset"
)
NOT_TOLD: Final = "its brokers do not report its end: look for its leader"


@dataclass(frozen=True, slots=True)
class Row:
    """One source partition of a bridge."""

    partition: int
    confirmed: int | None
    """Every offset below is at the target; None = the bridge has not started here."""
    lag: int | None
    """Offsets up to the end for readers of committed data; None = unknown."""
    forwarded: int
    retried: int
    filtered: int
    quarantined: int
    gap_records: int
    error: str | None
    since: str | None
    """Start of the error, in UTC."""
    member: str | None
    """Present owner of the partition; None = no owner, or the group rebalances."""
    web: str | None
    recreated: bool = False
    """Whether the commit belongs to a deleted topic with this name."""
    rebalancing: bool = False
    returned: int = 0
    """Filtered or forwarded messages that were at the target, or in this cluster, before."""

    @property
    def needs_action(self) -> bool:
        """Whether an operator must act."""
        return self.error is not None or self.abandoned

    @property
    def not_begun(self) -> bool:
        """Whether a member owns the partition and messages wait, but no offset was ever committed."""
        return bool(self.lag) and self.member is not None and self.confirmed is None and self.error is None

    @property
    def abandoned(self) -> bool:
        """Whether messages wait and no process forwards them."""
        return bool(self.lag) and self.member is None and not self.rebalancing


@dataclass(frozen=True, slots=True)
class Shown:
    """Progress of one bridge, as printed."""

    bridge: str
    group: str
    source_topic: str
    target_topic: str
    state: str = "unknown"
    """State of the group in Kafka's words."""
    members: list[str] = field(default_factory=list)
    partitions: list[Row] = field(default_factory=list)
    fault: str | None = None
    """Reason why the progress is unknown."""
    foreign: list[str] = field(default_factory=list)
    """A line for each member of its group that is not a bridge."""

    @property
    def needs_action(self) -> bool:
        """Whether an operator must act."""
        return bool(self.fault or self.foreign) or any(row.needs_action for row in self.partitions)


async def read_progress(wanted: Iterable[Plan]) -> list[Shown]:
    """Read the progress from the source clusters."""
    return list(await asyncio.gather(*map(_one, wanted)))


async def _one(plan: Plan) -> Shown:
    try:
        async with Cluster(plan.source, plan.group) as cluster:
            shown = await _read(plan, cluster)
            if any(partition.not_begun for partition in shown.partitions):
                await asyncio.sleep(BEGIN_LIMIT_S)
                shown = await _read(plan, cluster)
            # A bridge that cannot commit cannot report it, because its errors travel in its commits.
            rows = [replace(row, error=NOT_BEGUN) if row.not_begun else row for row in shown.partitions]
            return replace(shown, partitions=rows)
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
    members = sorted(group.members)
    return Shown(plan.name, plan.group, topic, plan.target_topic, group.state, members, rows, foreign=foreign)


def _row(
    number: int, confirmed: int | None, lag: int | None, note: OffsetMetadata, group: GroupDescription, topic: str,
    *, recreated: bool,
) -> Row:  # fmt: skip
    since = None
    if note.since_ms:
        since = datetime.fromtimestamp(note.since_ms / 1000, UTC).isoformat(timespec="seconds")
    counts = ("forwarded", "retried", "filtered", "quarantined", "gap_records", "returned")
    return Row(
        **{name: getattr(note, name) for name in counts},
        partition=number,
        confirmed=confirmed,
        lag=lag,
        error=note.error or None,
        since=since,
        member=group.assigned.get((topic, number)),
        web=note.web or None,
        recreated=recreated,
        rebalancing="REBALANC" in group.state,
    )

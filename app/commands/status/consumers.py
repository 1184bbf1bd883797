"""Consumer groups: leases (progress topic), waiting messages (accepted topic), and holders' reports."""

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import aiohttp
from aiokafka.errors import TopicAuthorizationFailedError

from app.commands.consumers import leases
from app.commands.consumers.leases import LeaseRow
from app.commands.status.lanes import fetch_document, memory, throttled
from app.commands.status.model import Consumers, Share
from app.commands.topics.required_topics import existing_letters
from ringfence_client.handlers import group_names
from ringfence_client.progress.progress_record import RELEASED, Progress
from ringfence_client.progress.topic_checks import progress_deleted
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import PrerequisiteError
from ringfence_kafka.groups.descriptions import GroupDescription
from ringfence_kafka.http.probe_errors import ProbeError
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.readers.log_reader import LogReader

Answer = dict[str, Any] | ProbeError | None
LIMIT_S: Final = 8.0
"""Time limit for reading leases, in seconds. An open transaction in their topic delays readers."""
_FROM_LEASE: Final = (
    "partition", "state", "holder", "holder_is_member", "waits", "lag", "running", "head_attempts", "failing_attempts",
    "failing", "blocked",
)  # fmt: skip
"""Fields that a share copies from the lease."""


class Found(NamedTuple):
    """Consumer groups, with problems."""

    consumers: list[Consumers]
    faults: list[str]
    settled: Mapping[tuple[str, int], Progress] | None = None
    """Settled records as in :class:`leases.Found`; None = unknown."""


async def read_consumers(
    settings: Settings, session: aiohttp.ClientSession, ignored: Collection[str] = ()
) -> Found:
    """Return all consumer groups with leases except ``ignored`` ones, and problems."""
    try:
        async with asyncio.timeout(LIMIT_S):
            found = await leases.read_leases(settings, partial=True)
    except TimeoutError:
        fault = (
            f"consumers are not known: {wire_names.progress_topic(settings.app.id)} cannot be read to its end within {LIMIT_S:.0f} s; "
            "a consumer that was killed leaves a transaction open there for a while: look again in a minute"
        )
        return Found([], [fault])
    except TopicAuthorizationFailedError as error:
        return Found([], [f"topic {error.args[0]}: this user may not see it: allow Describe and Read on it"])
    except PrerequisiteError as error:
        return Found([], [str(error)])
    rows = [row for row in found.rows if row.consumer_group not in ignored]
    waiting = {
        (row.topic, row.partition, offset): row.acknowledged + row.lag
        for row in rows
        if row.lag
        for offset in (row.acknowledged, row.failing_offset, row.blocked_offset)
        if offset is not None
    }
    oldest = await _heads(settings, waiting)
    webs = sorted({row.web for row in rows if row.web and row.state != RELEASED and row.holder_is_member})
    healths, groups = await asyncio.gather(
        *(
            asyncio.gather(*(fetch_document(session, settings.app, web, path) for web in webs))
            for path in ("/health", "/groups")
        )
    )
    said = dict(zip(webs, zip(healths, groups, strict=True), strict=True))
    shown = []
    for name, topic in sorted({(row.consumer_group, row.topic) for row in rows}):
        own = [row for row in rows if (row.consumer_group, row.topic) == (name, topic)]
        shown.append(_consumers(own, found.groups[name], said, oldest, found.foreign.get(name, [])))
    faults = [fault for fault in found.faults if not fault.startswith(tuple(f"{name} " for name in ignored))]
    return Found(shown, faults, found.settled)


async def deleted(settings: Settings, cluster: Cluster) -> list[str]:
    """Return a problem if the progress topic is missing although consumers have run."""
    kept = wire_names.progress_topic(settings.app.id)
    letters = [wire_names.dead_letter_topic(address.name) for address in settings.addresses]
    try:
        counts = await cluster.topics.partition_counts([kept, *letters])
    except TopicAuthorizationFailedError:
        return []
    return [] if kept in counts else progress_deleted(kept, existing_letters(settings, counts))


async def _heads(
    settings: Settings, waiting: Mapping[tuple[str, int, int], int]
) -> dict[tuple[str, int, int], Any]:
    """Return the first record from each place on.

    ``waiting``: (topic, partition, offset) → end of the partition.

    Several places in one partition, of different groups, are read one after the other.
    """
    left, found = set(waiting), {}
    while left:
        now = {(topic, partition): offset for topic, partition, offset in sorted(left, reverse=True)}
        records = await LogReader(settings.kafka).first_records(
            {place: (at, waiting[*place, at]) for place, at in now.items()}
        )
        for place, at in now.items():
            left.discard((*place, at))
            if place in records:
                found[*place, at] = records[place]
    return found


def _consumers(
    rows: Sequence[LeaseRow],
    group: GroupDescription,
    said: Mapping[str, tuple[Answer, Answer]],
    oldest: Mapping[tuple[str, int, int], Any],
    foreign: Sequence[str],
) -> Consumers:
    name, address = rows[0].consumer_group, rows[0].address or rows[0].topic
    webs = {row.web for row in rows if row.web in said}
    healths = {
        web: health
        for web in webs
        if isinstance(health := said[web][0], dict) and health.get("consumer_group") == name
    }
    silent = {web: why for web in sorted(webs) if isinstance(why := said[web][0], ProbeError)}
    faults = [*foreign]
    faults += [fault for _, health in sorted(healths.items()) for fault in health.get("faults", ())]
    left = sum(int(health.get("left_behind", 0)) for health in healths.values())
    reasons = {
        int(number): why for health in healths.values() for number, why in health.get("waiting", {}).items()
    }
    hot = _hottest([groups for web in healths if isinstance(groups := said[web][1], dict)])
    shares = [
        _share(row, oldest, hot.get(row.partition), reasons, _longest(healths.get(row.web), row.partition))
        for row in rows
    ]
    return Consumers(
        name, address, group.state, sorted(group.members), shares, list(dict.fromkeys(faults)), left, silent,
        throttled=throttled(healths.values()), webs=sorted(healths), **memory(healths.values()),
    )  # fmt: skip


def _hottest(answers: Iterable[Mapping[str, Any]]) -> dict[int, tuple[str | None, int]]:
    """Return by partition the group with the most waiting messages, and their number."""
    found: dict[int, tuple[str | None, int]] = {}
    for row in (item for answer in answers for item in answer.get("groups", ())):
        known = found.get(row["partition"])
        if row["group"] is not None and (known is None or row["depth"] > known[1]):
            found[row["partition"]] = (group_names.shown(bytes.fromhex(row["group_hex"])), row["depth"])
    return found


def _longest(health: Mapping[str, Any] | None, partition: int) -> tuple[str | None, float | None]:
    """Return group and seconds of the message that has run longest; 0 = none runs, None = unknown."""
    if health is None or "longest_runs" not in health:
        return None, None
    found = health["longest_runs"].get(str(partition), {"group": None, "seconds": 0.0})
    return found["group"], found["seconds"]


def _share(
    row: LeaseRow,
    records: Mapping[tuple[str, int, int], Any],
    hot: tuple[str | None, int] | None,
    reasons: Mapping[int, str],
    longest: tuple[str | None, float | None],
) -> Share:
    now = time.time()
    place = (row.topic, row.partition, row.acknowledged)
    head = records.get(place)
    nothing = place in records and head is None  # only transaction markers wait
    failing, blocked = (
        records.get((row.topic, row.partition, -1 if offset is None else offset))
        for offset in (row.failing_offset, row.blocked_offset)
    )
    return Share(
        **{name: getattr(row, name) for name in _FROM_LEASE},
        silent_seconds=row.age_seconds,
        waiting=0 if nothing else row.waiting,
        head_age_seconds=None if head is None else round(max(0.0, now - head.timestamp / 1000), 3),
        head_group=_group(head),
        failing_group=_group(failing),
        failing_seconds=None
        if row.failing_since_ms is None
        else round(max(0.0, now - row.failing_since_ms / 1000), 3),
        run_group=longest[0],
        run_seconds=longest[1],
        blocked_group=_group(blocked),
        hot_group=hot[0] if hot else None,
        hot_depth=hot[1] if hot else None,
        reason=reasons.get(row.partition),
    )


def _group(record: Any) -> str | None:
    return None if record is None or record.key is None else group_names.shown(record.key)

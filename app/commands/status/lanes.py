"""Workers and their lanes: Kafka reports the owners of lanes, and workers report their states."""

import asyncio
import contextlib
import functools
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import aiohttp
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError

from agents.rules.member_statements import is_worker
from agents.topic_checks.lanes import lane_faults, lanes_before, live
from app.commands.status import model
from app.commands.status.model import Address, FrequentId, Lane, Worker
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings, AppSettings, Settings
from ringfence_kafka.groups.foreign_members import fault
from ringfence_kafka.groups.members import Member, Members
from ringfence_kafka.groups.trusted_offsets import own_commit
from ringfence_kafka.http import probe_errors
from ringfence_kafka.http.probe_errors import ProbeError
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.lane_layout import LaneLayout, lane_of
from ringfence_kafka.readers.log_reader import LogReader
from tables.codec import META_KEY, FormatError, Meta, decode_meta
from tables.rocksdb.errors import StateFolderError

ANSWER_LIMIT_S: Final = 3.0
"""Time limit for the web server of a worker or a consumer, in seconds."""
_MEMORY: Final = {"buffered_bytes": "buffered_bytes", "buffer_limit_bytes": "limit_bytes"}
Place = tuple[str, int]
"""Topic and partition."""


async def fetch_document(
    session: aiohttp.ClientSession, app: AppSettings, web: str, path: str = "/health"
) -> dict[str, Any] | ProbeError | None:
    """Return a document of a web server, or why it was not readable; None = no usable answer."""
    return await probe_errors.get(session, app, web.rstrip("/") + path) if web else None


async def workers(
    settings: Settings, cluster: Cluster, session: aiohttp.ClientSession
) -> tuple[Members, list[Worker], dict[str, Any]]:
    """Return the workers' group, its workers, and their reports by lane name."""
    inputs = {address.input_topic: address.lanes for address in settings.addresses}
    group = await cluster.groups.members()
    answers = await asyncio.gather(
        *(fetch_document(session, settings.app, member.web) for member in group.members)
    )
    reports: dict[str, Any] = {}
    found = []
    for member, answer in zip(group.members, answers, strict=True):
        said: Mapping[str, Any] | None = None
        # another worker may answer if the address is 127.0.0.1
        if isinstance(answer, dict) and answer.get("instance") == member.name:
            said = answer
            reports |= answer.get("lanes") or {}
        lanes = _lanes_of(member.partitions, inputs)
        found.append(_worker(member, lanes, said, answer if isinstance(answer, ProbeError) else None))
    return group, found, reports


def _lanes_of(places: Iterable[Place], inputs: Mapping[str, int]) -> int:
    """Return the number of lanes with these partitions. ``inputs``: input topic → key ``lanes``."""
    return len({(topic, lane_of(partition, inputs[topic])) for topic, partition in places if topic in inputs})


async def foreign(settings: Settings, cluster: Cluster) -> list[str]:
    """Return a line for each foreign member of the workers' group, if the coordinator answers."""
    with contextlib.suppress(KafkaError, OSError):
        return [fault(settings.app.id, member) for member in await cluster.groups.foreign_members(is_worker)]
    return []


async def other_apps(settings: Settings, cluster: Cluster) -> list[tuple[str, str]]:
    """Return address and ``app.id`` of workers of other applications that read an address's input topic too.

    A changelog names the application, and the members of its group have the input topic. Groups that this user may not see are left out.
    """
    inputs = {address.name: address.input_topic for address in settings.addresses}
    found: list[tuple[str, str]] = []
    with contextlib.suppress(KafkaError, OSError):
        named = _named_by_changelogs(await cluster.connection.admin.list_topics(), inputs)
        for app in sorted(named.keys() - {settings.app.id}):
            with contextlib.suppress(GroupAuthorizationFailedError):
                members = (await cluster.groups.members(app)).members
                read = {topic for member in members for topic, _ in member.partitions}
                found += [(address, app) for address in sorted(named[app]) if inputs[address] in read]
    return found


def _named_by_changelogs(topics: Iterable[str], addresses: Collection[str]) -> dict[str, set[str]]:
    """Return possible ``app.id`` → addresses, from the names of changelogs. Both may have hyphens, so a name may give several pairs."""
    found: dict[str, set[str]] = {}
    _, end = wire_names.changelog_topic("", "\0").split("\0")
    for topic in topics:
        words = topic.removesuffix(end).split("-") if topic.endswith(end) else []
        for cut in range(1, len(words)):
            app, address = "-".join(words[:cut]), "-".join(words[cut:])
            if app and address in addresses:
                found.setdefault(app, set()).add(address)
    return found


def _worker(
    member: Member, lanes: int, answer: Mapping[str, Any] | None, silent: ProbeError | None
) -> Worker:
    said = answer or {}
    faults = [*said.get("unreadable", ())]
    for name, items in (said.get("faults") or {}).items():
        faults += [item if name == "*" else f"address {name}: {item}" for item in items]
    return Worker(
        name=member.name,
        host=member.host,
        web=member.web or None,
        lanes=lanes,
        ready=None if answer is None else bool(answer.get("ready")),
        broker=said.get("broker"),
        faults=faults,
        state_folder=str(said.get("state_folder", "")),
        lanes_in_memory=[str(item) for item in said.get("lanes_in_memory", ())],
        unheard=silent,
        throttled=throttled([said]),
        limits=dict(said.get("limits") or {}),
        **memory([said]),
    )


def memory(answers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the total memory that processes report, and the total limit."""
    reports = [answer["memory"] for answer in answers if answer.get("memory")]
    sums = {key: sum(int(item[name]) for item in reports) for key, name in _MEMORY.items()}
    return sums if reports else {}


def throttled(answers: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return request → seconds by which brokers delayed processes."""
    found: Counter[str] = Counter()
    for answer in answers:
        found.update(answer.get("throttled") or {})
    return dict(found)


async def _own_offset(cluster: Cluster, topic: str, partition: int) -> int | None:
    """Return the workers' committed offset, but not one of a foreign consumer."""
    found = own_commit(await cluster.groups.committed(topic, partition))
    return None if found is None else found.offset


async def addresses(
    settings: Settings, cluster: Cluster, group: Members, reports: Mapping[str, Any]
) -> list[Address]:
    """Return all addresses. An address whose topics do not answer has a problem and no lanes."""
    asked = (_address(settings, address, cluster, group, reports) for address in settings.addresses)
    return list(await asyncio.gather(*asked))


async def _address(
    settings: Settings, address: AddressSettings, cluster: Cluster, group: Members, reports: Mapping[str, Any]
) -> Address:
    topic = address.input_topic
    try:
        counts = await cluster.topics.partition_counts([topic])
        if topic not in counts:
            return Address(address.name, topic, [], [f"topic {topic} does not exist"])
        places = [(topic, number) for number in range(counts[topic])]
        ends, stable, starts, committed = await asyncio.gather(
            _by_place(cluster.offsets.high_watermark, places),
            _by_place(cluster.offsets.stable_end, places),
            _by_place(cluster.offsets.log_start, places),
            _by_place(functools.partial(_own_offset, cluster), places),
        )
    except TopicAuthorizationFailedError:
        return Address(
            address.name, topic, [], [f"topic {topic}: this user may not see it: allow Describe on it"]
        )
    metas = await _metas(settings, address, cluster)
    own_lanes = live(metas)
    # use the existing lanes, even if this file differs
    layout = LaneLayout.from_setting(
        next(map(lanes_before, own_lanes.values()), address.lanes), counts[topic]
    )
    done = {}
    for place in places:
        meta, start = metas.get(layout.lane_of(place[1])), starts[place] or 0
        done[place] = max(committed[place] or 0, (meta.next_of(*place) or 0) if meta else 0, start)
        lane = wire_names.lane_name(address.name, layout.lane_of(place[1]))
        if (reports.get(lane) or {}).get("state") != model.OPEN and done[place] > (ends[place] or 0):
            done[place] = start  # the offset belongs to a deleted topic with this name
    oldest, undecided = await asyncio.gather(
        LogReader(settings.kafka).first_records({place: (done[place], stable[place] or 0) for place in places}),
        LogReader(settings.kafka).first_records({place: (max(done[place], stable[place] or 0), ends[place] or 0) for place in places if stable[place] is not None},
            committed=False,
        ),
    )  # fmt: skip
    owners = {place: member.name for member in group.members for place in member.partitions}
    waits = {
        place: _Waiting(
            lag=None if ends[place] is None else max(0, (ends[place] or 0) - done[place]),
            nothing=place in oldest and oldest[place] is None and stable[place] == ends[place],
            head=_age(oldest.get(place)),
            undecided=_age(undecided.get(place)),
        )
        for place in places
    }
    return Address(
        address.name,
        topic,
        [
            _lane(
                address, number, own, next((owners[place] for place in own if place in owners), None), reports,
                metas.get(number), [waits[place] for place in own],
            )
            for number in range(min(layout.lanes, counts[topic]))
            if (own := [(topic, partition) for partition in layout.partitions_of(number)])
        ],
        lanes_fault="".join(lane_faults(address, own_lanes.values())),
    )  # fmt: skip


class _Waiting(NamedTuple):
    """Unprocessed messages of one input partition."""

    lag: int | None
    nothing: bool
    """Whether the lag has only transaction markers."""
    head: float | None
    undecided: float | None


def _lane(
    address: AddressSettings,
    number: int,
    places: Sequence[Place],
    worker: str | None,
    reports: Mapping[str, Any],
    meta: Meta | None,
    waits: Sequence[_Waiting],
) -> Lane:
    name = wire_names.lane_name(address.name, number)
    said: Mapping[str, Any] = reports.get(name) or {}
    ring: Mapping[str, Any] = said.get("ring") or {}
    size, capacity = ring.get("size"), ring.get("capacity")
    if not ring and meta is not None:
        size, capacity = meta.head - max(meta.floor, meta.head - meta.capacity, 0), meta.capacity
    state = said.get("state", model.UNKNOWN) if worker is not None else model.NOBODY
    accepted, duplicates, unchecked, quarantined, observed, forwarded = (
        said.get(name, 0) if ring else None
        for name in (
            "accepted", "duplicates", "unchecked", "quarantined", "observed_duplicates", "forwarded"
        )
    )  # fmt: skip
    forwarding: Mapping[str, Any] = said.get("forwarding") or {}
    lags = [item.lag for item in waits]
    lag = None if None in lags else sum(lag or 0 for lag in lags)
    some = [0 if item.nothing else item.lag for item in waits]
    return Lane(
        name, number, [partition for _, partition in places], str(state), said.get("reason"), worker, lag,
        _largest(item.head for item in waits), _largest(item.undecided for item in waits), said.get("rate"),
        size, capacity, ring.get("seconds_covered"), accepted, duplicates, unchecked, quarantined,
        None if None in some else sum(item or 0 for item in some), _folder_fault(said), said.get("note"),
        FrequentId(**frequent) if (frequent := said.get("frequent_id")) else None,
        ring.get("promise"),
        bool(said.get("observes")), observed, list(said.get("unchecked_headers", ())), forwarded,
        forwarding.get("share"), forwarding.get("advice", ""), dict(said.get("own_rules") or {}),
        said.get("gap_records", 0),
    )  # fmt: skip


def _largest(ages: Iterable[float | None]) -> float | None:
    return max((age for age in ages if age is not None), default=None)


def _folder_fault(said: Mapping[str, Any]) -> bool:
    """Return whether a lane's folder cannot be written. Older workers report this only in the reason."""
    named = str(said.get("reason") or "").startswith(StateFolderError.__name__)
    return bool(said.get("folder_fault", named))


async def _metas(settings: Settings, address: AddressSettings, cluster: Cluster) -> dict[int, Meta]:
    """Return the newest meta record of each lane, searched near the end of its changelog."""
    topic = wire_names.changelog_topic(settings.app.id, address.name)
    found: dict[int, Meta] = {}
    with contextlib.suppress(TopicAuthorizationFailedError):
        count = (await cluster.topics.partition_counts([topic])).get(topic, 0)
        places = [(topic, number) for number in range(count)]
        starts, ends = await asyncio.gather(
            _by_place(cluster.offsets.log_start, places), _by_place(cluster.offsets.stable_end, places)
        )
        spans = {place: (starts[place] or 0, ends[place] or 0) for place in places}
        for (_, number), value in (await LogReader(settings.kafka).newest_values(spans, META_KEY)).items():
            with contextlib.suppress(FormatError):
                found[number] = decode_meta(value)
    return found


async def _by_place(question: Any, places: Sequence[Place]) -> dict[Place, int | None]:

    async def ask_one(place: Place) -> int | None:
        try:
            answer: int | None = await question(*place)
        except (KafkaError, OSError, TimeoutError):
            return None
        return answer

    return dict(zip(places, await asyncio.gather(*map(ask_one, places)), strict=True))


def _age(record: Any) -> float | None:
    return None if record is None else round(max(0.0, time.time() - record.timestamp / 1000), 3)

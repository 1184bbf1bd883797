"""Reads the status from Kafka, the workers, the consumers, and the sources of bridges."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import urlencode

from aiokafka.errors import GroupAuthorizationFailedError, KafkaError

from agents.bridge.plan import plans
from app.bridge.quarantines import BridgeQuarantines
from app.commands.bridges import progress, removed_bridges
from app.commands.bridges.status import problem_lines
from app.commands.status import consumers as consumer_status
from app.commands.status import lanes
from app.commands.status.lanes import ANSWER_LIMIT_S, fetch_document
from app.commands.status.model import Bridge, LeftBridge, LeftLetters, Status
from ringfence_client.progress.open_records import Found, OpenRecordCounts, OpenRecords
from ringfence_client.progress.progress_record import Progress
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.last_run import last_run
from ringfence_kafka.config.chains import chain_starts
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import BrokerUnavailableError, PrerequisiteError, said
from ringfence_kafka.groups.members import Members
from ringfence_kafka.http import auth
from ringfence_kafka.page.history import Charts, Subject, merged
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.run_result import RunResult


class Counts:
    """Counts of open records, kept between looks."""

    def __init__(self, settings: Settings) -> None:
        self.addresses = OpenRecordCounts(settings.kafka)
        self.bridges = BridgeQuarantines()


async def read_status(
    settings: Settings, ignored: Collection[str] = (), counts: Counts | None = None
) -> Status:
    """Read the present state of all parts that answer, without ``ignored`` consumer groups.

    ``counts``: counts of open records, kept between calls.

    Raises:
        BrokerUnavailableError: No broker answers.
        PrerequisiteError: This user may not see the workers' group.
    """
    try:
        return await _read(settings, ignored, counts or Counts(settings))
    except GroupAuthorizationFailedError as error:
        raise PrerequisiteError(
            f"group {settings.app.id}: this user may not see its members: allow Describe on it"
        ) from error
    except (KafkaError, OSError, TimeoutError) as error:
        raise BrokerUnavailableError(
            f"{settings.kafka.bootstrap_servers}: brokers do not answer any more: {said(error)}"
        ) from error


async def _read(settings: Settings, ignored: Collection[str], counts: Counts) -> Status:
    async with (
        Cluster(settings.kafka, settings.app.id) as cluster,
        auth.session(settings.app, lanes.ANSWER_LIMIT_S) as session,
    ):
        await cluster.groups.await_coordinator()
        group, workers, reports = (
            await lanes.workers(settings, cluster, session)
            if settings.addresses
            else (Members("Dead", ()), [], {})
        )
        foreign, addresses, consumers, deleted, linked, (left, unreadable) = await asyncio.gather(
            lanes.foreign(settings, cluster),
            lanes.addresses(settings, cluster, group, reports),
            consumer_status.read_consumers(settings, session, ignored),
            consumer_status.deleted(settings, cluster),
            _bridges(settings, counts.bridges),
            removed_bridges.find_removed(settings),
        )
        found, (last, silent), others = await asyncio.gather(
            read_open_records(settings, cluster, counts.addresses, consumers.settled),
            _last_run(settings, cluster),
            lanes.other_apps(settings, cluster),
        )
    status = Status(
        app=settings.app.id,
        bootstrap_servers=settings.kafka.bootstrap_servers,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        workers_state=group.state,
        workers=workers,
        addresses=addresses,
        consumers=consumers.consumers,
        bridges=linked,
        faults=[*consumers.faults, *unreadable, *found.faults.values(), *silent],
        left_bridges=[
            LeftBridge(item.bridge, item.what, item.do, stands=item.read_by is None) for item in left
        ],
        foreign=foreign,
        other_apps=others,
        deleted=deleted,
        last_run=last,
    )
    return _placed(settings, status, found, ignored)


async def _last_run(settings: Settings, cluster: Cluster) -> tuple[RunResult | None, list[str]]:
    """Return the last reconciliation run, and a problem if this user may not see it."""
    try:
        return await last_run(cluster.connection, settings.app.id), []
    except GroupAuthorizationFailedError:
        group = wire_names.run_group(settings.app.id)
        return None, [f"the last reconciliation run is not known: allow Describe on group {group}"]
    except KafkaError:
        return None, []


async def _bridges(settings: Settings, quarantines: BridgeQuarantines) -> list[Bridge]:
    if not settings.bridges and not settings.cluster_connections:
        return []
    known = plans(settings)
    bridges, found = await asyncio.gather(progress.read_progress(known), quarantines.read(known))
    return [_bridge(shown, found) for shown in bridges]


def _bridge(shown: progress.Shown, quarantines: Mapping[str, OpenRecords | None]) -> Bridge:
    if shown.bridge in quarantines:  # show the open records instead of all that were ever refused
        shown = replace(shown, partitions=[replace(row, quarantined=0) for row in shown.partitions])
    return Bridge(
        bridge=shown.bridge,
        source_topic=shown.source_topic,
        target_topic=shown.target_topic,
        state=shown.state,
        members=shown.members,
        lag=sum(partition.lag or 0 for partition in shown.partitions) if shown.partitions else None,
        forwarded=sum(partition.forwarded for partition in shown.partitions),
        fault=shown.fault,
        standing=problem_lines(shown),
        stands=shown.needs_action,
        quarantine=quarantines.get(shown.bridge),
    )


async def read_histories(settings: Settings, status: Status, span: str, subject: Subject = ()) -> Charts:
    """Return the figures of a subject, or of all, from processes that answer. Dead ones' past is lost."""
    webs = {worker.web for worker in status.workers if subject[:1] != ("consumers",)}
    webs |= {
        web
        for group in status.consumers
        if not subject or subject == ("consumers", group.consumer_group, group.address)
        for web in group.webs
    }
    async with auth.session(settings.app, ANSWER_LIMIT_S) as session:
        parameters = [("span", span), *(("of", part) for part in subject)]
        path = f"/history?{urlencode(parameters)}"
        answers = await asyncio.gather(
            *(fetch_document(session, settings.app, web, path) for web in webs if web)
        )
    return merged(span, [answer for answer in answers if isinstance(answer, dict) and "rows" in answer])


async def read_open_records(
    settings: Settings,
    cluster: Cluster,
    counts: OpenRecordCounts,
    settled: Mapping[tuple[str, int], Progress] | None,
) -> Found:
    """Return the open records of all addresses; empty if the ``settled`` records are unknown."""
    if settled is None:
        return Found({}, {})

    async def settled_of(topic: str, partition: int) -> Progress | None:
        return settled.get((topic, partition))

    topics = {
        topic
        for address in settings.addresses
        for topic in (address.quarantine_topic, wire_names.dead_letter_topic(address.name))
    }
    return await counts.refresh(cluster, sorted(topics), settled_of)


def _placed(settings: Settings, status: Status, found: Found, ignored: Collection[str]) -> Status:
    """Add the open records to addresses and consumer groups of the status."""
    starts = chain_starts(settings.addresses)
    quarantines = {address.name: address.quarantine_topic for address in settings.addresses}
    letters = {
        (address.name, group): records
        for address in settings.addresses
        for (topic, group), records in found.records.items()
        if topic == wire_names.dead_letter_topic(address.name) and group not in ignored
    }
    known = {(consumers.address, consumers.consumer_group) for consumers in status.consumers}
    return replace(
        status,
        addresses=[
            replace(
                address,
                quarantine=found.records.get((quarantines[address.address], "")),
                chain_start=starts.get(address.address, ""),
            )
            for address in status.addresses
        ],
        consumers=[
            replace(consumers, dead_letters=letters.get((consumers.address, consumers.consumer_group)))
            for consumers in status.consumers
        ],
        left_letters=[
            LeftLetters(group, address, records)
            for (address, group), records in sorted(letters.items(), key=lambda item: item[0])
            if (address, group) not in known
        ],
    )

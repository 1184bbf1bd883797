"""Reads the status from Kafka, the workers, the consumers, and the sources of bridges."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from aiokafka.errors import GroupAuthorizationFailedError, KafkaError

from agents.bridge.plan import plans
from app.bridge.quarantines import BridgeQuarantines
from app.commands.bridges import progress, removed_bridges
from app.commands.bridges.status import problem_lines
from app.commands.status import consumers as consumer_status
from app.commands.status import lanes, open_records
from app.commands.status.model import Bridge, LeftBridge, Status
from app.commands.status.open_records import Counts
from ringfence_client.progress.open_records import OpenRecords
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.last_run import last_run
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import BrokerUnavailableError, PrerequisiteError, said
from ringfence_kafka.groups.members import Members
from ringfence_kafka.http import auth
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.run_result import RunResult


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
            open_records.read_open_records(settings, cluster, counts.addresses, consumers.settled),
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
    return open_records.placed(settings, status, found, ignored)


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
        stands=shown.fault is not None
        or bool(shown.foreign)
        or any(partition.needs_action for partition in shown.partitions),
        quarantine=quarantines.get(shown.bridge),
    )

"""Parts of a worker, built bottom-up. None of them uses Faust's app."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from agents.lane.assignment import LaneKey
from agents.lane.lane import Lane
from agents.rules.agreement import Agreement
from agents.rules.member_statements import is_worker
from agents.topic_checks.addresses import AddressFaults, Faults
from agents.worker.lanes import Lanes
from app.commands.topics import access_rights
from app.worker.fetch.buffers import Buffers
from app.worker.fetch.fetch_interval import FetchInterval
from app.worker.membership import static_membership
from app.worker.membership.group import GroupMembership
from app.worker.membership.orphan_lanes import OrphanLanes
from app.worker.metrics import BatchMetrics, LaneMetrics, RepairWatch
from app.worker.page import StatusPage
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_watch import GroupWatch
from ringfence_kafka.concurrency.broker_watch import BrokerWatch
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.http.auth import HttpAuth, http_auth
from ringfence_kafka.http.server import ProcessMetrics
from ringfence_kafka.page.history import History, Subject, rss

log: Final = logging.getLogger("ringfence.worker")
_JUDGED: Final = ("accepted", "duplicates", "unchecked", "quarantined")
TURNS: Final = 6
"""Number of samples in which each lane's covered time is read once, because the read may go to RocksDB."""


class WorkerFigures:
    """Figures of one worker, of its own lanes only."""

    def __init__(self, name: str, lanes: Lanes, buffers: Buffers) -> None:
        self._name = name
        self._lanes = lanes
        self._buffers = buffers
        self._turn = 0
        self._covered: dict[LaneKey, float | None] = {}

    def sample(self) -> Mapping[Subject, Mapping[str, float | None]]:
        """Return the present figures of the worker and of each address."""
        found: dict[Subject, Mapping[str, float | None]] = {
            ("worker", self._name): {"rss": rss(), "buffered": self._buffers.used}
        }
        lanes = self._lanes.lanes
        self._read_covered_times(lanes)
        own: dict[str, list[LaneKey]] = {}
        for lane in lanes:
            own.setdefault(lane.opening.address.name, []).append(lane.key)
        for address, counts in self._lanes.counts().items():
            here = own.get(address, [])
            found["address", address] = {
                "in": sum(counts[name] for name in _JUDGED),
                "accepted": counts["accepted"] + counts["unchecked"],
                "duplicates": counts["duplicates"],
                "lag": _known(sum, [self._lanes.lags.lag(key) for key in here]),
                "covered": _known(min, [self._covered[key] for key in here]),
            }
        return found

    def _read_covered_times(self, lanes: list[Lane]) -> None:
        """Read the covered time of new lanes, and of a part of the other lanes in turn."""
        self._turn += 1
        self._covered = {
            lane.key: lane.seconds_covered()
            if (place + self._turn) % TURNS == 0 or self._covered.get(lane.key) is None
            else self._covered[lane.key]
            for place, lane in enumerate(lanes)
        }


def _known(
    fold: Callable[[list[float]], float], values: list[float | None] | list[int | None]
) -> float | None:
    known: list[float] = [value for value in values if value is not None]
    return fold(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """All parts of a worker except Faust."""

    settings: Settings
    auth: HttpAuth
    cluster: Cluster
    buffers: Buffers
    interval: FetchInterval
    group: GroupMembership
    group_watch: GroupWatch
    lanes: Lanes
    orphan_lanes: OrphanLanes
    broker_watch: BrokerWatch
    metrics: ProcessMetrics
    history: History
    page: StatusPage
    repair_watch: RepairWatch


def build(settings: Settings, known: Faults | None = None, denied: Faults | None = None) -> WorkerParts:
    """Build the parts. Nothing is connected yet.

    Args:
        settings: Configuration of the worker.
        known: Problems of addresses that earlier checks found.
        denied: Missing access rights among these.
    """

    async def ask_denied() -> Faults:
        return (await access_rights.missing(settings)).by_address

    cluster = Cluster(settings.kafka, settings.app.id)
    buffers = Buffers(settings.app.buffer_bytes_max)
    interval = FetchInterval(settings.app.latency_target_ms / 1000)
    group = GroupMembership(settings)
    topics = static_membership.subscribed(settings)
    batches = BatchMetrics()
    group_watch = GroupWatch(
        cluster,
        topics,
        is_worker,
        log,
        "messages that it reads are not accepted until it has left",
        lambda: group.member_id,
        reserved=True,
    )
    lanes = Lanes(
        settings,
        cluster,
        AddressFaults(settings, cluster, known, denied, ask_denied),
        batches.observe,
        interval.took,
        Agreement(settings, cluster.groups.static_members),
        group_watch,
        group.state_unusable,
    )
    rejoin = group.join_again if settings.app.static_membership else None
    broker_watch = BrokerWatch(cluster.connection.ping, log, "lanes wait for it", cluster.connection.denied)
    repair_watch = RepairWatch(settings, cluster, lambda: lanes.lanes)
    return WorkerParts(
        settings=settings,
        auth=http_auth(settings.app),
        cluster=cluster,
        buffers=buffers,
        interval=interval,
        group=group,
        group_watch=group_watch,
        lanes=lanes,
        orphan_lanes=OrphanLanes(cluster, topics, lanes.set_unassigned, rejoin),
        broker_watch=broker_watch,
        metrics=ProcessMetrics(batches, LaneMetrics(lanes, broker_watch, buffers, interval), repair_watch),
        history=History(WorkerFigures(settings.app.instance_name, lanes, buffers).sample),
        page=StatusPage(settings),
        repair_watch=repair_watch,
    )

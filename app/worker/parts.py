"""Parts of a worker, built bottom-up. None of them uses Faust's app."""

import logging
from collections.abc import Callable, Mapping
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
from app.worker.membership.group import GroupMembership, subscribed
from app.worker.membership.orphan_lanes import OrphanLanes
from app.worker.metrics import BatchMetrics, LaneMetrics, RepairWatch
from app.worker.page import StatusPage
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_watch import GroupWatch
from ringfence_kafka.concurrency.broker_watch import BrokerWatch
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.http.auth import http_auth
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


class WorkerParts:
    """All parts of a worker except Faust. Nothing is connected yet."""

    def __init__(self, settings: Settings, known: Faults | None = None, denied: Faults | None = None) -> None:
        """Build the parts. ``known``: problems of addresses that earlier checks found; ``denied``: missing rights among these."""

        async def ask_denied() -> Faults:
            return (await access_rights.missing(settings)).by_address

        app = settings.app
        self.settings: Final = settings
        self.auth = http_auth(app)
        self.cluster = Cluster(settings.kafka, app.id)
        self.buffers = Buffers(app.buffer_bytes_max)
        self.interval = FetchInterval(app.latency_target_ms / 1000)
        self.group = GroupMembership(settings)
        topics = subscribed(settings)
        self.group_watch = GroupWatch(
            self.cluster,
            topics,
            is_worker,
            log,
            "messages that it reads are not accepted until it has left",
            lambda: self.group.member_id,
            reserved=True,
        )
        batches = BatchMetrics()
        self.lanes = Lanes(
            settings,
            self.cluster,
            AddressFaults(settings, self.cluster, known, denied, ask_denied),
            batches.observe,
            self.interval.took,
            Agreement(settings, self.cluster.groups.static_members),
            self.group_watch,
            self.group.state_unusable,
        )
        rejoin = self.group.join_again if app.static_membership else None
        self.orphan_lanes = OrphanLanes(self.cluster, topics, self.lanes.set_unassigned, rejoin)
        connection = self.cluster.connection
        self.broker_watch = BrokerWatch(connection.ping, log, "lanes wait for it", connection.denied)
        self.repair_watch = RepairWatch(settings, self.cluster, lambda: self.lanes.lanes)
        lane_metrics = LaneMetrics(self.lanes, self.broker_watch, self.buffers, self.interval)
        self.metrics = ProcessMetrics(batches, lane_metrics, self.repair_watch)
        self.history = History(WorkerFigures(app.instance_name, self.lanes, self.buffers).sample)
        self.page = StatusPage(settings)

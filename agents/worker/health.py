"""Health of a worker: whether it is ready, and the state of its lanes."""

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from agents.decision.frequent_ids import FrequentId
from agents.lane.assignment import LaneKey
from agents.lane.lane import Lane, LaneState
from agents.lane.outcome_counts import OutcomeCounts
from agents.lane.state_folder import StateFolder
from agents.topic_checks.addresses import AddressFaults, shown
from agents.worker.lag import LaneLags
from agents.worker.lane_map import LaneMap, listed
from ringfence_kafka.admin.group_watch import GroupWatch
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.protocol.stored_ids import display_id

log: Final = logging.getLogger("ringfence.worker")

OWN_RULES: Final = ("duplicates", "on_conflict", "duplicate_id_missing")
"""Configuration keys that may differ between workers: neither the lane nor the group compares them."""

UNREADABLE_S: Final = 5.0
"""Time that a partition counts as unreadable after a refused fetch, in seconds. The next fetch comes much sooner."""


class Unreadable:
    """Refused partitions. The consumer's thread records them, other threads read them."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, int], tuple[float, str]] = {}
        """Monotonic time and reason of the last refusal, by topic and partition."""

    def record(self, topic: str, partition: int, reason: str) -> None:
        """Record that a fetch of a partition was refused; it will be tried again. Thread-safe."""
        if self.why(topic, partition) is None:
            log.warning("%s/%d may not be read, its lane waits: %s", topic, partition, reason)
        self._refused[topic, partition] = (time.monotonic(), reason)

    def why(self, topic: str, partition: int) -> str | None:
        """Return why a partition cannot be read now; None if it can."""
        when, reason = self._refused.get((topic, partition), (0.0, ""))
        if not reason or time.monotonic() - when > UNREADABLE_S:
            return None
        return f"{topic}/{partition} may not be read: {reason}"

    def all(self) -> dict[tuple[str, int], str]:
        """Return the reasons of all partitions that cannot be read now."""
        told = {item: self.why(*item) for item in list(self._refused)}
        return {item: why for item, why in told.items() if why is not None}


class WorkerHealth:
    """Read-only view of the parts of a worker."""

    def __init__(
        self,
        settings: Settings,
        lane_map: LaneMap,
        lanes: Mapping[LaneKey, Lane],
        faults: AddressFaults,
        lags: LaneLags,
        state_folder: StateFolder,
        group_watch: GroupWatch | None,
    ) -> None:
        """Create the view. ``lanes``: lanes of the worker, open or not, without half-assigned ones."""
        self.refused_reads = Unreadable()
        self.addresses = [address.name for address in settings.addresses]
        self._app_id = settings.app.id
        self._map = lane_map
        self._lanes = lanes
        self._faults = faults
        self._lags = lags
        self._state_folder = state_folder
        self._group_watch = group_watch
        self._was_ready = False

    @property
    def ready(self) -> bool:
        """Whether the first assignment is complete, all assigned lanes are open, and every lane has a worker."""
        return (
            self._map.assigned
            and not self._map.halves
            and not self._map.unassigned
            and not self.foreign
            and not self._state_folder.unusable
            and not self._faults.by_address
            and not self.unreadable
            and all(lane.state is LaneState.OPEN for lane in self._lanes.values())
        )

    @property
    def foreign(self) -> list[str]:
        """One line for each foreign member of the workers' group."""
        return self._group_watch.faults if self._group_watch is not None else []

    @property
    def unassigned(self) -> list[str]:
        """Names of lanes without a worker."""
        return self._map.unassigned

    @property
    def unreadable(self) -> list[str]:
        """Reasons of the partitions of this worker whose fetches are refused."""
        refused = self.refused_reads.all()
        return [why for place, why in refused.items() if self._map.find(*place) in self._lanes]

    @property
    def in_memory(self) -> list[str]:
        """Names of the lanes that keep their files in memory, because their folders cannot be written."""
        return [lane.name for lane in self._lanes.values() if lane.opening.table.store.in_memory]

    @property
    def halves(self) -> dict[LaneKey, str]:
        """Reasons of the lanes that are not opened because only some of their partitions are assigned."""
        return {
            key: "; ".join(self._faults.by_address.get(self._map.address(key).name, ()))
            or f"its partition of {half.rpartition('/')[0]} was not assigned to this worker too: run "
            f"all workers of {self._app_id} with the same addresses"
            for key, half in self._map.halves.items()
        }

    def state_of(self, lane: Lane) -> tuple[LaneState, str]:
        """Return state and reason to report. An open lane whose fetches are refused is reported as retrying."""
        if lane.state is LaneState.OPEN:
            for place in lane.cursors:
                if (why := self.refused_reads.why(*place)) is not None:
                    return LaneState.RETRYING, why
        return lane.state, lane.reason

    def labels(self, key: LaneKey) -> list[str]:
        """Return address and name of a lane, as metric labels."""
        return [self._map.address(key).name, self._map.name(key)]

    def report(self) -> dict[str, Any]:
        """Return the report of each lane."""
        half = {
            self._map.name(key): {"state": LaneState.REFUSED.value, "reason": reason}
            for key, reason in self.halves.items()
        }
        return half | {lane.name: self._lane_report(key, lane) for key, lane in self._lanes.items()}

    def _lane_report(self, key: LaneKey, lane: Lane) -> dict[str, Any]:
        (state, reason), table = self.state_of(lane), lane.opening.table
        return {
            "state": state.value,
            **({"reason": reason} if reason else {}),
            **({"folder_fault": True} if lane.folder_fault else {}),
            **({"note": lane.opening.note} if lane.opening.note else {}),
            **({"observes": True} if lane.opening.address.observes else {}),
            "own_rules": {name: getattr(lane.opening.address, name) for name in OWN_RULES},
            **({"partitions": sorted(lane.next_by_partition)} if lane.opening.address.lanes else {}),
            "next": lane.next_by_partition if lane.opening.address.lanes else lane.next,
            "rate": self._lags.rate(key),
            "ring": {
                "size": len(table.ring),
                "capacity": table.ring.capacity,
                "seconds_covered": lane.seconds_covered(),
                **({"promise": coverage.report()} if (coverage := lane.coverage()) else {}),
            },
            **lane.counts,
            **_noticed(lane.transactions.outcomes),
            **({"parts": dict(parts)} if (parts := lane.transactions.outcomes.parts) else {}),
        }

    def state_changed(self) -> None:
        """Log when the worker becomes ready, and when it stops being ready."""
        ready = self.ready
        if ready == self._was_ready:
            return
        self._was_ready = ready
        if ready:
            log.info("ready: %d lanes open", len(self._lanes))
            return
        waiting = [lane.name for lane in self._lanes.values() if lane.state is not LaneState.OPEN]
        waiting += map(self._map.name, self._map.halves)
        waiting += (f"{name} (no worker has it)" for name in self._map.unassigned)
        waiting += map(shown, self._faults.by_address)
        waiting += self.foreign
        log.info("not ready: waiting for %s", listed(waiting, "an assignment"))

    def stopped(self) -> None:
        """Record that the worker stops, so that no line is logged about it."""
        self._was_ready = False


def _noticed(outcomes: OutcomeCounts) -> dict[str, Any]:
    """Return observations about the messages that a person should know; empty if there are none."""
    found: dict[str, Any] = {}
    if (frequent := outcomes.frequent_ids.most) is not None:
        found["frequent_id"] = _shown(frequent) | {"means": outcomes.frequent_ids.means}
    if names := outcomes.missing_ids.names:
        found["unchecked_headers"] = names
    if outcomes.forwarding.advice:
        found["forwarding"] = {"share": outcomes.forwarding.share, "advice": outcomes.forwarding.advice}
    return found


def _shown(frequent: FrequentId) -> dict[str, Any]:
    return {
        "id": display_id(frequent.id),
        "parts": list(frequent.parts),
        "count": frequent.repeats,
        "duplicates": frequent.duplicates,
    }

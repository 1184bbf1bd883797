"""Open quarantined records and the last reconciliation run, for ``/metrics`` of a worker."""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from aiokafka.errors import GroupAuthorizationFailedError, KafkaError
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agents.lane.lane import Lane
from ringfence_client.progress.open_record_watch import OpenRecordWatch
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.last_run import last_run
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.protocol.run_result import RunResult

_FAMILIES: Final = {
    "quarantine_open_records": "Open quarantined records, from the worker with the address's first lane; NaN = unknown.",
    "quarantine_oldest_seconds": "Age of the oldest open record; 0 = none is open.",
}


class RepairWatch(Collector):
    """Metrics of quarantines and runs. Only the worker with an address's first lane counts its quarantine."""

    def __init__(self, settings: Settings, cluster: Cluster, lanes: Callable[[], Iterable[Lane]]) -> None:
        """Take ``lanes``, a function that returns the lanes of this worker."""
        self._app_id = settings.app.id
        self._cluster = cluster
        self._lanes = lanes
        self._records = OpenRecordWatch(settings.app.id, cluster)
        self._run: RunResult | None = None
        self._asked = False
        """Whether the cluster has answered the question for the last run."""

    async def refresh(self) -> None:
        """Ask the cluster."""
        await self._records.refresh(sorted({address.quarantine_topic for address in self._addresses()}))
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            # keep the last answer: brokers delete the group's offsets after a week without a run
            self._run = await self._last_run() or self._run
            self._asked = True

    async def _last_run(self) -> RunResult | None:
        with contextlib.suppress(GroupAuthorizationFailedError):
            return await last_run(self._cluster.connection, self._app_id)
        return None

    def _addresses(self) -> list[AddressSettings]:
        return [lane.opening.address for lane in self._lanes() if not lane.opening.number]

    def collect(self) -> Iterator[Metric]:
        """Return the result of the last look."""
        families = {
            name: GaugeMetricFamily(f"ringfence_{name}", text, labels=["address"])
            for name, text in _FAMILIES.items()
        }
        count, oldest = families.values()
        for address in self._addresses():
            records = self._records.open_records(address.quarantine_topic)
            known = self._records.knows(address.quarantine_topic)
            count.add_metric([address.name], records.count if records else 0 if known else math.nan)
            oldest.add_metric([address.name], records.oldest_seconds if records else 0)
        yield from families.values()
        ok = GaugeMetricFamily(
            "ringfence_run_ok", "1 = the last reconciliation run was clean or is acknowledged."
        )
        age = GaugeMetricFamily(
            "ringfence_run_age_seconds",
            "Time since the last reconciliation run ended; +Inf = no run is known, or this worker may not see it.",
        )
        if (run := self._run) is not None:
            ok.add_metric([], float(run.ok))
            age.add_metric([], max(0.0, time.time() - run.ended_ms / 1000))
        elif self._asked:
            age.add_metric([], math.inf)
        yield from (ok, age)

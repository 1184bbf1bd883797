"""Open records in bridges' quarantines, in target clusters, for status and ``/metrics``."""

import asyncio
import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from aiokafka.errors import KafkaError
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agents.bridge.bridge import Bridge
from agents.bridge.plan import Plan
from ringfence_client.progress.open_records import EVERY_S, OpenRecordCounts, OpenRecords, read_open_records
from ringfence_client.progress.progress_record import ProgressFormatError
from ringfence_kafka import clock
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import RingfenceError

LOOK_LIMIT_S: Final = 5.0
"""Time limit for all targets, which are asked concurrently, in seconds."""
_FAMILIES: Final = {
    "open_records": "Open quarantined records, from the process with the first source partition; NaN = unknown.",
    "oldest_seconds": "Age of the oldest open record; 0 = none is open.",
}


class BridgeQuarantines:
    """Quarantines of bridges. Counts are kept between looks."""

    def __init__(self) -> None:
        """Start without counts."""
        self._counts: list[tuple[KafkaSettings, OpenRecordCounts]] = []
        """Target cluster and its counts."""

    async def read(self, plans: Sequence[Plan]) -> Mapping[str, OpenRecords | None]:
        """Return the open records by bridge, None = none. Bridges whose target is silent are absent."""
        targets: list[list[Plan]] = []
        for plan in plans:
            same = next((each for each in targets if each[0].target == plan.target), None)
            targets.append([plan]) if same is None else same.append(plan)
        found = await asyncio.gather(*map(self._at_target, targets))
        return {name: records for each in found for name, records in each.items()}

    async def _at_target(self, plans: Sequence[Plan]) -> Mapping[str, OpenRecords | None]:
        target, app_id = plans[0].target, plans[0].app_id
        counts = next((known for kafka, known in self._counts if kafka == target), None)
        if counts is None:
            counts = OpenRecordCounts(target, bridge_app=app_id)
            self._counts.append((target, counts))
        with contextlib.suppress(KafkaError, OSError, TimeoutError, RingfenceError, ProgressFormatError):
            async with asyncio.timeout(LOOK_LIMIT_S), Cluster(target, app_id) as cluster:
                topics = sorted({plan.quarantine_topic for plan in plans})
                records, faults = await read_open_records(cluster, app_id, counts, topics)
                return {
                    plan.name: records.get((plan.quarantine_topic, ""))
                    for plan in plans
                    if plan.quarantine_topic not in faults
                }
        return {}


class QuarantineMetrics(Collector):
    """Metrics of quarantines. The process with a bridge's first source partition counts its quarantine."""

    def __init__(self, bridges: Iterable[Bridge]) -> None:
        self._bridges = bridges
        self._quarantines = BridgeQuarantines()
        self._found: Mapping[str, OpenRecords | None] = {}

    async def run(self) -> None:
        """Count at intervals, and at once when first partitions are assigned or revoked, until cancelled."""
        asked, asked_at = list[Plan](), -math.inf
        while True:
            if (plans := self._plans()) != asked or clock.now() - asked_at >= EVERY_S:
                self._found = await self._quarantines.read(plans)
                asked, asked_at = plans, clock.now()
            await asyncio.sleep(1.0)

    def _plans(self) -> list[Plan]:
        return [bridge.plan for bridge in self._bridges if 0 in (bridge.state.assigned or ())]

    def collect(self) -> Iterator[Metric]:
        """Return the result of the last look."""
        count, oldest = families = [
            GaugeMetricFamily(f"ringfence_bridge_quarantine_{name}", text, labels=["bridge"])
            for name, text in _FAMILIES.items()
        ]
        for plan in self._plans():
            records = self._found.get(plan.name)
            none = 0 if plan.name in self._found else math.nan
            count.add_metric([plan.name], records.count if records else none)
            oldest.add_metric([plan.name], records.oldest_seconds if records else 0)
        yield from families

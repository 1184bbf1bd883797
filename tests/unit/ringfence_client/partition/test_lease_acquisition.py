"""The memory of former openings of a partition.

Tests with a broker cover the transfer of leases.
"""

import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from ringfence_client.consumer.foreign_members import watch_of
from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.partition import lease_acquisition as module
from ringfence_client.partition.lease_acquisition import LeaseAcquisition
from ringfence_client.progress.progress_record import HELD, Progress
from ringfence_client.sends.destinations import Destinations
from ringfence_client.sends.state_store import StateReader
from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_kafka import clock
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import KafkaSettings
from tests.support.cluster_double import ClusterDouble

TOPIC = "orders.accepted"
SETTINGS = validate({"addresses": [{"name": "orders"}]})


class _Producer:
    """Fences, and writes nothing."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        yield

    async def fence(self, _limit_s: float) -> None: ...


class _Progress:
    """The last record of each lease."""

    name = "rf-progress"

    def __init__(self) -> None:
        self.records: dict[bytes, Progress] = {}

    def home(self, _key: bytes) -> int:
        return 0

    async def look(self, key: bytes) -> tuple[Progress | None, float]:
        return self.records.get(key), clock.now()


class _Cluster(ClusterDouble):
    group_id = "billing"

    async def identity(self, _topic: str) -> Any:
        return SimpleNamespace(topic_id="id", partitions=2)

    async def committed(self, _topic: str, _partition: int) -> None:
        return None

    async def log_start(self, _topic: str, _partition: int) -> int:
        return 0

    high_watermark = log_start


def _nobody_waits(text: str) -> None:
    raise AssertionError(text)


async def _member() -> bool:
    return True


@pytest.mark.parametrize("written", [None, 0, 1, 3, 10])
async def test_openings_that_fail_leave_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, written: int | None
) -> None:
    """Failed openings leave nothing behind, however often one ends after its fence.

    A record that names any lease of ours is not waited for.
    """
    monkeypatch.setattr(module, "TransactionalProducer", _Producer)
    progress: Any = _Progress()
    cluster: Any = _Cluster()
    letters: Any = None
    acquisition = LeaseAcquisition(
        KafkaSettings(),
        "rf",
        cluster,
        progress,
        letters,
        ConsumerOptions(),
        MemoryBudget(2**26),
        watch_of(cluster, TOPIC),
        StateReader(cluster, Destinations(SETTINGS, SETTINGS.addresses[0], "billing", cluster)),
    )
    for number in range(100):
        for partition in range(2):
            lease, window, _ = await acquisition.open(TOPIC, partition, _member, _nobody_waits)
            if number == written:
                progress.records[lease.key] = Progress(
                    0, holder=lease.holder, state=HELD, running=1, token=lease.token
                )
            window.cache.close()
            acquisition.ended(lease)
    remembered = sum(map(len, acquisition._ended.values()))
    await acquisition.stop()

    assert remembered <= 2 * 2

"""The scripts that tests/simulation/ goes by, on a real broker: what is simulated answers as it does (tests/simulation/test_cluster.py)."""

import pytest
from aiokafka import AIOKafkaProducer

from ringfence_kafka.cluster import Cluster
from ringfence_kafka.config.settings import KafkaSettings
from tests.simulation.scripts import SCRIPTS
from tests.support import kafka


class _Real:
    """A side of the scripts."""

    def __init__(self, bootstrap: str, cluster: Cluster) -> None:
        self.topic, self.group = kafka.unique("scripted"), cluster.group_id
        self._bootstrap = bootstrap
        self._cluster = cluster
        kafka.create_topics(bootstrap, {self.topic: (1, {})})

    def producer(self, name: str) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, transactional_id=f"{self.topic}-{name}", retry_backoff_ms=40
        )

    async def ends(self) -> tuple[int, int]:
        stable = await self._cluster.stable_end(self.topic, 0)
        return stable, await self._cluster.high_watermark(self.topic, 0)

    async def committed(self) -> int | None:
        return await self._cluster.committed(self.topic, 0)

    async def values(self) -> list[bytes]:
        stable, _ = await self.ends()
        found = kafka.read_all(self._bootstrap, self.topic, 1) if stable else []
        return [each.value or b"" for each in found]


@pytest.mark.parametrize("name", SCRIPTS)
async def test_script(bootstrap: str, name: str) -> None:
    script, expected = SCRIPTS[name]
    async with Cluster(KafkaSettings(bootstrap_servers=bootstrap), kafka.unique("scripted-group")) as cluster:
        told = await script(_Real(bootstrap, cluster))

    assert told == expected

"""The scripts that tests/simulation/ goes by, on a real broker: what is simulated answers as it does (test_cluster.py and test_topics.py there)."""

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from ringfence_client.assignor import KeepingAssignor
from ringfence_kafka.cluster import Cluster
from ringfence_kafka.config.settings import KafkaSettings
from tests.simulation import topic_scripts
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


class _RealTopics:
    """A side of the scripts of groups, retention and compaction."""

    def __init__(self, bootstrap: str, cluster: Cluster, **config: str) -> None:
        self.topic, self.group = kafka.unique("scripted"), cluster.group_id
        self._bootstrap = bootstrap
        self._cluster = cluster
        kafka.create_topics(bootstrap, {self.topic: (topic_scripts.PARTITIONS, config)})

    def member(self, listener: Any) -> AIOKafkaConsumer:
        member = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=self.group,
            heartbeat_interval_ms=100,
            enable_auto_commit=False,
            partition_assignment_strategy=[KeepingAssignor(self.topic, dict)],
        )
        member.subscribe([self.topic], listener=listener)
        return member

    def reader(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="none",
        )

    async def send(self, key: bytes, value: bytes) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self._bootstrap, acks="all") as producer:
            await producer.send_and_wait(self.topic, value, key, partition=0)

    async def abort(self, key: bytes, value: bytes) -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, transactional_id=f"{self.topic}-aborting"
        ) as producer:
            await producer.begin_transaction()
            await (await producer.send(self.topic, value, key, partition=0))
            await producer.abort_transaction()

    async def bounds(self) -> tuple[int, int]:
        return await self._cluster.log_start(self.topic, 0), await self._cluster.high_watermark(self.topic, 0)

    async def delete_below(self, offset: int) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            await admin.delete_records({TopicPartition(self.topic, 0): RecordsToDelete(before_offset=offset)})
        finally:
            await admin.close()

    async def compact(self, count: int) -> None:
        """The segment that is open is never compacted: others are begun until it is done."""
        left = -1
        async with asyncio.timeout(90):
            while left != count:
                await self.send(b"roll", b"roll")
                await asyncio.sleep(1)
                left = sum(each.value != b"roll" for each in kafka.read_all(self._bootstrap, self.topic, 1))


async def _told(bootstrap: str, name: str, **config: str) -> tuple[list[Any], list[Any]]:
    script, expected = (dict(topic_scripts.SCRIPTS) | dict(topic_scripts.SLOW))[name]
    async with Cluster(KafkaSettings(bootstrap_servers=bootstrap), kafka.unique("scripted-group")) as cluster:
        return await script(_RealTopics(bootstrap, cluster, **config)), expected


@pytest.mark.parametrize("name", topic_scripts.SCRIPTS)
async def test_script_of_topics(bootstrap: str, name: str) -> None:
    told, expected = await _told(bootstrap, name)

    assert told == expected


@pytest.mark.long
@pytest.mark.parametrize("name", topic_scripts.SLOW)
async def test_slow_script_of_topics(bootstrap: str, name: str) -> None:
    told, expected = await _told(
        bootstrap,
        name,
        **{"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"},
    )

    assert told == expected

"""The scripts of tests/simulator/ on a real broker: the simulated cluster answers as it does.

The same tests run on the simulated cluster.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

from ringfence_client.consumer.assignor import KeepingAssignor
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.producer import transaction_v2_requests
from ringfence_kafka.protocol.flexible_requests import Question
from tests.simulator.conformance import late_requests, topics
from tests.simulator.conformance.late_requests import FENCED, NOT_IN_ONE, OUT_OF_ORDER, WELL
from tests.simulator.conformance.transactions import SCRIPTS
from tests.support import kafka
from tests.support.brokers import features

MOMENTARY = {3, 5, 6, 14, 15, 16, 19, 51}
"""Error codes that pass by themselves.

They stand for a new topic, a coordinator that is loading or elsewhere, NOT_ENOUGH_REPLICAS (of a partition, before its markers), and
CONCURRENT_TRANSACTIONS.
"""
NAMES = {0: WELL, 45: OUT_OF_ORDER, 47: FENCED, 48: NOT_IN_ONE, 90: FENCED}
"""Names of error codes."""


class _Real:
    """The real broker as the scripts use it."""

    def __init__(self, bootstrap: str, cluster: Cluster) -> None:
        self.topic, self.group = kafka.unique("scripted"), cluster.group_id
        self.bootstrap = bootstrap
        self._cluster = cluster
        kafka.create_topics(bootstrap, {self.topic: (1, {})})

    def producer(self, name: str) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, transactional_id=f"{self.topic}-{name}", retry_backoff_ms=40
        )

    async def ends(self) -> tuple[int, int]:
        stable = await self._cluster.offsets.stable_end(self.topic, 0)
        return stable, await self._cluster.offsets.high_watermark(self.topic, 0)

    async def committed(self) -> int | None:
        return await self._cluster.groups.committed_offset(self.topic, 0)

    async def values(self) -> list[bytes]:
        stable, _ = await self.ends()
        found = kafka.read_all(self.bootstrap, self.topic, 1) if stable else []
        return [item.value or b"" for item in found]


@pytest.mark.parametrize("name", SCRIPTS)
async def test_script(bootstrap: str, name: str) -> None:
    script, expected = SCRIPTS[name]
    async with Cluster(KafkaSettings(bootstrap_servers=bootstrap), kafka.unique("scripted-group")) as cluster:
        told = await script(_Real(bootstrap, cluster))

    assert told == expected


class _RealTopics:
    """The real broker for the scripts of groups, retention and compaction."""

    def __init__(self, bootstrap: str, cluster: Cluster, **config: str) -> None:
        self.topic, self.group = kafka.unique("scripted"), cluster.group_id
        self.bootstrap = bootstrap
        self._cluster = cluster
        kafka.create_topics(bootstrap, {self.topic: (topics.PARTITIONS, config)})

    def member(self, listener: Any) -> AIOKafkaConsumer:
        member = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            heartbeat_interval_ms=100,
            enable_auto_commit=False,
            partition_assignment_strategy=[KeepingAssignor(self.topic, dict)],
        )
        member.subscribe([self.topic], listener=listener)
        return member

    def reader(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="none",
        )

    async def send(self, key: bytes, value: bytes) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all") as producer:
            await producer.send_and_wait(self.topic, value, key, partition=0)

    async def abort(self, key: bytes, value: bytes) -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, transactional_id=f"{self.topic}-aborting"
        ) as producer:
            await producer.begin_transaction()
            await (await producer.send(self.topic, value, key, partition=0))
            await producer.abort_transaction()

    async def bounds(self) -> tuple[int, int]:
        return await self._cluster.offsets.log_start(
            self.topic, 0
        ), await self._cluster.offsets.high_watermark(self.topic, 0)

    async def delete_below(self, offset: int) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            await admin.delete_records({TopicPartition(self.topic, 0): RecordsToDelete(before_offset=offset)})
        finally:
            await admin.close()

    async def compact(self, count: int) -> None:
        """Begin segments until all is compacted: the open one is never compacted."""
        left = -1
        async with asyncio.timeout(90):
            while left != count:
                await self.send(b"roll", b"roll")
                await asyncio.sleep(1)
                left = sum(item.value != b"roll" for item in kafka.read_all(self.bootstrap, self.topic, 1))


async def _told(bootstrap: str, name: str, **config: str) -> tuple[list[Any], list[Any]]:
    script, expected = (dict(topics.SCRIPTS) | dict(topics.SLOW))[name]
    async with Cluster(KafkaSettings(bootstrap_servers=bootstrap), kafka.unique("scripted-group")) as cluster:
        return await script(_RealTopics(bootstrap, cluster, **config)), expected


@pytest.mark.parametrize("name", topics.SCRIPTS)
async def test_script_of_topics(bootstrap: str, name: str) -> None:
    told, expected = await _told(bootstrap, name)

    assert told == expected


@pytest.mark.long
@pytest.mark.parametrize("name", topics.SLOW)
async def test_slow_script_of_topics(bootstrap: str, name: str) -> None:
    told, expected = await _told(
        bootstrap,
        name,
        **{"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"},
    )

    assert told == expected


class _RealRequests:
    """The real broker for the scripts of late requests."""

    def __init__(self, real: _Real, transport: AIOKafkaProducer) -> None:
        """``transport``: by which requests go; it writes nothing itself."""
        self._real = real
        self._transport = transport
        self._name = f"{real.topic}-late"
        self._id = -1

    async def _ask(self, question: Any, codes: Callable[[Any], set[int]]) -> Any:
        """Return the first answer that is not one of the moment."""
        if isinstance(question, Question):
            features.require(self._real.bootstrap, transaction_v2_requests.FEATURE)
        async with asyncio.timeout(30):
            while True:
                (node,) = (broker.nodeId for broker in self._transport.client.cluster.brokers())
                answer = await self._transport.client.send(node, question)
                if not codes(answer) & MOMENTARY:
                    return answer
                await asyncio.sleep(0.02)

    async def initialise(self) -> int:
        question = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=30_000)
        answer = await self._ask(question, lambda item: {item.error_code})
        self._id = answer.producer_id
        return int(answer.producer_epoch)

    async def add(self, epoch: int) -> str:
        question = AddPartitionsToTxnRequest(
            transactional_id=self._name, producer_id=self._id, producer_epoch=epoch, topics=[(self._real.topic, [0])]
        )  # fmt: skip
        (code,) = _codes(await self._ask(question, _codes))
        return NAMES[code]

    async def write(self, epoch: int, sequence: int, value: bytes, *, implicit: bool = False) -> Any:
        builder = self._transport.create_batch()
        builder.append(timestamp=None, key=None, value=value, headers=[])
        builder._set_producer_state(self._id, epoch, sequence)
        data = bytes(builder._build())
        if implicit:
            place = self._real.topic, 0
            question: Any = transaction_v2_requests.produce(self._name, 30_000, {place: data})
            code, base = (await self._ask(question, lambda item: {item[place][0]}))[place]
        else:
            question = ProduceRequest(
                required_acks=-1, timeout=30_000, topics=[(self._real.topic, [(0, data)])], transactional_id=self._name
            )  # fmt: skip
            answer = await self._ask(question, lambda item: {item.topics[0][1][0][1]})
            _, code, base, *_ = answer.topics[0][1][0]
        return NAMES[code] if code else base

    async def add_group(self, epoch: int) -> str:
        question = AddOffsetsToTxnRequest(
            transactional_id=self._name, producer_id=self._id, producer_epoch=epoch, group_id=self._real.group
        )
        return NAMES[(await self._ask(question, lambda item: {item.error_code})).error_code]

    async def commit_offset(self, epoch: int, offset: int, *, implicit: bool = False) -> str:
        topic, group = self._real.topic, self._real.group
        if implicit:
            who = transaction_v2_requests.Producer(self._id, epoch)
            question: Any = transaction_v2_requests.commit_offsets(
                self._name, group, who, {(topic, 0): offset}
            )
            answer = await self._ask(question, lambda item: set(item.values()))
            return NAMES[answer[topic, 0]]
        question = TxnOffsetCommitRequest(
            transactional_id=self._name, group_id=group, producer_id=self._id, producer_epoch=epoch,
            topics=[(topic, [(0, offset, "")])],
        )  # fmt: skip
        (code,) = _codes(await self._ask(question, _codes))
        return NAMES[code]

    async def end(self, epoch: int, *, commit: bool, implicit: bool = False) -> Any:
        if implicit:
            question: Any = transaction_v2_requests.end(
                self._name, transaction_v2_requests.Producer(self._id, epoch), commit=commit
            )
            answer = await self._ask(question, lambda item: {item.error_code})
            return NAMES[answer.error_code] if answer.error_code else answer.producer.epoch - epoch
        question = EndTxnRequest(
            transactional_id=self._name, producer_id=self._id, producer_epoch=epoch, transaction_result=commit
        )
        return NAMES[(await self._ask(question, lambda item: {item.error_code})).error_code]

    async def values(self) -> list[bytes]:
        stable, end = await self._real.ends()
        while stable < end:
            await asyncio.sleep(0.02)
            stable, end = await self._real.ends()
        return await self._real.values()

    async def committed(self) -> int | None:
        return await self._real.committed()


def _codes(answer: Any) -> set[int]:
    return {code for _, partitions in answer.errors for _, code in partitions}


@pytest.mark.parametrize("name", late_requests.SCRIPTS)
async def test_script_of_what_comes_late(bootstrap: str, name: str) -> None:
    script, expected = late_requests.SCRIPTS[name]
    async with Cluster(KafkaSettings(bootstrap_servers=bootstrap), kafka.unique("scripted-group")) as cluster:
        real = _Real(bootstrap, cluster)
        transport = real.producer("transport")
        await transport.start()
        try:
            told = await script(_RealRequests(real, transport))
        finally:
            await transport.stop()

    assert told == expected

"""A topic refuses writes while transactions run: nothing else of such a transaction is visible in any topic."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

import pytest
from aiokafka.errors import KafkaError
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.producer.transactional import Outgoing, TransactionalProducer
from tests.harness.system import AUTHORIZER
from tests.support import kafka
from tests.support.brokers import acls
from tests.support.lanes import until

LANES: Final = 48
"""Enough of them keep the broker busy, so that markers come a while after the commit was answered."""
WRITTEN: Final = 2
"""Transactions of each lane before a refusal."""
ROUNDS: Final = 2
LIMIT_S: Final = 180


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedBroker(tmp_path_factory.mktemp("guarded"), properties=AUTHORIZER) as broker:
        kafka.settle(broker.bootstrap_servers)
        yield broker.bootstrap_servers


@contextlib.contextmanager
def _refused(bootstrap: str, topic: str) -> Iterator[None]:
    right = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, AclOperation.WRITE)
    acls.add(bootstrap, "ANONYMOUS", right, allow=False)
    yield
    acls.remove(bootstrap, "ANONYMOUS", right, allow=False)


class Lane:
    """A writer of the same numbers to the same partition of two topics, a transaction for each number, until it is stopped."""

    def __init__(self, bootstrap: str, topics: tuple[str, str], partition: int) -> None:
        self._kafka = KafkaSettings(bootstrap_servers=bootstrap)
        self._topics = topics
        self._partition = partition
        self.written = 0
        self.refused = 0
        self.stopped = False

    async def run(self) -> None:
        while not self.stopped:
            producer = TransactionalProducer(
                self._kafka, f"{self._topics[0]}-{self._partition}", f"{self._partition}"
            )
            with contextlib.suppress(KafkaError):
                async with producer.kept():
                    await producer.fence()
                    while not self.stopped:
                        await producer.transact(self._batches(producer), {}, "")
                        self.written += 1
            self.refused += not self.stopped
            await producer.discard()

    def _batches(self, producer: TransactionalProducer) -> list[Outgoing]:
        builders = [producer.builder() for _ in self._topics]
        for builder in builders:
            builder.append(
                timestamp=None, key=None, value=b"%d %d" % (self.written, self.refused), headers=[]
            )
        return [
            Outgoing(topic, self._partition, builder)
            for topic, builder in zip(self._topics, builders, strict=True)
        ]


@pytest.mark.parametrize("transactions", ["on", pytest.param("off", marks=pytest.mark.long)], indirect=True)
@pytest.mark.usefixtures("transactions")
async def test_what_was_refused_in_part_is_nowhere(guarded: str) -> None:
    """Each number is in both topics or in none, however soon the refusal comes behind the transaction before."""
    topics = kafka.unique("refusing"), kafka.unique("taking")
    kafka.create_topics(guarded, dict.fromkeys(topics, (LANES, {})))
    lanes = [Lane(guarded, topics, index) for index in range(LANES)]
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as running:
        for lane in lanes:
            running.create_task(lane.run())
        for _ in range(ROUNDS):
            await _more(lanes, "written", WRITTEN)
            with _refused(guarded, topics[0]):
                await _more(lanes, "refused", 1)
        await _more(lanes, "written", 1)
        for lane in lanes:
            lane.stopped = True
    found = [
        [(item.partition, item.value) for item in kafka.read_all(guarded, topic, LANES)] for topic in topics
    ]

    assert sorted(set(found[0]) ^ set(found[1])) == []
    assert len(found[0]) >= ROUNDS * WRITTEN * LANES


async def _more(lanes: list[Lane], what: str, count: int) -> None:
    then = [getattr(lane, what) + count for lane in lanes]
    await until(
        lambda: all(getattr(lane, what) >= least for lane, least in zip(lanes, then, strict=True)),
        lambda: f"{what}: {[getattr(lane, what) for lane in lanes]}",
    )

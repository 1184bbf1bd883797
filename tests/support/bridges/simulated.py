"""Instances of a bridge with the product's window and flow, before a target that loses batches and answers, or gets them late."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

from agents.bridge.batch_builder import BatchBuilder, Target
from agents.bridge.flow import Flow
from agents.bridge.plan import Plan, plans
from agents.bridge.producer_session import ProducerSession, SessionEndedError
from agents.bridge.source import Read
from agents.bridge.state import BridgeState
from ringfence_kafka.config.load import validate
from ringfence_kafka.producer.idempotent import IdempotentProducer

TOPIC_ID: Final = "A" * 22
STEPS_MAX: Final = 4_000


class Message(NamedTuple):
    """A record of the source."""

    offset: int
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    timestamp: int = 0


@dataclass
class Builder:
    """A record batch."""

    records: list[dict[str, Any]] = field(default_factory=list)

    def append(self, **record: Any) -> object:
        self.records.append(record)
        return record

    def size(self) -> int:
        return 100


@dataclass
class Outstanding:
    """A batch that an instance has sent."""

    topic: str
    partition: int
    builder: Builder
    answer: "asyncio.Future[None]"


class Producer:
    """Double of the product's producer."""

    def __init__(self) -> None:
        self.outstanding: list[Outstanding] = []

    async def send(self, topic: str, partition: int, builder: Builder) -> None:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.outstanding.append(Outstanding(topic, partition, builder, answer))
        await answer

    @property
    def unanswered(self) -> list[Outstanding]:
        return [batch for batch in self.outstanding if not batch.answer.done()]

    async def discard(self) -> None:
        """Do nothing: nothing is connected."""


class Instance:
    """One process of the bridge."""

    def __init__(self, system: "System") -> None:
        self.plan = system.chance.choice(system.plans)
        self.flow = Flow(self.plan, BridgeState(self.plan.name), None)
        for partition, offset in system.committed.items():
            self.flow.window.open(partition, TOPIC_ID, offset)
        self.system = system
        self.begin()

    def begin(self) -> None:
        self.producer = Producer()
        self.life = ProducerSession(self.plan.name, cast("IdempotentProducer", self.producer))
        self.loader = BatchBuilder(
            self.plan, self.system.target, Builder, self.flow.records_max, self.flow.refused
        )

    async def read(self, count: int) -> None:
        window = self.flow.window
        wanted = {} if window.full else self.flow.wanted()
        found = Read()
        for partition, begun in wanted.items():
            records = self.system.source[partition][begun : begun + min(count, window.take)]
            if records:
                found.records[partition] = list(records)
                found.reached[partition] = begun + len(records)
        if wanted:
            await self.flow.send(self.life, self.loader, wanted, found, self._look)

    async def _look(self) -> Target:
        return self.system.target

    async def settle(self) -> None:
        """Take acknowledgements, or begin again if the producer's session has ended."""
        await self.flow.confirm()
        try:
            self.life.check()
        except SessionEndedError as error:
            self.flow.learn(error)
            await self.end()
            self.flow.start_over()
            self.begin()

    async def end(self) -> None:
        self.system.late += self.producer.unanswered
        await self.life.discard()

    def commit(self) -> None:
        for partition, place in self.flow.window.places.items():
            self.system.committed[partition] = place.confirmed

    @property
    def done(self) -> bool:
        places = self.flow.window.places
        return all(place.confirmed == len(self.system.source[number]) for number, place in places.items())


class System:
    """Source, target and group of one run."""

    def __init__(
        self, chance: random.Random, partitioners: Sequence[str] = ("murmur2",), partitions: int = 0
    ) -> None:
        self.chance = chance
        self.partitions = partitions or chance.randint(1, 3)
        window, user_ids = chance.choice([2, 3, 6, 12, 40]), chance.choice(["check", "ignore"])
        self.plans = [_plan(window, user_ids, partitioner) for partitioner in partitioners]
        self.plan = self.plans[0]
        self.target = Target(self.partitions, 1_000, compacted=False, quarantine_bytes_max=1_000)
        self.source = [_source(chance, chance.randint(0, 40)) for _ in range(chance.randint(1, 3))]
        self.committed = dict.fromkeys(range(len(self.source)), 0)
        self.logs: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        self.late: list[Outstanding] = []
        self.refuses = True
        """Whether the target refuses poison as too large: somebody may raise the limit."""

    def arrive(self, batch: Outstanding) -> bool:
        poisoned = batch.topic == self.plan.target_topic and any(
            record["value"] == b"poison" for record in batch.builder.records
        )
        taken = not (poisoned and self.refuses)
        if taken:
            self.logs[batch.topic, batch.partition] += batch.builder.records
        return taken

    def answer(self, batch: Outstanding) -> None:
        fate = self.chance.random()
        if fate < 0.1:
            batch.answer.set_exception(KafkaTimeoutError("lost"))
            if self.chance.random() < 0.5:
                self.late.append(batch)
        elif not self.arrive(batch):
            batch.answer.set_exception(MessageSizeTooLargeError("too large"))
        elif fate < 0.2:
            batch.answer.set_exception(KafkaTimeoutError("its answer is lost"))
        else:
            batch.answer.set_result(None)


def _plan(window: int, user_ids: str, partitioner: str) -> Plan:
    bridge = {
        "name": "b", "source_topic": "s", "target_address": "t", "window": window, "user_ids": user_ids,
        "filter_header": "pass", "filter_values": ["y"], "target": {"bootstrap_servers": "other:1"},
    }  # fmt: skip
    (plan,) = plans(validate({"bridges": [bridge], "addresses": [{"name": "t", "partitioner": partitioner}]}))
    return plan


def _source(chance: random.Random, count: int) -> list[Message]:
    return [
        Message(
            offset,
            chance.choice([None, b"g1", b"g2", b"g3", b"g4"]),
            b"poison" if chance.random() < 0.04 else b"m%d" % offset,
            (("pass", b"n" if chance.random() < 0.15 else b"y"),),
        )
        for offset in range(count)
    ]


async def run(system: System) -> System:
    """Run random events, and then one instance that does the rest. Late batches arrive at the end."""
    chance = system.chance
    instances = [Instance(system)]
    for _ in range(chance.randint(50, 400)):
        act = chance.random()
        if act < 0.03 or not instances:
            if len(instances) < 2:
                instances.append(Instance(system))
        elif act < 0.06:
            await instances.pop(chance.randrange(len(instances))).end()
        elif act < 0.08:
            partition = chance.randrange(len(system.source))
            system.committed[partition] = chance.randint(0, system.committed[partition])
        elif act < 0.13 and system.late:
            system.arrive(system.late.pop(chance.randrange(len(system.late))))
        elif act < 0.133:
            system.refuses = False
        else:
            await _step(chance.choice(instances), chance)
    for instance in instances:
        await instance.end()
    await finish(system)
    for batch in system.late:
        system.arrive(batch)
    return system


async def _step(instance: Instance, chance: random.Random) -> None:
    act = chance.random()
    if act < 0.35:
        await instance.read(chance.randint(1, 6))
    elif act < 0.75:
        if waiting := instance.producer.unanswered:
            instance.system.answer(chance.choice(waiting))
    elif act < 0.9:
        await instance.settle()
    else:
        instance.commit()
    for _ in range(3):
        await asyncio.sleep(0)


async def serve(instance: Instance, topics: Sequence[str]) -> None:
    """Serve an instance: batches for these topics meet only refusals; batches for others stay on their way."""
    await instance.read(6)
    await asyncio.sleep(0)
    for outstanding in instance.producer.unanswered:
        if outstanding.topic in topics:
            if instance.system.arrive(outstanding):
                outstanding.answer.set_result(None)
            else:
                outstanding.answer.set_exception(MessageSizeTooLargeError("too large"))
    for _ in range(3):
        await asyncio.sleep(0)
    await instance.settle()


async def finish(system: System) -> None:
    last = Instance(system)
    for _ in range(STEPS_MAX):
        await serve(last, [system.plan.target_topic, system.plan.quarantine_topic])
        if last.done:
            break
    assert last.done, "stuck"
    await last.end()

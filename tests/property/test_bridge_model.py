"""Instances of a bridge that live, fail, are frozen and die, before a target that loses batches, answers, or gets both late.

The real window, loader, producer's life and flow; the source, the target's log and the group's offsets are simulated, and at the target the
real hop memory judges. Whatever happens, what passes is what the source has, once, in order, in each of the target's partitions.
"""

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

import pytest
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

from agents.bridge.flow import Flow
from agents.bridge.life import Life, LifeEndedError
from agents.bridge.load import Loader, Target
from agents.bridge.plan import Plan, plans
from agents.bridge.source import Read
from agents.bridge.state import BridgeState
from agents.home import Home
from ringfence_kafka import hop
from ringfence_kafka.config.load import validate
from ringfence_kafka.idempotent import IdempotentProducer
from tables.codec import Way
from tables.hops import Arrival, HopMemory

RUNS: Final = 400
TOPIC_ID: Final = "A" * 22
CAPACITY: Final = 1_000
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
        """It is never full."""
        self.records.append(record)
        return record

    def size(self) -> int:
        """In bytes; what is too large is only known at the target."""
        return 100


@dataclass
class Outstanding:
    """A batch that somebody has handed over."""

    topic: str
    partition: int
    builder: Builder
    answer: "asyncio.Future[None]"


class Producer:
    """In place of aiokafka's."""

    def __init__(self) -> None:
        self.outstanding: list[Outstanding] = []

    async def send(self, topic: str, partition: int, builder: Builder) -> None:
        """Until the simulation says what became of it."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.outstanding.append(Outstanding(topic, partition, builder, answer))
        await answer

    async def discard(self) -> None:
        """Nothing is connected."""


class Instance:
    """One process."""

    def __init__(self, system: "System") -> None:
        self.flow = Flow(system.plan, BridgeState(system.plan.name), None)
        for partition, offset in system.committed.items():
            self.flow.window.open(partition, TOPIC_ID, offset)
        self._system = system
        self.begin()

    def begin(self) -> None:
        """A producer's next life."""
        self.producer = Producer()
        self.life = Life(self._system.plan.name, cast("IdempotentProducer", self.producer))
        self.loader = Loader(
            self._system.plan, self._system.target, Builder, self.flow.records_max, self.flow.refused
        )

    async def read(self, count: int) -> None:
        """One cycle, if the window lets."""
        window = self.flow.window
        wanted = {} if window.full else self.flow.wanted()
        found = Read()
        for partition, begun in wanted.items():
            records = self._system.source[partition][begun : begun + min(count, window.take)]
            if records:
                found.records[partition] = list(records)
                found.reached[partition] = begun + len(records)
        if wanted:
            await self.flow.send(self.life, self.loader, wanted, found)

    async def settle(self) -> None:
        """What was acknowledged, or that it has ended."""
        await self.flow.settle()
        try:
            self.life.check()
        except LifeEndedError as error:
            self.flow.learn(error)
            await self.end()
            self.flow.start_over()
            self.begin()

    async def end(self) -> None:
        """What is out may still arrive."""
        self._system.late += [each for each in self.producer.outstanding if not each.answer.done()]
        await self.life.discard()

    def commit(self) -> None:
        """What is confirmed, whatever others have committed."""
        for partition, place in self.flow.window.places.items():
            self._system.committed[partition] = place.confirmed

    @property
    def done(self) -> bool:
        """Whether all is confirmed."""
        places = self.flow.window.places
        return all(each.confirmed == len(self._system.source[number]) for number, each in places.items())


class System:
    """Source, target and group of one run."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.partitions = chance.randint(1, 3)
        self.plan = _plan(chance.choice([2, 3, 6, 12, 40]), user_ids=chance.choice(["check", "ignore"]))
        self.target = Target(self.partitions, 1_000, compacted=False, quarantine_bytes_max=1_000)
        self.source = [_source(chance, chance.randint(0, 40)) for _ in range(chance.randint(1, 3))]
        self.committed = dict.fromkeys(range(len(self.source)), 0)
        self.logs: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        self.late: list[Outstanding] = []

    def arrive(self, batch: Outstanding) -> bool:
        """Append a batch; False: the target does not take it."""
        taken = batch.topic != self.plan.target_topic or not any(
            each["value"].startswith(b"poison") for each in batch.builder.records
        )
        if taken:
            self.logs[batch.topic, batch.partition] += batch.builder.records
        return taken

    def answer(self, batch: Outstanding) -> None:
        """One of the things that may become of a batch."""
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


def _plan(window: int, user_ids: str) -> Plan:
    bridge = {
        "name": "b", "source_topic": "s", "target_address": "t", "window": window, "user_ids": user_ids,
        "filter_header": "pass", "filter_values": ["y"], "target": {"bootstrap_servers": "other:1"},
    }  # fmt: skip
    (plan,) = plans(validate({"bridges": [bridge]}))
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


async def _run(seed: int) -> System:
    chance = random.Random(seed)
    system = System(chance)
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
        else:
            await _step(chance.choice(instances), chance)
    for each in instances:
        await each.end()
    await _finish(system)
    for batch in system.late:
        system.arrive(batch)
    return system


async def _step(instance: Instance, chance: random.Random) -> None:
    act = chance.random()
    if act < 0.35:
        await instance.read(chance.randint(1, 6))
    elif act < 0.75:
        waiting = [each for each in instance.producer.outstanding if not each.answer.done()]
        if waiting:
            instance._system.answer(chance.choice(waiting))
    elif act < 0.9:
        await instance.settle()
    else:
        instance.commit()
    for _ in range(3):
        await asyncio.sleep(0)


async def _finish(system: System) -> None:
    """One that nothing happens to but refusals."""
    last = Instance(system)
    for _ in range(STEPS_MAX):
        await last.read(6)
        await asyncio.sleep(0)
        for each in last.producer.outstanding:
            if not each.answer.done():
                if system.arrive(each):
                    each.answer.set_result(None)
                else:
                    each.answer.set_exception(MessageSizeTooLargeError("too large"))
        for _ in range(3):
            await asyncio.sleep(0)
        await last.settle()
        if last.done:
            break
    assert last.done, "stuck"
    await last.end()


def _headers(record: dict[str, Any]) -> dict[str, bytes]:
    return dict(record["headers"])


def _step_of(record: dict[str, Any]) -> hop.Hop:
    found = hop.decode(_headers(record)["_RF_BRIDGE_DUPL_ID"])
    assert found is not None
    return found


def _passed(system: System, partition: int) -> list[hop.Hop]:
    """What the lane's hop memory lets pass."""
    memory, found = HopMemory(CAPACITY), []
    for record in system.logs[system.plan.target_topic, partition]:
        step = _step_of(record)
        confirmed = hop.decode_offset(_headers(record)["_RF_BRIDGE_CONFIRMED"])
        assert confirmed is not None
        assert confirmed <= step.offset
        judged = memory.check([Arrival(Way(step.source, partition), step.offset, confirmed)])
        memory.apply(judged)
        if not judged.known[0]:
            found.append(step)
    return found


def _expected(system: System, number: int, partition: int) -> list[int]:
    home = Home(system.partitions)
    source = hop.Source("b", TOPIC_ID, number)

    def goes(each: Message) -> bool:
        place = each.key or hop.encode(hop.Hop(source, each.offset))
        return each.headers[0][1] == b"y" and each.value != b"poison" and home[place] == partition

    return [each.offset for each in system.source[number] if goes(each)]


def _require_exact(system: System) -> None:
    for partition in range(system.partitions):
        passed = _passed(system, partition)
        for number in range(len(system.source)):
            offsets = [each.offset for each in passed if each.source.partition == number]
            assert offsets == _expected(system, number, partition), (number, partition)
    kept = {_step_of(each)[:] for each in itertools.chain(*_quarantined(system))}
    assert {(source.partition, offset) for source, offset in kept} == {
        (number, each.offset)
        for number, messages in enumerate(system.source)
        for each in messages
        if each.value == b"poison" and each.headers[0][1] == b"y"
    }


def _quarantined(system: System) -> Sequence[list[dict[str, Any]]]:
    return [log for (topic, _), log in system.logs.items() if topic == system.plan.quarantine_topic]


@pytest.mark.parametrize("tenth", range(10))
def test_once_and_in_order(tenth: int) -> None:
    """Each message once, in order, whatever becomes of those who forward it; what the target refuses is in quarantine."""
    for seed in range(tenth * RUNS // 10, (tenth + 1) * RUNS // 10):
        print("seed", seed)
        _require_exact(asyncio.run(_run(seed)))

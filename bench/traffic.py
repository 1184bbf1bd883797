"""Seeded traffic with resends, and how it gets into a topic."""

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from aiokafka.partitioner import murmur2
from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Delivered

from bench.errors import BenchError
from ringfence_kafka.protocol import wire_names

ID_HEADER: Final = "_AMQ_DUPL_ID"
FLUSH_LIMIT_S: Final = 120.0
MESSAGES_MIN: Final = 50_000
"""A run of fewer messages measures mostly start-up."""
PARTS: Final = 3
"""Messages of a transaction."""
LOG_LEVEL: Final = 2
"""Log level of librdkafka: higher levels report retries, which are usual with a broker that has just started."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The same plan makes the same messages."""

    messages: int
    partitions: int = 4
    groups: int = 1_000
    """Each is a record key."""
    resends: float = 0.05
    """Share of messages that are an earlier one again: same ID, key and value."""
    ring: int = 20_000
    """A resend comes at most this many accepted messages of its lane after its original: none may pass."""
    value_bytes: int = 100
    seed: int = 1

    @property
    def forwarded_ring(self) -> int:
        """Size of rings that forget nothing where the plan's messages are at home in other lanes.

        In that case a lane hears from all input partitions, and with a backlog one may be ahead of another without bound. A resend may come
        many more IDs after its original than in its own lane. Twice an even share is more than
        any lane gets.
        """
        return 2 * self.messages // self.partitions


class Message(NamedTuple):
    """One message and the partition that Java's partitioner would choose for its key."""

    partition: int
    key: bytes
    id: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()
    """Beside the ID."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected content of a topic."""

    total: int
    distinct: int
    """Different duplicate IDs: what an exact deduplicator lets through."""


class _Lane:
    """The originals of one partition that a ring still remembers, newest last."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._slots: list[Message] = []
        self._count = 0

    def add(self, message: Message) -> None:
        if self._count < self._size:
            self._slots.append(message)
        else:
            self._slots[self._count % self._size] = message
        self._count += 1

    def recall(self, rng: random.Random) -> Message | None:
        if not self._slots:
            return None
        return self._slots[(self._count - rng.randint(1, len(self._slots))) % self._size]


def generate(plan: Plan) -> Iterator[Message]:
    """Messages of the plan. Resends reach back over the whole ring of their lane, evenly."""
    rng = random.Random(plan.seed)
    groups = [
        (name, (murmur2(name) & 0x7FFFFFFF) % plan.partitions)
        for name in (b"group-%04d" % number for number in range(plan.groups))
    ]
    lanes = [_Lane(plan.ring) for _ in range(plan.partitions)]
    for _ in range(plan.messages):
        key, partition = rng.choice(groups)
        lane = lanes[partition]
        again = lane.recall(rng) if rng.random() < plan.resends else None
        if again is not None:
            yield again
            continue
        identity = b"%032x" % rng.getrandbits(128)
        message = Message(partition, key, identity, rng.randbytes(plan.value_bytes))
        lane.add(message)
        yield message


def transactions(plan: Plan) -> Iterator[Message]:
    """Yield the plan's messages as transactions of :data:`PARTS` messages: its own group and value, and others'."""
    for message in generate(plan):
        number = int(message.id, 16)
        groups = [
            message.key.decode(),
            *(f"group-{(number >> 16 * index) % plan.groups:04d}" for index in range(1, PARTS)),
        ]
        text = message.value.hex()[: plan.value_bytes]
        parts = [{"key": group, "value": text} for group in groups]
        value = json.dumps({"parts": parts}).encode()
        yield message._replace(
            value=value, headers=((wire_names.HEADER_TRANSACTION, wire_names.TRANSACTION_FORM),)
        )


def publish(bootstrap: str, topic: str, messages: Iterable[Message]) -> Expected:
    """Write all messages, each partition in order, and wait until the broker has them.

    Raises:
        BenchError: the broker refused one, or did not confirm all in time.
    """
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Delivered) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 512 * 1024,
            "queue.buffering.max.messages": 200_000,
            "on_delivery": delivered,
            "log_level": LOG_LEVEL,
        }
    )
    total, distinct = 0, set()
    for message in messages:
        total += 1
        distinct.add(message.id)
        produce(producer, topic, message)
    left = producer.flush(FLUSH_LIMIT_S)
    if refused or left:
        reason = str(refused[0]) if refused else f"not confirmed within {FLUSH_LIMIT_S:.0f} s"
        raise BenchError(f"{topic}: {len(refused) + left} of {total} messages were not written: {reason}")
    return Expected(total, len(distinct))


def produce(producer: Producer, topic: str, message: Message) -> None:
    """Hand one message to a producer, waiting while its queue is full."""
    while True:
        try:
            producer.produce(
                topic,
                value=message.value,
                key=message.key,
                partition=message.partition,
                headers=[(ID_HEADER, message.id), *message.headers],
            )
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return

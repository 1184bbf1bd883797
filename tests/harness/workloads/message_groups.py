"""Traffic in interleaved message groups, as Qpid's group tests make it: numbered within a group, with an end mark; sizes are primes."""

import itertools
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from confluent_kafka import Producer

from tests.support import kafka


class GroupMessage(NamedTuple):
    """One message; an ungrouped message is a group of one whose name Kafka does not get."""

    label: str
    sequence: int
    last: bool
    grouped: bool = True

    @property
    def value(self) -> bytes:
        return f"{self.label} {self.sequence} {int(self.last)}".encode()


@dataclass(frozen=True)
class Shape:
    """Shape of the traffic; with ``zipf`` above 0 the nth group has a share of n to the minus this, and ``ungrouped`` is a share of messages."""

    messages: int = 1_009
    group_size: int = 13
    interleave: int = 11
    randomized: bool = False
    zipf: float = 0.0
    ungrouped: float = 0.0


def generate(shape: Shape, seed: int, prefix: str = "g") -> list[GroupMessage]:
    generator = random.Random(seed)
    numbers = itertools.count()
    made: list[GroupMessage] = []
    opened: list[tuple[str, int]] = []  # name and size
    sent: Counter[str] = Counter()
    promised = 0  # made, or due in an open group
    while len(made) < shape.messages:
        while promised < shape.messages and len(opened) < shape.interleave:
            size = min(_size(shape, len(sent), generator), shape.messages - promised)
            opened.append((f"{prefix}-{next(numbers)}", size))
            sent[opened[-1][0]] = 0
            promised += size
        if promised < shape.messages and generator.random() < shape.ungrouped:
            made.append(GroupMessage(f"{prefix}-none-{next(numbers)}", 0, last=True, grouped=False))
            promised += 1
            continue
        # Weights keep a large group from being left over alone at the end.
        weights = [size - sent[name] for name, size in opened] if shape.zipf else None
        [(name, size)] = generator.choices(opened, weights)
        made.append(GroupMessage(name, sent[name], last=sent[name] == size - 1))
        sent[name] += 1
        if sent[name] == size:
            opened.remove((name, size))
    return made


def _size(shape: Shape, opened_before: int, generator: random.Random) -> int:
    if shape.zipf:
        return max(1, round(shape.group_size * math.pow(opened_before + 1, -shape.zipf)))
    return generator.randint(1, shape.group_size) if shape.randomized else shape.group_size


def sizes(messages: Iterable[GroupMessage]) -> dict[str, int]:
    return dict(Counter(message.label for message in messages))


def accept(bootstrap: str, address: str, messages: Sequence[GroupMessage]) -> None:
    producer = _producer(bootstrap)
    _accept(producer, address, messages)
    assert producer.flush(kafka.WAIT_S) == 0


def accept_in_transactions(bootstrap: str, address: str, messages: Sequence[GroupMessage]) -> None:
    """Write the messages in transactions of 17, each third one preceded by an aborted one."""
    producer = _producer(bootstrap, {"transactional.id": kafka.unique("accepting")})
    producer.init_transactions(kafka.WAIT_S)
    for number, begin in enumerate(range(0, len(messages), 17)):
        part = messages[begin : begin + 17]
        if number % 3 == 0:
            producer.begin_transaction()
            _accept(producer, address, [item._replace(label=f"aborted-{item.label}") for item in part])
            producer.flush(kafka.WAIT_S)
            producer.abort_transaction(kafka.WAIT_S)
        producer.begin_transaction()
        _accept(producer, address, part)
        producer.commit_transaction(kafka.WAIT_S)


class Flow(threading.Thread):
    """Traffic at a steady rate, in a thread of its own, until it is stopped; ``sent`` holds the messages sent by then."""

    def __init__(self, bootstrap: str, address: str, messages: Sequence[GroupMessage], rate: float) -> None:
        super().__init__(name=f"traffic to {address}", daemon=True)
        self.sent: list[GroupMessage] = []
        self._servers = bootstrap
        self._address = address
        self._messages = messages
        self._rate = rate
        self._halt = threading.Event()

    def run(self) -> None:
        producer = _producer(self._servers)
        begin = time.monotonic()
        for message in self._messages:
            while len(self.sent) > (time.monotonic() - begin) * self._rate and not self._halt.wait(0.01):
                producer.poll(0)
            if self._halt.is_set():
                break
            _accept(producer, self._address, [message])
            self.sent.append(message)
        assert producer.flush(120) == 0

    def finish(self) -> dict[str, int]:
        assert self.is_alive(), "there was to be traffic until here: generate more"
        self.stop()
        return sizes(self.sent)

    def stop(self) -> None:
        self._halt.set()
        if self.ident is not None:
            self.join(150)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _producer(bootstrap: str, options: dict[str, str] | None = None) -> Producer:
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": bootstrap,
        "partitioner": "murmur2_random",
        "enable.idempotence": True,
        "linger.ms": 2,
        **(options or {}),
    }
    return Producer(settings)


def _accept(producer: Producer, address: str, messages: Sequence[GroupMessage]) -> None:
    for message in messages:
        headers: list[tuple[str, str | bytes | None]] = [
            ("_AMQ_DUPL_ID", f"id-{message.label}-{message.sequence}".encode()),
            ("_RF_SOURCE", f"{address}/0/{message.sequence}".encode()),
        ]
        group = message.label.encode() if message.grouped else None
        producer.produce(f"{address}.accepted", message.value, group, headers=headers)
        producer.poll(0)

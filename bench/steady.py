"""Steady traffic, and a reader of committed data that notes when each message comes out."""

import dataclasses
import gc
import itertools
import threading
import time
from collections import deque
from types import TracebackType
from typing import Final, NamedTuple, Self

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka import Message as Delivered

from bench.errors import BenchError
from bench.topics import LIMIT_S, Header
from bench.traffic import LOG_LEVEL, Message, Plan, generate, produce
from ringfence_kafka.protocol import wire_names

LINGER_MS: Final = 1
_TICK_S: Final = 0.002
"""Messages become due one by one and are sent so often: a burst would be one batch of itself."""
_POLL_S: Final = 0.01
_FETCH_WAIT_MS: Final = 10
_READ_AT_ONCE: Final = 1_000
_NOTED_AT_ONCE: Final = 500
_ID_SETS: Final = 16**2
"""One set of millions would be moved, as it grows, for a tenth of a second each time, and all threads with it. An ID's last two
hexadecimal digits say in which it is."""
_NO_END: Final = 10**12


class Seen(NamedTuple):
    """An accepted message as a ``read_committed`` reader got it."""

    partition: int
    """Partition of the input; of the output if the record does not name its source."""
    offset: int
    """There."""
    produced_at: float
    """Seconds since the epoch, as all moments here."""
    seen_at: float


class Traffic:
    """The messages of a plan at a steady rate; each one's value begins with the moment of its making."""

    def __init__(self, bootstrap: str, topic: str, plan: Plan, rate: int) -> None:
        """``rate`` is messages a second, all partitions together."""
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": LINGER_MS,
                "log_level": LOG_LEVEL,
            }
        )
        self._topic = topic
        self._plan = plan
        self._rate = rate
        self._ids: list[set[bytes]] = [set() for _ in range(_ID_SETS)]
        self._sent = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    @property
    def sent(self) -> int:
        """Messages until now, resends counted."""
        return self._sent

    @property
    def originals(self) -> int:
        """Messages until now, resends not counted: what is to come out."""
        return sum(map(len, self._ids))

    def _run(self) -> None:
        # The plan's own values are not used: one byte is made quickest.
        messages = generate(dataclasses.replace(self._plan, messages=_NO_END, value_bytes=1))
        began, sent = time.monotonic(), 0
        while not self._stopping.wait(_TICK_S):
            due = int((time.monotonic() - began) * self._rate) - sent
            for message in itertools.islice(messages, due):
                self._send(message)
            sent += due

    def _send(self, message: Message) -> None:
        self._ids[int(message.id[-2:], 16)].add(message.id)
        self._sent += 1
        value = repr(time.time()).encode().ljust(self._plan.value_bytes)
        produce(self._producer, self._topic, message._replace(value=value))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.flush(LIMIT_S)


class Reader:
    """Reads an output from its present end on, without pause, in a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench-reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": _FETCH_WAIT_MS,
                "log_level": LOG_LEVEL,
            }
        )
        ends = [
            self._consumer.get_watermark_offsets(TopicPartition(topic, index), LIMIT_S)[1]
            for index in range(partitions)
        ]
        self._consumer.assign([TopicPartition(topic, number, end) for number, end in enumerate(ends)])
        self._seen: list[Seen] = []
        """Noted records: soon after a backlog, all that came."""
        self._stopping = threading.Event()
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def seen(self) -> list[Seen]:
        """All messages of :class:`Traffic` until now, in order of their arrival here.

        Raises:
            BenchError: the reader has failed.
        """
        if self._fault is not None:
            raise BenchError(f"the reader of the output failed: {self._fault}") from self._fault
        return list(self._seen)

    def forget(self) -> None:
        """Drop what was seen until now."""
        self._seen = []

    def _run(self) -> None:
        try:
            came: deque[tuple[float, Delivered]] = deque()
            while not self._stopping.is_set():
                # Who asks for many at once, and waits, has none before all are there or the time is up.
                first = self._consumer.poll(_POLL_S)
                messages = [] if first is None else [first, *self._consumer.consume(_READ_AT_ONCE, timeout=0)]
                moment = time.time()
                came += ((moment, message) for message in messages if message.error() is None)
                if len(messages) <= _READ_AT_ONCE:  # of a backlog the rest comes first: it would seem late
                    for _ in range(min(len(came), _NOTED_AT_ONCE)):
                        self._seen.append(_as_seen(*came.popleft()))
        except Exception as error:
            self._fault = error

    def __enter__(self) -> Self:
        gc.disable()  # to look through millions of messages takes longer than they were on their way
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()
        gc.enable()


def _as_seen(moment: float, message: Delivered) -> Seen:
    headers: dict[str, Header] = dict(message.headers() or ())
    source = headers.get(wire_names.HEADER_SOURCE)
    partition, offset = message.partition() or 0, message.offset() or 0
    if isinstance(source, bytes):
        _, *place = source.rsplit(b"/", 2)
        partition, offset = map(int, place)
    return Seen(partition, offset, float(message.value() or b""), moment)

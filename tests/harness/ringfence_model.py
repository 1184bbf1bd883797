"""A model of a correct Ringfence: lanes with rings take turns at random, and leave a history behind."""

import random
import zlib
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hypothesis import strategies as st

from tests.harness.checker.check import counts
from tests.harness.history import Headers, History, Outcome, Place, Record, Send

TOPIC: Final = "orders"
GROUP_HEADER: Final = "region"
DEFAULT_GROUP: Final = b"qpid.no-group"


class Message(NamedTuple):
    """A message as a producer sends it."""

    id: bytes | None
    group: bytes | None
    partition: int
    outcome: Outcome = Outcome.OK
    refused: bool = False


class Plan(NamedTuple):
    """Messages, with the shape of the address that they are sent to."""

    messages: list[Message]
    partitions: int
    accepted_partitions: int
    capacity: int
    divert: bool
    by_header: bool


@st.composite
def plans(draw: st.DrawFn, capacity: int | None = None) -> Plan:
    """Draw few IDs, groups and slots, so that all possible events happen."""
    partitions = draw(st.integers(1, 3))
    message = st.builds(
        Message,
        id=st.sampled_from([None, b"", *(b"id%d" % number for number in range(5))]),
        group=st.sampled_from([None, b"g0", b"g1", b"g2", b"g3"]),
        partition=st.integers(0, partitions - 1),
        outcome=st.sampled_from([Outcome.OK] * 6 + [Outcome.UNKNOWN, Outcome.FAIL]),
        refused=st.sampled_from([False] * 9 + [True]),
    )
    return Plan(
        draw(st.lists(message, max_size=40)),
        partitions,
        draw(st.integers(1, 3)),
        draw(st.integers(0, 5)) if capacity is None else capacity,
        draw(st.booleans()),
        draw(st.booleans()),
    )


@dataclass
class Model:
    """A correct Ringfence, as far as it is seen from outside."""

    plan: Plan
    dice: random.Random
    forgetful: bool = False
    history: History = field(init=False)
    forgotten: Record | None = None
    accepted_as: Counter[tuple[bytes, int]] = field(default_factory=Counter)
    duplicates: list[tuple[Record, Record]] = field(default_factory=list)
    origins: dict[Place, Record] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plan = self.plan
        self.history = History(
            TOPIC, plan.partitions, plan.capacity, self.home, divert=plan.divert,
            group_of=(lambda record: record.header(GROUP_HEADER) or DEFAULT_GROUP) if plan.by_header
            else (lambda record: record.key),
        )  # fmt: skip
        self._ends: Counter[tuple[str, int]] = Counter()
        self._rings: list[deque[tuple[bytes, Record]]] = [
            deque(maxlen=plan.capacity) for _ in range(plan.partitions)
        ]
        self._refused: set[Place] = set()
        arriving: list[deque[Record]] = [deque() for _ in range(plan.partitions)]
        for number, message in enumerate(plan.messages):
            self._send(number, message, arriving[message.partition])
        self._work(arriving)

    def home(self, key: bytes) -> int:
        return zlib.crc32(key) % self.plan.partitions

    def _send(self, number: int, message: Message, queue: deque[Record]) -> None:
        token = b"%d" % number
        self.history.sends.append(Send(token, message.id or None, message.group, message.outcome))
        lands = {Outcome.OK: True, Outcome.FAIL: False, Outcome.UNKNOWN: self.dice.random() < 0.5}
        if not lands[message.outcome]:
            return
        headers: Headers = (("t", token), ("x", b"1"), ("_RF_SOURCE", b"mine"), ("x", None))
        if message.id is not None:
            headers = (*headers, ("_AMQ_DUPL_ID", message.id))
        if self.plan.by_header and message.group is not None:
            headers = (*headers, (GROUP_HEADER, message.group))
        key = self.dice.choice([message.group, b"k", None]) if self.plan.by_header else message.group
        record = self._append(Record(TOPIC, message.partition, 0, key, token, headers, 1_000 - number))
        self.history.inputs.append(record)
        queue.append(record)
        if message.refused:
            self._refused.add(record.place)

    def _append(self, record: Record) -> Record:
        end = (record.topic, record.partition)
        self._ends[end] += self.dice.choice([0, 0, 1])
        record = record._replace(offset=self._ends[end])
        self._ends[end] += 1
        return record

    def _work(self, arriving: list[deque[Record]]) -> None:
        forwarded: list[deque[Record]] = [deque() for _ in arriving]
        while ready := [
            (lane, queue)
            for lane in range(self.plan.partitions)
            for queue in (arriving[lane], forwarded[lane])
            if queue
        ]:
            lane, queue = self.dice.choice(ready)
            record = queue.popleft()
            key = self.history.group_of(record)
            key = self.history.id_of(record) if key is None else key
            home = lane if key is None else self.home(key)
            if home == lane:
                self._judge(record, lane)
            else:
                forwarded[home].append(record)

    def _judge(self, record: Record, lane: int) -> None:
        if record.place in self._refused:
            self._write("quarantine", record, record.key, ("_RF_REASON", b"too large"))
            return
        known_id, ring = self.history.id_of(record), self._rings[lane]
        original = next((origin for data, origin in ring if data == known_id), None)
        if original is not None and self.forgetful and self.forgotten is None and self.dice.random() < 0.5:
            self.forgotten, original = record, None
        if original is not None:
            self.duplicates.append((record, original))
            if self.plan.divert:
                named = str(original.place).encode()
                self._write("duplicates", record, record.key, ("_RF_ORIGINAL", named))
            return
        group = self.history.group_of(record)
        ours = () if record.key == group else (("_RF_KEY", record.key),)
        self._write("accepted", record, group, *ours)
        if known_id is not None:
            ring.append((known_id, record))
            self.accepted_as[known_id, lane] += 1

    def _write(self, name: str, record: Record, key: bytes | None, *ours: tuple[str, bytes | None]) -> None:
        count = self.plan.accepted_partitions
        partition = self.dice.randrange(count) if key is None else zlib.crc32(key) % count
        headers = [header for header in record.headers if header[0] != "_RF_SOURCE"]
        headers += [("_RF_SOURCE", str(record.place).encode()), *ours]
        output = self._append(
            record._replace(topic=f"{TOPIC}.{name}", partition=partition, key=key, headers=tuple(headers))
        )
        self.origins[output.place] = record
        topic = {"accepted": self.history.accepted, "duplicates": self.history.diverted}
        topic.get(name, self.history.quarantined).append(output)

    def due(self) -> dict[str, int]:
        due = counts([])
        if self.plan.capacity:
            due["OVERRUN"] = sum(times - 1 for times in self.accepted_as.values())
            lanes = Counter(known_id for known_id, _ in self.accepted_as)
            due["CROSS-LANE"] = sum(number > 1 for number in lanes.values())
        return due

    def once(self, record: Record) -> bool:
        group, known_id = self.history.group_of(record), self.history.id_of(record)
        if known_id is None:
            return True
        return self.accepted_as[known_id, self.home(known_id if group is None else group)] == 1

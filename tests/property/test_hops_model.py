"""Bridges into lanes: each record of a source passes once, in order, whichever instances of its bridge die.

The real path and hop memory run, and the memory is written down and read again now and then. Bridges live and die: their batches come late,
twice or never, answers are lost, two work at a time, and offsets are set back. Bridges place keys by another partitioner than the lanes'.
The verdicts of each batch are those of the shortest program. With a large enough memory, the records that pass are the source itself.
"""

import random
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

import pytest

from agents.batch.batch import DueRecords, FetchedBatch
from agents.decision.decide import Path
from agents.decision.forwarding import forwarded_headers
from ringfence_kafka.config.load import validate
from ringfence_kafka.protocol.hop import Hop, Source, encode
from tables.hops import HopMemory, changelog_records
from tables.ring import Verdict
from tables.table import LaneTable
from tests.property import examples
from tests.unit.agents.decision.test_decide import Given, Table

FORWARD: Final = "ringfence-orders-forward"
TOPIC_IDS: Final = ("AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB")
RUNS: Final = examples(600)
WINDOW: Final = 8
Batch = tuple[int, list[Given]]
"""Input partition, records."""


class Message(NamedTuple):
    """A record of a source."""

    offset: int
    key: bytes | None
    id: bytes | None
    partition: int
    """Input partition that its bridge chooses."""


@dataclass
class Life:
    """One producer of a bridge: reads on from what was committed, hands on a partition's next batch when the one before is acknowledged."""

    position: int
    confirmed: int
    queues: dict[int, deque[list[Message]]] = field(default_factory=lambda: defaultdict(deque))
    sent: dict[int, Batch] = field(default_factory=dict)
    unacknowledged: set[int] = field(default_factory=set)


class Bridge:
    """Bridge of one source partition."""

    def __init__(
        self, source: Source, messages: Sequence[Message], ignore: bool, dice: random.Random
    ) -> None:
        self.source, self.messages, self.ignore, self.dice = source, messages, ignore, dice
        self.end = messages[-1].offset + dice.choice([1, 1, 3])
        self.committed = 0
        self.lives: list[Life] = []
        self.late: list[Batch] = []
        self.deaths = 0

    @property
    def done(self) -> bool:
        return self.committed == self.end and not self.lives

    def step(self, append: Any) -> None:
        dice = self.dice
        if self.late and dice.random() < 0.1:
            batch = self.late.pop(dice.randrange(len(self.late)))
            if dice.random() < 0.7:
                append(batch)
        if not self.lives or (len(self.lives) < 2 and dice.random() < 0.02):
            self.lives.append(Life(self.committed, self.committed))
        life = dice.choice(self.lives)
        chance = dice.random()
        if chance < 0.35:
            self._read(life)
        elif chance < 0.8:
            self._send(life, append)
        elif chance < 0.9:
            self.committed = life.confirmed
        elif chance < 0.93 and self.deaths < 12:
            self._die(life)
        if life.confirmed == self.end and not life.sent and self.committed == self.end:
            self.lives.remove(life)

    def _read(self, life: Life) -> None:
        due = [message for message in self.messages if message.offset >= life.position]
        if life.position - life.confirmed >= WINDOW:
            return
        taken = due[: self.dice.randint(1, 3)]
        for item in taken:
            queue = life.queues[item.partition]
            if not queue or self.dice.random() < 0.4:
                queue.append([])
            queue[-1].append(item)
            life.unacknowledged.add(item.offset)
        life.position = taken[-1].offset + 1 if len(taken) < len(due) else self.end
        life.confirmed = min(life.unacknowledged, default=life.position)

    def _send(self, life: Life, append: Any) -> None:
        places = sorted({number for number, queue in life.queues.items() if queue} | life.sent.keys())
        if not places:
            return
        place = self.dice.choice(places)
        if place not in life.sent:
            batch = life.queues[place].popleft()
            life.sent[place] = place, [self._record(item, life.confirmed) for item in batch]
        elif self.dice.random() < 0.9:
            batch_sent = life.sent.pop(place)
            append(batch_sent)
            if self.dice.random() < 0.1:  # it dies of the lost answer
                life.sent[place] = batch_sent
                self._die(life)
                return
            life.unacknowledged -= {given.source for given in batch_sent[1] if isinstance(given, Forwarded)}
            life.confirmed = min(life.unacknowledged, default=life.position)

    def _record(self, message: Message, confirmed: int) -> "Forwarded":
        headers: list[tuple[str, bytes | None]] = [
            ("_RF_BRIDGE_DUPL_ID", encode(Hop(self.source, message.offset))),
            ("_RF_BRIDGE_CONFIRMED", b"%d" % confirmed),
        ]
        if self.ignore:
            headers.append(("_RF_BRIDGE_IDS", b"ignore"))
        if message.id is not None:
            headers.append(("_AMQ_DUPL_ID", message.id))
        return Forwarded(0, message.key, headers, source=message.offset)

    def _die(self, life: Life) -> None:
        self.deaths += 1
        self.lives.remove(life)
        self.late += life.sent.values()
        if self.dice.random() < 0.2:
            self.committed = self.dice.randint(0, self.committed)


@dataclass(frozen=True)
class Forwarded(Given):
    """A record that a bridge put into the input."""

    source: int = 0
    """Its offset in the input."""


class Reference:
    """Hop memory and ring of a lane, written in the shortest way."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.routes: dict[tuple[Source, int], list[Any]] = {}
        self.ring: deque[bytes] = deque(maxlen=capacity)

    def known(self, source: Source, arrived: int, offset: int, confirmed: int) -> bool:
        """Whether it came before; it has come now."""
        if not self.capacity:
            return False
        route = self.routes.setdefault((source, arrived), [0, set()])
        known = offset < route[0] or any(
            offset in route[1] for (of, _), route in self.routes.items() if of == source
        )
        route[0] = max(route[0], confirmed)
        route[1] = set(sorted(item for item in route[1] | {offset} if item >= route[0])[-self.capacity :])
        return known

    def verdict(self, identifier: bytes | None) -> Verdict:
        if identifier is None or not self.capacity:
            return Verdict.UNCHECKED
        if identifier in self.ring:
            return Verdict.DUPLICATE
        self.ring.append(identifier)
        return Verdict.ACCEPTED


class World:
    """Bridges, their traffic between that of others, and lanes, all taking turns at random."""

    def __init__(self, dice: random.Random, capacity: int) -> None:
        self.dice, self.capacity = dice, capacity
        self.lanes = dice.randint(1, 3)
        address = validate(
            {"addresses": [{"name": "orders", "partitioner": dice.choice(["murmur2", "crc32"])}]}
        ).addresses[0]
        self.paths = [Path(address, lane, self.lanes, FORWARD) for lane in range(self.lanes)]
        self.tables = [Table(capacity) for _ in self.paths]
        self.changelogs: list[dict[bytes, bytes]] = [{} for _ in self.paths]
        self.references = [Reference(capacity) for _ in self.paths]
        self.logs: dict[tuple[str, int], list[Given]] = defaultdict(list)
        self.next: dict[tuple[str, int], int] = defaultdict(int)
        self.passed: dict[tuple[Source, int, int], list[int]] = defaultdict(list)
        """Offsets of new records, by source, input partition and home."""
        self.bridges = [self._bridge(number) for number in range(dice.randint(1, 3))]

    def _bridge(self, number: int) -> Bridge:
        """Add a bridge with the same topic ID, or the same bridge with another partition: sources that must be kept apart."""
        dice = self.dice
        source = Source(f"to-{number % 2}", dice.choice(TOPIC_IDS), number)
        right = dice.random() < 0.4
        offset, messages, places = 0, [], {}
        for _ in range(dice.randint(1, 30)):
            offset += dice.choice([0, 0, 0, 1, 7])
            key = dice.choice([None, b"a", b"b", b"c", b"d", b"e"])
            by = key or b"%d" % offset  # without a key any place will do, as long as it is the same again
            if by not in places:
                places[by] = self.paths[0]._home[by] if right else dice.randrange(self.lanes)
            messages.append(Message(offset, key, dice.choice([None, b"1", b"2", b"3", b"4"]), places[by]))
            offset += 1
        return Bridge(source, messages, dice.random() < 0.5, dice)

    def append(self, batch: Batch) -> None:
        log = self.logs["orders", batch[0]]
        for record in batch[1]:
            source = record.source if isinstance(record, Forwarded) else 0
            log.append(Forwarded(len(log), record.key, record.headers, source=source))

    def run(self) -> None:
        """Run until nothing is left; then deliver what is late."""
        for _ in range(30_000):
            running = [bridge for bridge in self.bridges if not bridge.done]
            if not running:
                break
            self.dice.choice(running).step(self.append)
            if self.dice.random() < 0.1:
                partition = self.dice.randrange(self.lanes)
                key, identifier = self.dice.choice([None, b"a", b"z"]), self.dice.choice([b"1", b"8", b"9"])
                self.append((partition, [Given(0, key, [("_AMQ_DUPL_ID", identifier)])]))
            if self.dice.random() < 0.4:
                self.turn()
        assert all(bridge.done for bridge in self.bridges), "a bridge does not end"
        for bridge in self.bridges:
            for batch in bridge.late:
                self.append(batch)
        while self.turn():
            pass

    def turn(self) -> bool:
        """Give one lane a batch: decided, and committed or not."""
        ready = [place for place, log in self.logs.items() if self.next[place] < len(log)]
        if not ready:
            return False
        topic, lane = place = self.dice.choice(sorted(ready))
        begin = self.next[place]
        records = self.logs[place][begin : begin + self.dice.randint(1, 6)]
        batch = FetchedBatch(topic, lane, begin, begin + len(records), records, 0)
        outcome = self.paths[lane].decide(
            [DueRecords(batch, records)], cast("LaneTable", self.tables[lane]), {}
        )
        if self.dice.random() < 0.15:  # a crash: nothing of it ever was
            return True
        assert outcome.quarantined == []
        self._compare(lane, outcome)
        self.tables[lane].apply(outcome)
        self.changelogs[lane] |= changelog_records(outcome.judged)
        for item in outcome.forwarded:
            log = self.logs[FORWARD, item.home]
            log.append(Given(len(log), item.record.key, forwarded_headers(item.record, item.source)))
        self.next[place] = outcome.ends[0]
        if self.dice.random() < 0.1:  # it is opened elsewhere
            self.tables[lane].hops = HopMemory.restored(self.capacity, self.changelogs[lane].items())
        return True

    def _compare(self, lane: int, outcome: Any) -> None:
        reference = self.references[lane]
        for item, verdict in zip(outcome.here, outcome.checked.verdicts, strict=True):
            headers = dict(item.record.headers)
            step = headers.get("_RF_BRIDGE_DUPL_ID")
            identifier = headers.get("_AMQ_DUPL_ID")
            if step is not None:
                bridge, topic_id, partition, offset = step.decode().split("/")
                origin, arrived = Source(bridge, topic_id, int(partition)), int(item.source.split(b"/")[1])
                if reference.known(origin, arrived, int(offset), int(headers["_RF_BRIDGE_CONFIRMED"])):
                    assert verdict is Verdict.DUPLICATE
                    continue
                self.passed[origin, arrived, lane].append(int(offset))
                if "_RF_BRIDGE_IDS" in headers:
                    identifier = None
            assert verdict is reference.verdict(identifier)

    def came(self) -> dict[Source, dict[tuple[int, int], list[int]]]:
        found: dict[Source, dict[tuple[int, int], list[int]]] = defaultdict(dict)
        for (source, arrived, lane), offsets in self.passed.items():
            found[source][arrived, lane] = offsets
        return found


@pytest.mark.parametrize("chunk", range(4))
def test_each_once_in_order(chunk: int) -> None:
    """The lanes pass each source record once, in the order of each route and home, if the memory holds all records in flight."""
    for seed in range(chunk * RUNS // 4, (chunk + 1) * RUNS // 4):
        world = World(random.Random(seed), 1_000)
        world.run()
        came = world.came()
        for bridge in world.bridges:
            offsets = sorted(number for run in came[bridge.source].values() for number in run)

            assert offsets == [message.offset for message in bridge.messages], f"seed {seed}: {bridge.source}"
            for route, run in came[bridge.source].items():
                assert run == sorted(run), f"seed {seed}: {bridge.source} by {route}"


def test_as_the_rule_says_where_there_is_less_room() -> None:
    """A memory that is off, or smaller than the records in flight, follows the rule: World compares each verdict."""
    repeated = 0
    for seed in range(examples(200)):
        world = World(random.Random(seed), seed % 4)
        world.run()
        for bridge in world.bridges:
            offsets = [number for run in world.came()[bridge.source].values() for number in run]

            assert set(offsets) == {message.offset for message in bridge.messages}, (
                f"seed {seed}: {bridge.source}"
            )
            repeated += len(offsets) - len(set(offsets))
    assert repeated, "no run had more in flight than fits: the test shows nothing"

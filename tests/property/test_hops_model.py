"""Bridges into lanes: each record of a source passes once, in order, whichever instances of its bridge die.

The real window and flow of a bridge, the real path and hop memory run, and the memory is written down and read again now and then. Batches
come late, twice or never, answers are lost, two instances work at a time, and offsets are set back. Bridges place keys by another
partitioner than the lanes'. The verdicts of each batch are those of the shortest program.
"""

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, cast

import pytest

from agents.batch.batch import DueRecords, FetchedBatch
from agents.decision.decide import Path
from agents.decision.forwarding import forwarded_headers
from ringfence_kafka.config.load import validate
from ringfence_kafka.protocol.hop import Source
from tables.hops import HopMemory, changelog_records
from tables.ring import Verdict
from tables.table import LaneTable
from tests.property import examples
from tests.support.bridges.simulated import Message, System, run
from tests.unit.agents.decision.test_decide import Given, Headers, Table

FORWARD: Final = "ringfence-orders-forward"
RUNS: Final = examples(600)
NAMES: Final = (b"b/AAAAAAAAAAAAAAAAAAAAAA", b"c/AAAAAAAAAAAAAAAAAAAAAA")
"""Bridges whose sources have one topic ID, and must be kept apart."""
PARTITIONERS: Final = ("murmur2", "crc32")


class Reference:
    """Hop memory and ring of a lane, written in the shortest way."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.routes: dict[tuple[Source, int], list[Any]] = {}
        self.ring: deque[bytes] = deque(maxlen=capacity)

    def known(self, source: Source, arrived: int, offset: int, confirmed: int) -> bool:
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
    """Records of bridges between those of other producers, and lanes that take turns at random."""

    def __init__(self, dice: random.Random, capacity: int, partitioners: Sequence[str]) -> None:
        """Create a world with these partitioners of bridges: several are of instances of one bridge; none = any one."""
        self.dice, self.capacity, self.partitioners = dice, capacity, partitioners
        self.lanes = dice.randint(1, 3)
        keys = {"name": "orders", "partitioner": dice.choice(PARTITIONERS)}
        address = validate({"addresses": [keys]}).addresses[0]
        self.paths = [Path(address, lane, self.lanes, FORWARD) for lane in range(self.lanes)]
        self.tables = [Table(capacity) for _ in self.paths]
        self.changelogs: list[dict[bytes, bytes]] = [{} for _ in self.paths]
        self.references = [Reference(capacity) for _ in self.paths]
        self.logs: dict[tuple[str, int], list[Given]] = defaultdict(list)
        self.next: dict[tuple[str, int], int] = defaultdict(int)
        self.passed: dict[Source, dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
        """Offsets of new records, by source, and by input partition and home."""
        self.sources: dict[Source, int] = {}
        """Number of records of each source."""
        for name in NAMES[: dice.randint(1, 2)]:
            self._bridge(name)

    def _bridge(self, name: bytes) -> None:
        """Run a bridge of several source partitions to its end, and put what it has sent between all other records."""
        dice = self.dice
        system = System(dice, self.partitioners or [dice.choice(PARTITIONERS)], self.lanes)
        system.source = [[_message(dice, at) for at in range(dice.randint(1, 20))] for _ in system.source]
        asyncio.run(run(system))
        bridge, topic_id = name.decode().split("/")
        for number, messages in enumerate(system.source):
            self.sources[Source(bridge, topic_id, number)] = len(messages)
        for lane in range(self.lanes):
            others, brought = self.logs["orders", lane], system.logs["t", lane]
            places = sorted(dice.randint(0, len(others)) for _ in brought)
            for at, (place, record) in enumerate(zip(places, brought, strict=True)):
                headers = [(it, value.replace(NAMES[0], name)) for it, value in record["headers"]]
                others.insert(place + at, Given(0, record["key"], headers))

    def run(self) -> None:
        for lane in range(self.lanes):
            log = self.logs["orders", lane]
            for _ in range(len(log) // 4):
                headers: Headers = [("_AMQ_DUPL_ID", self.dice.choice([b"1", b"8", b"9"]))]
                key = self.dice.choice([None, b"a", b"z"])
                log.insert(self.dice.randint(0, len(log)), Given(0, key, headers))
            log[:] = [Given(at, record.key, record.headers) for at, record in enumerate(log)]
        while ready := [place for place, log in self.logs.items() if self.next[place] < len(log)]:
            self.turn(*self.dice.choice(sorted(ready)))

    def turn(self, topic: str, lane: int) -> None:
        """Give one lane a batch: decided, and committed or not."""
        begin = self.next[topic, lane]
        records = self.logs[topic, lane][begin : begin + self.dice.randint(1, 6)]
        batch = FetchedBatch(topic, lane, begin, begin + len(records), records, 0)
        outcome = self.paths[lane].decide(
            [DueRecords(batch, records)], cast("LaneTable", self.tables[lane]), {}
        )
        if self.dice.random() < 0.15:  # a crash: nothing of it ever was
            return
        assert outcome.quarantined == []
        self._compare(lane, outcome)
        self.tables[lane].apply(outcome)
        self.changelogs[lane] |= changelog_records(outcome.judged)
        for item in outcome.forwarded:
            log = self.logs[FORWARD, item.home]
            log.append(Given(len(log), item.record.key, forwarded_headers(item.record, item.source)))
        self.next[topic, lane] = outcome.ends[0]
        if self.dice.random() < 0.1:  # it is opened elsewhere
            self.tables[lane].hops = HopMemory.restored(self.capacity, self.changelogs[lane].items())

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
                self.passed[origin][arrived, lane].append(int(offset))
                if "_RF_BRIDGE_IDS" in headers:
                    identifier = None
            assert verdict is reference.verdict(identifier)


def _message(dice: random.Random, offset: int) -> Message:
    identifier = dice.choice([None, b"1", b"2", b"3", b"4"])
    own = () if identifier is None else (("_AMQ_DUPL_ID", identifier),)
    return Message(offset, dice.choice([None, b"a", b"b", b"c", b"d", b"e"]), b"v", (("pass", b"y"), *own))


def _offsets(
    seed: int, capacity: int, partitioners: Sequence[str] = ()
) -> tuple[World, dict[Source, list[int]]]:
    """Return a world that has run, and the offsets of each source that its lanes let pass."""
    world = World(random.Random(seed), capacity, partitioners)
    world.run()
    passed = {source: chain.from_iterable(world.passed[source].values()) for source in world.sources}
    return world, {source: sorted(offsets) for source, offsets in passed.items()}


@pytest.mark.parametrize("chunk", range(4))
def test_each_once_in_order(chunk: int) -> None:
    """The lanes pass each source record once, in the order of each route and home, if the memory holds all records in flight."""
    for seed in range(chunk * RUNS // 4, (chunk + 1) * RUNS // 4):
        world, offsets = _offsets(seed, 1_000)

        assert offsets == {source: list(range(count)) for source, count in world.sources.items()}, seed
        for source, routes in world.passed.items():
            for route, passed in routes.items():
                assert passed == sorted(passed), f"seed {seed}: {source} by {route}"


def test_partitioner_changed() -> None:
    """Nothing is lost when instances of a bridge have different partitioners and place one record in different partitions."""
    for seed in range(RUNS):
        world, offsets = _offsets(seed, 1_000, PARTITIONERS)
        for source, found in offsets.items():
            assert set(found) == set(range(world.sources[source])), f"seed {seed}: {source}"


def test_as_the_rule_says_where_there_is_less_room() -> None:
    """A memory that is off, or smaller than the records in flight, follows the rule: World compares each verdict."""
    repeated = 0
    for seed in range(examples(200)):
        world, offsets = _offsets(seed, seed % 4)
        for source, found in offsets.items():
            assert set(found) == set(range(world.sources[source])), f"seed {seed}: {source}"
            repeated += len(found) - len(set(found))
    assert repeated, "no run had more in flight than fits: the test shows nothing"

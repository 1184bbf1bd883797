"""Random runs of one address that bridges lead to, whose input is more than any bridge sends: hops of any order, envelopes, unreadable records."""

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record import MemoryRecords

from agents.batch.batch import DueRecords, FetchedBatch
from agents.decision.decide import Outcome, Path
from agents.output.build import Emitter
from agents.output.topic_batches import Outputs
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import AddressSettings
from tables.ring import Verdict
from tables.table import LaneTable
from tests.harness.history import Headers, History, Record, record_of
from tests.support.kafka import home
from tests.unit.agents.decision.test_decide import Given, Table

LANES: Final = 3
STEPS: Final = 40
SIZES: Final = (0, 1, 2, 4, 1_000)
_BYTES_MAX: Final = 10**6
_TOPIC_ID: Final = b"A" * 22
_SOURCES: Final = (b"to-paris/%b/0" % _TOPIC_ID, b"to-paris/%b/1" % _TOPIC_ID, b"other/%b/0" % _TOPIC_ID)
_OFFSETS: Final = 10
_LARGE_ARE: Final = 8
_MALFORMED: Final[tuple[Headers, ...]] = (
    (("_RF_BRIDGE_DUPL_ID", b"nonsense"),),
    (("_RF_BRIDGE_DUPL_ID", _SOURCES[0] + b"/3"), ("_RF_BRIDGE_CONFIRMED", b"4")),
    (("_RF_BRIDGE_DUPL_ID", _SOURCES[0] + b"/3"), ("_RF_BRIDGE_IDS", b"perhaps")),
)


class BridgedRun:
    """One address, from its first record to its last; ``history`` holds its records."""

    def __init__(self, name: str, seed: int) -> None:
        self.dice = random.Random(seed)
        self.name = name
        self.capacity = self.dice.choice(SIZES)
        self.divert = self.dice.random() < 0.5
        self.address: AddressSettings = validate({"addresses": [self.keys()]}).addresses[0]
        self.forward = f"ringfence-{name}-forward"
        counts = {
            f"{name}.accepted": 2,
            f"{name}.duplicates": 2,
            f"{name}.quarantine": LANES,
            self.forward: LANES,
        }
        outputs = Outputs(counts, dict.fromkeys(counts, _BYTES_MAX), {})
        self._paths = [Path(self.address, lane, LANES, self.forward) for lane in range(LANES)]
        self._emitters = [Emitter(self.address, self.forward, outputs) for _ in self._paths]
        self._tables = [Table(self.capacity) for _ in self._paths]
        self.logs: dict[tuple[str, int], list[Given]] = defaultdict(list)
        self.next: dict[tuple[str, int], int] = defaultdict(int)
        self.outputs: dict[tuple[str, int], list[Given]] = defaultdict(list)
        self.history = History(name, LANES, self.capacity, lambda key: home(key, LANES), divert=self.divert)
        for _ in range(STEPS):
            self._arrive()

    def keys(self) -> dict[str, Any]:
        duplicates = "divert" if self.divert else "drop"
        return {
            "name": self.name,
            "partitions": LANES,
            "id_cache_size": self.capacity,
            "duplicates": duplicates,
        }

    def _arrive(self) -> None:
        dice = self.dice
        roll = dice.random()
        source, offset = dice.choice(_SOURCES), dice.randrange(_OFFSETS)
        if roll < 0.15:
            key, value, headers, own = _content(dice)
        elif roll < 0.2:
            key, value, headers, own = _content(dice)
            headers += dice.choice(_MALFORMED)
        else:
            key, value, headers, own = _content(random.Random(b"%b/%d" % (source, offset)))
            headers += (("_RF_BRIDGE_DUPL_ID", b"%b/%d" % (source, offset)),)
            confirmed = dice.choice([None, 0, 0, dice.randint(0, offset)])
            headers += () if confirmed is None else (("_RF_BRIDGE_CONFIRMED", b"%d" % confirmed),)
        partition = own if dice.random() < 0.7 else dice.randrange(LANES)
        log = self.logs[self.name, partition]
        log.append(Given(len(log), key, list(headers), value, 1_000 + len(log)))
        self.history.inputs.append(record_of(self.name, partition, log[-1]))

    def run(self) -> None:
        while ready := [place for place, log in self.logs.items() if self.next[place] < len(log)]:
            self._turn(*self.dice.choice(sorted(ready)))

    def _turn(self, topic: str, lane: int) -> None:
        begin = self.next[topic, lane]
        records = self.logs[topic, lane][begin : begin + self.dice.randint(1, 6)]
        batch = FetchedBatch(topic, lane, begin, records[-1].offset + 1, records, 0)
        path, table = self._paths[lane], cast("LaneTable", self._tables[lane])
        outcome = path.decide([DueRecords(batch, records)], table, {})
        large = [
            item.record
            for item, verdict in zip(outcome.here, outcome.checked.verdicts, strict=True)
            if verdict is not Verdict.DUPLICATE and _is_large(item.record.headers)
        ]
        if large:
            outcome = path.decide(
                [DueRecords(batch, records)], table, {(lane, record.offset): "too large" for record in large}
            )
        if self.dice.random() < 0.2:  # a crash: nothing is written
            return
        written = written_by(self._emitters[lane], outcome, _BYTES_MAX)
        self._tables[lane].apply(outcome)
        self.next[topic, lane] = outcome.ends[0]
        for name, partition, record in written:
            self._append((name, partition), record)

    def _append(self, place: tuple[str, int], record: Given) -> None:
        log = self.logs[place] if place[0] == self.forward else self.outputs[place]
        log.append(Given(len(log), record.key, record.headers, record.value, record.timestamp))
        fates: Mapping[str, list[Record]] = {
            f"{self.name}.accepted": self.history.accepted,
            f"{self.name}.duplicates": self.history.diverted,
            f"{self.name}.quarantine": self.history.quarantined,
        }
        if place[0] in fates:
            fates[place[0]].append(record_of(*place, log[-1]))


def written_by(emitter: Emitter, outcome: Outcome, bytes_max: int) -> list[tuple[str, int, Given]]:
    """Return topic, partition and record of all that a lane writes for a batch."""
    found = []
    for item in emitter.emit(outcome, lambda: BatchBuilder(bytes_max, 0, is_transactional=1)):
        records = MemoryRecords(bytes(item.builder._build()))
        while (batch := records.next_batch()) is not None:
            found += [
                (item.topic, item.partition, Given(0, r.key, list(r.headers), r.value, r.timestamp))
                for r in batch
            ]
    return found


def _is_large(headers: Sequence[tuple[str, bytes | None]]) -> bool:
    return any(name == "t" and int(value or b"0") % _LARGE_ARE == 0 for name, value in headers)


def _content(dice: random.Random) -> tuple[bytes | None, bytes, Headers, int]:
    key = dice.choice([None, b"a", b"b", b"c", b"d"])
    headers: Headers = (("t", b"%d" % dice.randrange(10**6)),)
    if dice.random() < 0.6:
        headers += (("_AMQ_DUPL_ID", b"id%d" % dice.randrange(6)),)
    if dice.random() < 0.3:
        headers += (("_RF_HOPS", b"berlin,paris"),)
    if dice.random() < 0.4:
        headers += (("_RF_BRIDGE_IDS", b"ignore"),)
    value = b"%d" % dice.randrange(10**6)
    if dice.random() < 0.2:
        headers += (("_RF_TX", b"json/1"),)
        value = json.dumps({"parts": [_part(dice) for _ in range(dice.randint(1, 3))]}).encode()
    return key, value, headers, dice.randrange(LANES) if key is None else home(key, LANES)


def _part(dice: random.Random) -> dict[str, Any]:
    ids = [{"name": "_AMQ_DUPL_ID", "value": f"id{dice.randrange(6)}"}] if dice.random() < 0.5 else []
    return {"key": dice.choice([None, "a", "b"]), "value": "part", "headers": ids}

"""Lanes of one address with transactions among plain messages, against the shortest program of the due output.

The real path and emitter, with a ring each; input and forward queues in memory, batches cut anywhere, crashes before the commit. Each
commit writes the records of the reference, one by one; and the fault tests' checker finds nothing in the whole.
"""

import json
import random
import zlib
from collections import defaultdict, deque
from collections.abc import Hashable, Sequence
from typing import Any, Final, NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.batch.batch import DueRecords, FetchedBatch
from agents.decision.decide import Path
from agents.output.build import Emitter
from agents.output.topic_batches import Outputs, TooLargeError
from ringfence_kafka.config.load import validate
from tables.table import LaneTable
from tests.harness.checker.check import check, counts
from tests.harness.history import History, Target, record_of
from tests.property import examples
from tests.support.bridges.lane_runs import written_by
from tests.support.kafka import home
from tests.unit.agents.decision.test_decide import Given, Table

LANES: Final = 3
BYTES_MAX: Final = 3_000
COUNTS: Final = {"transfers.accepted": 2, "payments.accepted": 3, "notes.accepted": 2}
SETTINGS: Final = validate(
    {
        "addresses": [
            {"name": "transfers", "transaction_addresses": ["payments", "notes"], "duplicates": "divert"},
            {"name": "payments", "partitioner": "crc32"},
            {"name": "notes", "group_header": "region", "duplicate_id_from": "key"},
            {"name": "ledgers"},
        ]
    }
)
FORWARD: Final = "ringfence-transfers-forward"


# -- what is sent --------------------------------------------------------------------------------------------------

ids = st.sampled_from([None, None, *(f"id{number}" for number in range(7))])
keys = st.sampled_from([None, "a", "b", "c", "d"])


class PlannedPart(NamedTuple):
    """One part of a transaction."""

    address: str | None
    key: str | None
    id: str | None
    region: str | None
    large: bool


class Planned(NamedTuple):
    """One message; without parts a plain one."""

    id: str | None
    key: str | None
    partition: int
    parts: list[PlannedPart]
    malformed: bool

    def given(self, offset: int) -> Given:
        headers: list[tuple[str, bytes | None]] = [("t", b"%d/%d" % (self.partition, offset))]
        if self.id is not None:
            headers.append(("_AMQ_DUPL_ID", self.id.encode()))
        key = None if self.key is None else self.key.encode()
        if not self.parts and not self.malformed:
            return Given(offset, key, headers, b"plain", 1_000 + offset)
        parts = [_written(number, part) for number, part in enumerate(self.parts)]
        document = {"parts": parts, **({"odd": 1} if self.malformed else {})}
        return Given(
            offset, key, [*headers, ("_RF_TX", b"json/1")], json.dumps(document).encode(), 1_000 + offset
        )


def _written(number: int, part: PlannedPart) -> dict[str, Any]:
    named = (("_AMQ_DUPL_ID", part.id), ("region", part.region))
    return {
        "address": part.address,
        "key": part.key,
        "value": str(number) * (BYTES_MAX if part.large else 1),
        "headers": [{"name": name, "value": value} for name, value in named if value is not None],
    }


parts = st.builds(
    PlannedPart,
    address=st.sampled_from([None, "transfers", "payments", "payments", "notes"] * 5 + ["ledgers"]),
    key=keys,
    id=ids,
    region=st.sampled_from([None, "north", "south"]),
    large=st.sampled_from([False] * 30 + [True]),
)
messages = st.builds(
    Planned,
    id=ids,
    key=keys,
    partition=st.integers(0, LANES - 1),
    parts=st.lists(parts, max_size=5),
    malformed=st.sampled_from([False] * 20 + [True]),
)


# -- what is due ---------------------------------------------------------------------------------------------------


class Due(NamedTuple):
    """A record that is to be written."""

    topic: str
    partition: int | None
    """None = any."""
    source: bytes
    part: bytes | None
    key: bytes | None


class Reference:
    """One lane, written in the shortest way."""

    def __init__(self, number: int, capacity: int) -> None:
        self.number = number
        self.ring: deque[tuple[Hashable, bytes]] = deque(maxlen=capacity)

    def take(self, plan: Planned, source: bytes, *, arrived: bool) -> list[Due]:
        known = self._ids(plan)
        broken = plan.malformed or any(part.address == "ledgers" for part in plan.parts)
        key = plan.key or plan.id
        if key is None and plan.parts and not broken and known:
            key = known[0][1]
        at_home = self.number if key is None else home(key.encode(), LANES)
        own_key = None if plan.key is None else plan.key.encode()
        if not arrived and at_home != self.number:
            return [Due(FORWARD, at_home, source, None, own_key)]
        if broken or any(part.large for part in plan.parts):
            return [Due("transfers.quarantine", int(source.split(b"/")[1]) % LANES, source, None, own_key)]
        if any(item == held for item in known for held, _ in self.ring):
            return [Due("transfers.duplicates", None, source, None, own_key)]
        self.ring.extend((item, source) for item in known)
        if not plan.parts:
            return [_due("transfers", own_key, source, None)]
        return [
            _due(part.address or "transfers", _group(part), source, b"%d/%d" % (number, len(plan.parts)))
            for number, part in enumerate(plan.parts, 1)
        ]

    @staticmethod
    def _ids(plan: Planned) -> list[tuple[str, str]]:
        found = [("transfers", plan.id)]
        for part in plan.parts:
            address = part.address or "transfers"
            found.append((address, part.key if address == "notes" else part.id))
        return list(dict.fromkeys((address, item) for address, item in found if item is not None))


def _group(part: PlannedPart) -> bytes | None:
    if part.address == "notes":
        return (part.region or "qpid.no-group").encode()
    return None if part.key is None else part.key.encode()


def _due(address: str, group: bytes | None, source: bytes, part: bytes | None) -> Due:
    topic = f"{address}.accepted"
    partition = None
    if group is not None:
        count = COUNTS[topic]
        partition = zlib.crc32(group) % count if address == "payments" else home(group, count)
    return Due(topic, partition, source, part, group)


# -- the run -------------------------------------------------------------------------------------------------------


class World:
    """Three lanes that take turns at random."""

    def __init__(self, plan: Sequence[Planned], capacity: int, dice: random.Random) -> None:
        self.dice = dice
        counts_of = {**COUNTS, "transfers.duplicates": 2, "transfers.quarantine": LANES, FORWARD: LANES}
        limits = dict.fromkeys(counts_of, BYTES_MAX) | {FORWARD: 10**6, "transfers.quarantine": 10**6}
        limits["transfers.duplicates"] = 10**6
        own, *others = SETTINGS.addresses[:3]
        self.paths = [Path(own, lane, LANES, FORWARD, others) for lane in range(LANES)]
        self.emitters = [Emitter(own, FORWARD, Outputs(counts_of, limits, {}), others) for _ in self.paths]
        self.tables = [Table(capacity) for _ in self.paths]
        self.references = [Reference(lane, capacity) for lane in range(LANES)]
        self.planned: dict[bytes, Planned] = {}
        self.logs: dict[tuple[str, int], list[Given]] = defaultdict(list)
        self.next: dict[tuple[str, int], int] = defaultdict(int)
        self.ends: dict[tuple[str, int], int] = defaultdict(int)
        self.history = History(
            "transfers", LANES, capacity, lambda key: home(key, LANES), divert=True,
            others={
                "payments": Target("payments.accepted"),
                "notes": Target("notes.accepted", lambda item: item.key, lambda item: item.header("region") or b"qpid.no-group"),
            },
        )  # fmt: skip
        for each in plan:
            log = self.logs["transfers", each.partition]
            record = each.given(len(log))
            log.append(record)
            self.planned[b"transfers/%d/%d" % (each.partition, record.offset)] = each
            self.history.inputs.append(record_of("transfers", each.partition, record))

    def run(self) -> None:
        while ready := [place for place, log in self.logs.items() if self.next[place] < len(log)]:
            self.turn(*self.dice.choice(sorted(ready)))

    def turn(self, topic: str, lane: int) -> None:
        begin = self.next[topic, lane]
        records = self.logs[topic, lane][begin : begin + self.dice.randint(1, 8)]
        batch = FetchedBatch(topic, lane, begin, records[-1].offset + 1, records, 0)
        refused: dict[tuple[int, int], str] = {}
        while True:
            outcome = self.paths[lane].decide(
                [DueRecords(batch, records)], cast("LaneTable", self.tables[lane]), refused
            )
            try:
                written = written_by(self.emitters[lane], outcome, BYTES_MAX)
            except TooLargeError as error:
                refused |= error.reasons
                continue
            break
        if self.dice.random() < 0.2:  # a crash: nothing of it ever was
            return
        self._compare(topic, lane, records[: outcome.ends[0] - begin], written)
        self.tables[lane].apply(outcome)
        self.next[topic, lane] = outcome.ends[0]
        for name, partition, record in written:
            self._append(name, partition, record)

    def _append(self, topic: str, partition: int, record: Given) -> None:
        place = topic, partition
        self.ends[place] += 1
        moved = Given(self.ends[place] - 1, record.key, record.headers, record.value, record.timestamp)
        if topic == FORWARD:
            self.logs[place].append(moved)
            return
        fates = {
            "transfers.duplicates": self.history.diverted,
            "transfers.quarantine": self.history.quarantined,
        }
        fates.get(topic, self.history.accepted).append(record_of(topic, partition, moved))

    def _compare(
        self, topic: str, lane: int, records: Sequence[Given], written: Sequence[tuple[str, int, Given]]
    ) -> None:
        due: list[Due] = []
        for record in records:
            source = b"transfers/%d/%d" % (lane, record.offset)
            if topic == FORWARD:
                source = next(value or b"" for name, value in record.headers if name == "_RF_SOURCE")
            due += self.references[lane].take(self.planned[source], source, arrived=topic == FORWARD)
        found = []
        for name, partition, record in written:
            headers = dict(record.headers)
            part = headers.get("_RF_TX_PART")
            found.append(Due(name, partition, headers["_RF_SOURCE"] or b"", part, record.key))
        assert _by_group(found, due) == _by_group(due, due)


def _by_group(
    records: Sequence[Due], due: Sequence[Due]
) -> dict[tuple[str, bytes | None, int | None], list[Due]]:
    """Records of each group in a partition, in order. A record that is due in any partition has no partition here."""
    free = {(item.topic, item.key) for item in due if item.partition is None}
    groups: dict[tuple[str, bytes | None, int | None], list[Due]] = defaultdict(list)
    for record in records:
        told = record._replace(partition=None) if (record.topic, record.key) in free else record
        groups[told.topic, told.key, told.partition].append(told)
    return groups


@settings(max_examples=examples(500))
@given(
    plan=st.lists(messages, max_size=40),
    capacity=st.sampled_from([0, 1, 2, 4, 1_000]),
    dice=st.randoms(use_true_random=False),
)
def test_exactly_what_is_due(plan: list[Planned], capacity: int, dice: random.Random) -> None:
    """Each message and each transaction comes once, whole, in order, or is a duplicate or in quarantine, however it was cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agents.decision.decide.BATCH_PARTS_MAX", 6)
        world = World(plan, capacity, dice)
        world.run()

    allowed = {"CROSS-LANE"} if capacity == 1_000 else {"CROSS-LANE", "OVERRUN"}
    findings = check(world.history)
    assert [str(finding) for finding in findings if finding.anomaly.value not in allowed] == []
    assert capacity or not any(counts(findings).values())

"""Record batches of a bridge's cycle, and their destinations."""

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agents.bridge.batch_builder import BatchBuilder, CycleBatches, Target
from agents.bridge.members import owner
from agents.bridge.plan import Plan, plans
from agents.bridge.translation import Refused
from agents.bridge.window import Window
from agents.decision.partitioner import Partitioner
from ringfence_kafka import clock
from ringfence_kafka.config.load import validate

DOCUMENT = Path(__file__).parents[4] / "docs" / "bridges.md"
TOPIC_ID = "AbC_-67890123456789012"
MEMBERS = ("berlin", "paris", "rome")


class Record(NamedTuple):
    """As a consumer reads it."""

    offset: int
    key: bytes | None = b"g"
    value: bytes | None = b"v"
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = 5


@dataclass
class Builder:
    """A record batch of at most three records, or one that is large."""

    records: list[dict[str, Any]] = field(default_factory=list)

    def append(self, **record: Any) -> object | None:
        if len(self.records) == 3 or (self.records and len(record["value"] or b"") > 100):
            return None
        self.records.append(record)
        return record

    def size(self) -> int:
        return sum(
            len(record["value"] or b"") + sum(len(value or b"") for _, value in record["headers"])
            for record in self.records
        )


def _plan(address: dict[str, Any] | None = None, **keys: Any) -> Plan:
    own = {
        "name": "b",
        "source_topic": "s",
        "target_address": "t",
        "target": {"bootstrap_servers": "x:1"},
        **keys,
    }
    addresses = {} if address is None else {"addresses": [{"name": "t", **address}]}
    (plan,) = plans(validate({"bridges": [own], **addresses}))
    return plan


def _load(
    plan: Plan,
    records: list[Record],
    target: Target = Target(4, 500, compacted=False, quarantine_bytes_max=500),  # noqa: B008 - frozen
    records_max: dict[int, int] | None = None,
    refused: dict[int, str] | None = None,
    malformed: dict[tuple[int, int], str] | None = None,
    refused_by_all: dict[int, str] | None = None,
) -> CycleBatches:
    window = Window(1_000)
    window.open(2, TOPIC_ID, 10)
    known = Refused(
        {(window.places[2], offset): why for offset, why in (refused or {}).items()},
        {(window.places[2], offset): why for offset, why in (refused_by_all or {}).items()},
    )
    loader = BatchBuilder(plan, target, Builder, records_max or {}, known)
    cycle = window.begin({2: records[-1].offset + 1})
    return loader.load(cycle, {window.places[2]: records}, malformed or {})


def _headers(load: CycleBatches) -> list[dict[str, bytes]]:
    return [dict(record["headers"]) for batch in load.batches for record in batch.builder.records]


@pytest.mark.parametrize("trace", [False, True])
def test_hop_and_confirmed(trace: bool) -> None:
    """A record carries its hop (bridge, topic ID, partition, offset) and the confirmed offset at its departure.

    A header about IDs is added only if they do not count, and the trace only if it is configured.
    """
    load = _load(_plan(returns="drop" if trace else None), [Record(12), Record(14)])

    assert _headers(load) == [
        {
            "_RF_BRIDGE_DUPL_ID": f"b/{TOPIC_ID}/2/{number}".encode(),
            "_RF_BRIDGE_CONFIRMED": b"10",
            **({"_RF_HOPS": f"*{TOPIC_ID}".encode()} if trace else {}),
        }
        for number in (12, 14)
    ]
    assert (load.cycle.pending, sum(load.cycle.records.values())) == (1, 2)


def test_ids_ignored() -> None:
    """A bridge that ignores IDs marks each record with that."""
    assert _headers(_load(_plan(user_ids="ignore"), [Record(12)]))[0]["_RF_BRIDGE_IDS"] == b"ignore"


def test_without_detection() -> None:
    """A bridge without duplicate detection writes no header of Ringfence."""
    assert _headers(_load(_plan(use_duplicate_detection=False), [Record(12)])) == [{}]


@pytest.mark.parametrize(
    ("keys", "headers", "key", "place"),
    [
        ({}, (), b"g7", b"g7"),
        ({}, (("_AMQ_DUPL_ID", b"id"),), None, b"id"),
        ({}, (), None, f"b/{TOPIC_ID}/2/12".encode()),
        ({"user_ids": "ignore"}, (("_AMQ_DUPL_ID", b"id"),), None, f"b/{TOPIC_ID}/2/12".encode()),
    ],
)
def test_home(keys: dict[str, Any], headers: Any, key: bytes | None, place: bytes) -> None:
    """The group decides a record's partition, else an ID that counts, else the hop, which a resend has again."""
    (batch,) = _load(_plan(**keys), [Record(12, key, headers=headers)]).batches

    assert batch.partition == Partitioner(4)[place]


def test_home_by_the_targets_rules() -> None:
    """The target's partitioner and group header decide the home; an envelope's group is its key."""
    plan = _plan({"partitioner": "crc32", "group_header": "X"})
    load = _load(
        plan, [Record(12, b"k", headers=(("X", b"g1"),)), Record(13, b"e", headers=(("_RF_TX", b"json/1"),))]
    )
    home = Partitioner(4, "crc32")

    assert {batch.partition for batch in load.batches} == {home[b"g1"], home[b"e"]}


def test_order() -> None:
    """Batches of one partition keep their order, across full ones too."""
    load = _load(_plan(), [Record(index, b"g", b"%d" % index) for index in range(10, 20)])

    assert [record["value"] for batch in load.batches for record in batch.builder.records] == [
        b"%d" % index for index in range(10, 20)
    ]
    assert [batch.count for batch in load.batches] == [3, 3, 3, 1]


def test_without_timestamps() -> None:
    """A missing timestamp is -1, because aiokafka would give leading records the timestamp of the first that has one."""
    load = _load(
        _plan(), [Record(number, timestamp=time) for number, time in enumerate((-1, -1, 7, -1, 9), 12)]
    )

    assert [[record["timestamp"] for record in batch.builder.records] for batch in load.batches] == [
        [-1, -1],
        [7, -1, 9],
    ]


def test_smaller_batches() -> None:
    """Batches are limited to the given number of records for a target partition that refused one."""
    partition = Partitioner(4)[b"g"]
    load = _load(_plan(), [Record(index) for index in range(10, 15)], records_max={partition: 2})

    assert [(batch.first[1], batch.count) for batch in load.batches] == [(10, 2), (12, 2), (14, 1)]


def test_quarantine() -> None:
    """A record that is too large, refused or malformed goes to quarantine with the reason, and counts as in flight.

    All other records flow.
    """
    records = [Record(12), Record(13, value=b"x" * 480), Record(14), Record(15)]
    load = _load(_plan(), records, refused={14: "no"}, malformed={(2, 15): "bad"})
    kept = [batch for batch in load.batches if batch.topic == "b.quarantine"]

    assert [dict(batch.builder.records[0]["headers"])["_RF_SOURCE"] for batch in kept] == [
        b"s/2/13",
        b"s/2/14",
        b"s/2/15",
    ]
    assert {dict(batch.builder.records[0]["headers"])["_RF_BRIDGE_APP"] for batch in kept} == {
        b"ringfence"
    }  # other sources' bridges may have this name
    assert load.quarantined == {2: 3}
    assert load.cycle.pending == 4
    assert (
        kept[0].builder.records[0]["value"].startswith(b'{"bytes": 480')
    )  # by size and digest: it does not fit there either


def test_compacted_target() -> None:
    """A compacted target takes no record without a key."""
    target = Target(4, 500, compacted=True, quarantine_bytes_max=500)
    load = _load(_plan(), [Record(12, None), Record(13)], target)

    assert load.quarantined == {2: 1}


NO_QUARANTINE = Target(4, 500, compacted=False, quarantine_bytes_max=0)


def test_no_quarantine() -> None:
    """A record that fits nowhere stops only its partition, and the records before it go out.

    No record is left out silently.
    """
    window = Window(1_000)
    for partition in (1, 2):
        window.open(partition, TOPIC_ID, 10)
    first, second = window.places[1], window.places[2]
    loader = BatchBuilder(_plan(), NO_QUARANTINE, Builder, {}, Refused())
    load = loader.load(
        window.begin({1: 13, 2: 12}),
        {
            first: [Record(10), Record(11, value=b"x" * 600), Record(12)],
            second: [Record(10, b"h"), Record(11, b"h")],
        },
        {},
    )

    assert {place: error.offset for place, error in load.stopped.items()} == {first: 11}
    assert "create it at the target, or make t accept it" in str(load.stopped[first])
    assert load.cycle.records == {first: 1, second: 2}
    assert sorted(header["_RF_BRIDGE_DUPL_ID"].decode()[25:] for header in _headers(load)) == [
        "1/10",
        "2/10",
        "2/11",
    ]


def test_filtered_before_what_stops() -> None:
    """Only records before the one that stops its partition are counted as filtered."""
    plan = _plan(filter_header="pass", filter_values=["y"])
    yes = (("pass", b"y"),)
    records = [Record(10), Record(11, headers=yes), Record(12, value=b"x" * 600, headers=yes), Record(13)]
    load = _load(plan, records, NO_QUARANTINE)

    assert (load.filtered, list(load.cycle.records.values())) == ({2: 1}, [1])


def test_refused_by_the_quarantine() -> None:
    """A record that the quarantine topic itself refused stops its partition, as if there were no quarantine."""
    load = _load(_plan(), [Record(12), Record(13)], refused={13: "no"}, refused_by_all={13: "nor here"})
    (error,) = load.stopped.values()

    assert error.offset == 13
    assert "(no), and b.quarantine does not accept it (nor here)" in str(error)
    assert [batch.topic for batch in load.batches] == ["t"]


def test_share() -> None:
    """Each record goes to exactly one member, even without a group."""
    members = [
        {"name": "berlin"},
        *({"name": member, "bootstrap_servers": f"{member}:1"} for member in MEMBERS[1:]),
    ]
    connection = {
        "name": "eu",
        "this": "berlin",
        "addresses": ["o"],
        "load_balancing": "strict",
        "members": members,
    }
    records = [Record(index, None if index % 3 == 0 else b"g%d" % index) for index in range(10, 70)]
    found = {}
    for plan in plans(validate({"cluster_connections": [connection]})):
        assert plan.share is not None
        load = _load(plan, records)
        hops = [header["_RF_BRIDGE_DUPL_ID"] for header in _headers(load)]
        found[plan.share.member] = {int(hop.rpartition(b"/")[2]) for hop in hops}

    assert sorted(number for value in found.values() for number in value) == list(range(10, 70))
    assert all(found.values())
    assert all(index in found[owner(MEMBERS, b"g%d" % index)] for index in range(10, 70) if index % 3)


def test_timestamps_that_are_no_nearer() -> None:
    """The refusal of one timestamp covers all timestamps that are as far ahead or farther, or as old or older."""
    now, wall = clock.now() * 1000, 1_000_000_000.0
    refused = Refused()
    refused.learn_time(1_007_200_000, clock.now(), wall)
    oldest, farthest = refused.times()

    assert oldest == -math.inf
    assert farthest == pytest.approx(1_007_200_000, abs=1_000)
    assert refused.ahead_ms == pytest.approx(1_007_200_000 - now, abs=1_000)

    refused.learn_time(900_000_000, clock.now(), wall)
    assert refused.times()[0] == 900_000_000
    refused.clear()
    assert refused.times() == (-math.inf, math.inf)


def test_refused_for_their_time() -> None:
    """A record with a refused timestamp goes to quarantine at once, and nearer timestamps are still tried."""
    refused = Refused()
    refused.learn_time(5_000, clock.now(), 1_000.0)
    refused.learn_time(10, clock.now(), 1_000.0)
    plan, window = _plan(), Window(1_000)
    window.open(2, TOPIC_ID, 10)
    target = Target(4, 500, compacted=False, quarantine_bytes_max=500)
    times = {12: 500, 13: 10**9, 14: 9, 15: 11, 16: 4_000}
    records = [Record(offset, timestamp=time) for offset, time in times.items()]
    loader = BatchBuilder(plan, target, Builder, {}, refused)
    load = loader.load(window.begin({2: 17}), {window.places[2]: records}, {})

    assert [batch.first[1] for batch in load.batches if batch.quarantine] == [13, 14]
    assert sum(batch.count for batch in load.batches if not batch.quarantine) == 3
    assert "its timestamp is 1000000000 ms" in load.reasons[0]


@pytest.mark.parametrize(
    ("key", "before", "after"),
    [
        ("user_ids", {}, {"user_ids": "ignore"}),
        ("partitioner", {}, {"address": {"partitioner": "crc32"}}),
        ("group_header", {}, {"address": {"group_header": "h"}}),
        ("default_group", {"address": {"group_header": "h"}}, {"address": {"group_header": "h", "default_group": "d"}}),
        ("duplicate_id_headers", {}, {"address": {"duplicate_id_headers": ["h"]}}),
        ("duplicate_id_from", {}, {"address": {"duplicate_id_from": "value"}}),
        (
            "add_headers",
            {"address": {"group_header": "h"}},
            {"address": {"group_header": "h"}, "add_headers": {"h": "all"}},
        ),
        ("add_headers", {}, {"add_headers": {"_AMQ_DUPL_ID": "all"}}),
    ],
)  # fmt: skip
def test_keys_that_move_homes(key: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Each of these keys may move repeated messages to another partition.

    The page docs/bridges.md names it among those for which the bridge must be drained before a change.
    """
    headers = [(("_AMQ_DUPL_ID", b"id-%d" % index), ("h", b"h-%d" % index)) for index in range(30)]
    records = [
        Record(10 + number, None, b"%d" % number, header[: 1 + number % 2])
        for number, header in enumerate(headers)
    ]

    def homes(made: dict[str, Any]) -> dict[Any, int]:
        return {
            dict(record["headers"])["_RF_BRIDGE_DUPL_ID"]: batch.partition
            for batch in _load(_plan(**made), records).batches
            for record in batch.builder.records
        }

    assert homes(before).keys() == homes(after).keys()
    assert homes(before) != homes(after)
    (told,) = re.findall(
        r"^\*\*Partitions\.\*\* .*?\n\n", DOCUMENT.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert f"`{key}`" in told

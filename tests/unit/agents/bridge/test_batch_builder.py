"""Record batches of a bridge's cycle, and their destinations."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agents.bridge.batch_builder import BatchBuilder, CycleBatches, Target
from agents.bridge.members import owner
from agents.bridge.plan import Plan, plans
from agents.bridge.translation import Refused
from agents.bridge.window import Window
from agents.decision.partitioner import Partitioner
from ringfence_kafka import clock
from ringfence_kafka.config.load import validate
from tests.support.bridges.plans import plan
from tests.support.consumers.windows import Fetched

DOCUMENT = Path(__file__).parents[4] / "docs" / "bridges.md"
TOPIC_ID = "AbC_-67890123456789012"
MEMBERS = ("berlin", "paris", "rome")


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


def _load(
    made: Plan,
    records: list[Fetched],
    target: Target = Target(4, 500, compacted=False, quarantine_bytes_max=500),  # noqa: B008 - frozen
    records_max: dict[int, int] | None = None,
    refused: dict[int, str] | None = None,
    malformed: dict[tuple[int, int], str] | None = None,
    refused_by_all: dict[int, str] | None = None,
    known: Refused | None = None,
) -> CycleBatches:
    window = Window(1_000)
    window.open(2, TOPIC_ID, 10)
    known = known or Refused(
        {(window.places[2], offset): why for offset, why in (refused or {}).items()},
        {(window.places[2], offset): why for offset, why in (refused_by_all or {}).items()},
    )
    loader = BatchBuilder(made, target, Builder, records_max or {}, known)
    cycle = window.start_cycle({2: records[-1].offset + 1})
    return loader.load(cycle, {window.places[2]: records}, malformed or {})


def _headers(load: CycleBatches) -> list[dict[str, bytes]]:
    return [dict(record["headers"]) for batch in load.batches for record in batch.builder.records]


@pytest.mark.parametrize(
    ("keys", "added"),
    [
        ({}, {}),
        ({"returns": "drop"}, {"_RF_HOPS": f"*{TOPIC_ID}".encode()}),
        ({"user_ids": "ignore"}, {"_RF_BRIDGE_IDS": b"ignore"}),
        ({"use_duplicate_detection": False}, None),
    ],
)
def test_hop_and_confirmed(keys: dict[str, Any], added: dict[str, bytes] | None) -> None:
    """A record carries its hop and the confirmed offset at its departure; more only if it is configured, and nothing without detection."""
    load = _load(plan(**keys), [Fetched(12), Fetched(14)])

    hops = [f"b/{TOPIC_ID}/2/{number}".encode() for number in (12, 14)]
    assert _headers(load) == [
        {} if added is None else {"_RF_BRIDGE_DUPL_ID": hop, "_RF_BRIDGE_CONFIRMED": b"10", **added}
        for hop in hops
    ]
    assert (load.cycle.pending, sum(load.cycle.records.values())) == (1, 2)


CRC32 = {"address": {"partitioner": "crc32", "group_header": "X"}}


@pytest.mark.parametrize(
    ("keys", "headers", "key", "place"),
    [
        ({}, (), b"g7", b"g7"),
        ({}, (("_AMQ_DUPL_ID", b"id"),), None, b"id"),
        ({}, (), None, f"b/{TOPIC_ID}/2/12".encode()),
        ({"user_ids": "ignore"}, (("_AMQ_DUPL_ID", b"id"),), None, f"b/{TOPIC_ID}/2/12".encode()),
        (CRC32, (("X", b"g1"),), b"k", b"g1"),
        (CRC32, (("_RF_TX", b"json/1"),), b"e", b"e"),
    ],
)
def test_home(keys: dict[str, Any], headers: Any, key: bytes | None, place: bytes) -> None:
    """The target's group decides a record's partition, else an ID that counts, else the hop, which a resend has again."""
    (batch,) = _load(plan(**keys), [Fetched(12, key, headers=headers)]).batches

    assert batch.partition == Partitioner(4, "crc32" if keys is CRC32 else "murmur2")[place]


def test_without_timestamps() -> None:
    """A missing timestamp is -1, because aiokafka would give leading records the timestamp of the first that has one."""
    load = _load(plan(), [Fetched(at, timestamp=time) for at, time in enumerate((-1, -1, 7, -1, 9), 12)])

    times = [[record["timestamp"] for record in batch.builder.records] for batch in load.batches]
    assert times == [[-1, -1], [7, -1, 9]]


def test_quarantine() -> None:
    """A record that is too large, refused or malformed goes to quarantine with the reason, and counts as in flight."""
    records = [Fetched(12), Fetched(13, value=b"x" * 480), Fetched(14), Fetched(15)]
    load = _load(plan(), records, refused={14: "no"}, malformed={(2, 15): "bad"})
    kept = [batch for batch in load.batches if batch.topic == "b.quarantine"]

    headers = [dict(batch.builder.records[0]["headers"]) for batch in kept]
    assert [header["_RF_SOURCE"] for header in headers] == [b"s/2/13", b"s/2/14", b"s/2/15"]
    assert {header["_RF_BRIDGE_APP"] for header in headers} == {
        b"ringfence"
    }  # other sources' bridges may have this name
    assert load.quarantined == {2: 3}
    assert load.cycle.pending == 4
    # By size and digest: it does not fit there either.
    assert kept[0].builder.records[0]["value"].startswith(b'{"bytes": 480')


def test_compacted_target() -> None:
    target = Target(4, 500, compacted=True, quarantine_bytes_max=500)
    load = _load(plan(), [Fetched(12, None), Fetched(13)], target)

    assert load.quarantined == {2: 1}


NO_QUARANTINE = Target(4, 500, compacted=False, quarantine_bytes_max=0)


def test_no_quarantine() -> None:
    """A record that fits nowhere stops only its partition, and the records before it go out. No record is left out silently."""
    window = Window(1_000)
    for partition in (1, 2):
        window.open(partition, TOPIC_ID, 10)
    first, second = window.places[1], window.places[2]
    loader = BatchBuilder(plan(), NO_QUARANTINE, Builder, {}, Refused())
    records = {first: [Fetched(10), Fetched(11, value=b"x" * 600), Fetched(12)]}
    records[second] = [Fetched(10, b"h"), Fetched(11, b"h")]
    load = loader.load(window.start_cycle({1: 13, 2: 12}), records, {})

    assert {place: error.offset for place, error in load.stopped.items()} == {first: 11}
    assert "create it at the target, or make t accept it" in str(load.stopped[first])
    assert load.cycle.records == {first: 1, second: 2}
    hops = sorted(header["_RF_BRIDGE_DUPL_ID"].decode()[25:] for header in _headers(load))
    assert hops == ["1/10", "2/10", "2/11"]


def test_refused_by_the_quarantine() -> None:
    load = _load(plan(), [Fetched(12), Fetched(13)], refused={13: "no"}, refused_by_all={13: "nor here"})
    (error,) = load.stopped.values()

    assert error.offset == 13
    assert "(no), and b.quarantine does not accept it (nor here)" in str(error)
    assert [batch.topic for batch in load.batches] == ["t"]


def test_share() -> None:
    """Each record goes to exactly one member, even without a group."""
    others = [{"name": name, "bootstrap_servers": f"{name}:1"} for name in MEMBERS[1:]]
    members = [{"name": "berlin"}, *others]
    eu = {"name": "eu", "this": "berlin", "addresses": ["o"], "load_balancing": "strict", "members": members}
    records = [Fetched(index, None if index % 3 == 0 else b"g%d" % index) for index in range(10, 70)]
    found = {}
    for each in plans(validate({"cluster_connections": [eu]})):
        assert each.share is not None
        hops = [header["_RF_BRIDGE_DUPL_ID"] for header in _headers(_load(each, records))]
        found[each.share.member] = {int(hop.rpartition(b"/")[2]) for hop in hops}

    assert sorted(number for value in found.values() for number in value) == list(range(10, 70))
    assert all(found.values())
    assert all(index in found[owner(MEMBERS, b"g%d" % index)] for index in range(10, 70) if index % 3)


def test_refused_for_their_time() -> None:
    """A record with a refused timestamp goes to quarantine at once, and nearer timestamps are still tried."""
    refused = Refused()
    refused.learn_time(5_000, clock.now(), 1_000.0)
    refused.learn_time(10, clock.now(), 1_000.0)
    times = {12: 500, 13: 10**9, 14: 9, 15: 11, 16: 4_000}
    records = [Fetched(offset, timestamp=time) for offset, time in times.items()]
    load = _load(plan(), records, known=refused)

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
        ("add_headers", {"address": {"group_header": "h"}}, {"address": {"group_header": "h"}, "add_headers": {"h": "all"}}),
        ("add_headers", {}, {"add_headers": {"_AMQ_DUPL_ID": "all"}}),
    ],
)  # fmt: skip
def test_keys_that_move_homes(key: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    headers = [(("_AMQ_DUPL_ID", b"id-%d" % index), ("h", b"h-%d" % index)) for index in range(30)]
    records = [Fetched(10 + at, None, b"%d" % at, 0, some[: 1 + at % 2]) for at, some in enumerate(headers)]

    def homes(made: dict[str, Any]) -> dict[Any, int]:
        return {
            dict(record["headers"])["_RF_BRIDGE_DUPL_ID"]: batch.partition
            for batch in _load(plan(**made), records).batches
            for record in batch.builder.records
        }

    assert homes(before).keys() == homes(after).keys()
    assert homes(before) != homes(after)
    assert f"`{key}`" in DOCUMENT.read_text("utf-8").partition("\n**Partitions.** ")[2].partition("\n\n")[0]

"""The way of a message through a real worker, case by case."""

from typing import Any

from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.worker import Running

APP = "semantics"
ADDRESSES: list[dict[str, Any]] = [
    {"name": "usual", "partitions": 2},
    {"name": "other", "partitions": 1},
    {"name": "off", "partitions": 1, "id_cache_size": 0},
    {"name": "three", "partitions": 1, "id_cache_size": 3},
    {"name": "unchanged", "partitions": 3},
    {"name": "nokey", "partitions": 1},
    {"name": "compressed", "partitions": 1},
]


def ids(got: list[Got]) -> list[bytes | None]:
    return [item.id for item in got]


def test_addresses_are_independent(running: Running) -> None:
    """An ID that one address knows is new to another (HornetQ 37.2: each address has its own distinct cache)."""
    running.outcome("usual", [Sent(b"shared", b"g")])
    got = running.outcome("other", [Sent(b"shared", b"g")])

    assert ids(got) == [b"shared"]


def test_without_id_everything_passes(running: Running) -> None:
    """A message without an ID passes unchecked, as often as it comes, and a null ID is none."""
    before = len(running.settled("nokey"))
    null_id = Sent(None, b"g", headers=(("_AMQ_DUPL_ID", None),))
    got = running.outcome("nokey", [Sent(None, b"g"), Sent(None, b"g"), null_id, null_id])

    assert len(got) - before == 4


def test_size_zero_is_off(running: Running) -> None:
    got = running.outcome("off", [Sent(b"a", b"g"), Sent(b"a", b"g")])

    assert ids(got) == [b"a", b"a"]


def test_eviction_exactly_at_n(running: Running) -> None:
    """The fourth ID overwrites the first with a size of 3, and not one message earlier (HornetQ 37.2)."""
    got = running.outcome(
        "three", [Sent(name, b"g") for name in (b"1", b"2", b"3", b"1", b"4", b"2", b"3", b"4", b"1")]
    )

    assert ids(got) == [b"1", b"2", b"3", b"4", b"1"]


def test_accepted_record_is_unchanged(running: Running) -> None:
    """Key, value, headers and timestamp stay; ``_RF_SOURCE`` is added, and replaced where it was."""
    headers = (("b", b"2"), ("a", None), ("b", b"1"))
    records = [
        Sent(b"1", b"key", b"value", headers, 1_600_000_000_123),
        Sent(b"2", b"key", None, (("_RF_SOURCE", b"forged/0/0"),), 1_600_000_000_124),
        Sent(b"3", b"key", b"", (), 1_600_000_000_125),
    ]
    got = running.outcome("unchanged", records, partition=2)

    assert [(item.key, item.value, item.timestamp) for item in got] == [
        (record.key, record.value, record.timestamp) for record in records
    ]
    assert [item.headers for item in got] == [
        [*headers, ("_AMQ_DUPL_ID", b"1"), ("_RF_SOURCE", b"unchanged/2/0")],
        [("_AMQ_DUPL_ID", b"2"), ("_RF_SOURCE", b"unchanged/2/1")],
        [("_AMQ_DUPL_ID", b"3"), ("_RF_SOURCE", b"unchanged/2/2")],
    ]
    # The Java client's default partitioner puts this key there, whatever partition it came from.
    assert {item.partition for item in got} == {kafka.home(b"key", 3)}


def test_group_is_kept_in_order(running: Running) -> None:
    """Accepted messages of one key are in one partition in the order of their arrival."""
    records = [Sent(b"order-%d" % index, b"group-%d" % (index % 7)) for index in range(500)]
    got = [
        item
        for item in running.outcome("usual", records, partition=1)
        if (item.id or b"").startswith(b"order-")
    ]

    for group in {item.key for item in got}:
        mine = [item for item in got if item.key == group]
        assert len({item.partition for item in mine}) == 1
        assert [item.id for item in mine] == [record.id for record in records if record.key == group]


def test_compressed_input(running: Running) -> None:
    """The worker reads every codec that Kafka knows."""
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    for codec in codecs:
        records = [Sent(b"%d" % number, b"g", codec.encode() * 100) for number in range(len(codecs))]
        records += [Sent(codec.encode(), b"g", codec.encode() * 100)]
        options: dict[str, Any] = {"compression.type": codec}
        kafka.send(running.bootstrap, "compressed", records, **options)
    got = running.settled("compressed")

    assert [item.id for item in got] == [b"0", b"1", b"2", b"3", b"4", *(codec.encode() for codec in codecs)]
    assert [item.value for item in got[5:]] == [codec.encode() * 100 for codec in codecs]

"""Lanes of several partitions in a real worker: one ring for an address, and the refusal of another number of lanes."""

from collections import defaultdict
from pathlib import Path

from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.records.envelopes import envelope, part
from tests.support.worker import configure, worker

PARTITIONS = 4


def _sequences(records: list[Got]) -> dict[str, list[bytes | None]]:
    found = defaultdict(list)
    for record in records:
        found[record.source].append(dict(record.headers).get("_RF_SEQ"))
    return {source: sorted(items, key=lambda item: item or b"") for source, items in found.items()}


def test_one_ring_for_an_address(bootstrap: str, tmp_path: Path) -> None:
    """An ID is known under every group and in every partition, also as the ID of a part; a duplicate names its original."""
    one_ring = kafka.unique("one-ring")
    address = {"name": one_ring, "partitions": PARTITIONS, "lanes": 1, "duplicates": "divert"}
    config = configure(tmp_path, bootstrap, one_ring, [address])
    assert f"{one_ring}-{one_ring}-forward" not in kafka.topics(bootstrap)

    def send(partition: int, *records: Sent, count: int) -> list[Got]:
        kafka.send(bootstrap, one_ring, records, partition)
        kafka.wait_count(bootstrap, f"{one_ring}.accepted", count, PARTITIONS)
        return kafka.read_all(bootstrap, f"{one_ring}.accepted", PARTITIONS)

    with worker(config, one_ring):
        send(0, Sent(b"1", b"a"), Sent(None, b"a"), count=2)
        for partition in range(1, PARTITIONS):
            kafka.send(bootstrap, one_ring, [Sent(b"1", b"g%d" % partition)], partition)
        send(2, envelope(part(key="x", ID="2"), part(key="y", ID="3")), count=4)
        # One ID of a part was accepted under another group, and the other way round.
        kafka.send(bootstrap, one_ring, [envelope(part(key="z", ID="9"), part(key="z", ID="1"))], 1)
        kafka.send(bootstrap, one_ring, [Sent(b"3", b"q")], 3)
        accepted = _sequences(send(3, Sent(b"9", b"q"), count=5))
        duplicates = kafka.wait_count(bootstrap, f"{one_ring}.duplicates", 5, PARTITIONS)

    assert accepted == {
        f"{one_ring}/0/0": [b"0"],
        f"{one_ring}/0/1": [None],
        f"{one_ring}/2/1": [b"1", b"2"],
        f"{one_ring}/3/2": [b"3"],
    }
    originals = {record.source: dict(record.headers)["_RF_ORIGINAL"] for record in duplicates}
    first, parts = f"{one_ring}/0/0".encode(), f"{one_ring}/2/1".encode()
    assert originals == {
        f"{one_ring}/1/0": first,
        f"{one_ring}/2/0": first,
        f"{one_ring}/3/0": first,
        f"{one_ring}/1/1": first,
        f"{one_ring}/3/1": parts,
    }

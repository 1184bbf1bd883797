"""Lanes of several partitions in a real worker: one ring for an address, and the refusal of another number of lanes."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.records.envelopes import envelope, part
from tests.support.worker import WorkerProcess, configure, run_verb, wait_for, worker

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
    with worker(config, one_ring):
        _judge_everywhere(bootstrap, one_ring)


def _judge_everywhere(bootstrap: str, one_ring: str) -> None:
    assert f"{one_ring}-{one_ring}-forward" not in kafka.topics(bootstrap)

    def send(partition: int, *records: Sent, count: int) -> list[Got]:
        kafka.send(bootstrap, one_ring, records, partition)
        kafka.wait_count(bootstrap, f"{one_ring}.accepted", count, PARTITIONS)
        return kafka.read_all(bootstrap, f"{one_ring}.accepted", PARTITIONS)

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


def test_another_number_of_lanes_is_refused(bootstrap: str, tmp_path: Path) -> None:
    """No lane of an address opens with another number of lanes, not even an unused one, and the error names the remedy.

    With the former number all is accepted.
    """
    name, sound = kafka.unique("lanes"), kafka.unique("sound")
    addresses = [{"name": sound, "partitions": 1, "lanes": 1}, {"name": name, "partitions": PARTITIONS}]
    config = configure(tmp_path, bootstrap, name, addresses)
    with worker(config, "before"):  # of four lanes only one has judged something
        kafka.send(bootstrap, name, [Sent(b"1", kafka.at_home(3, PARTITIONS))], 3)
        kafka.wait_count(bootstrap, f"{name}.accepted", 1, PARTITIONS)
    two = config.with_name("two.toml")
    two.write_text(config.read_text() + "lanes = 2\n")
    process = WorkerProcess(two, "two")
    try:
        process.start()

        def lanes() -> dict[str, Any]:
            found: dict[str, Any] = process.health()[1].get("lanes", {})
            return found

        kafka.send(bootstrap, name, [Sent(b"2", kafka.at_home(1, PARTITIONS))], 1)
        kafka.send(bootstrap, sound, [Sent(b"1")])
        kafka.wait_count(bootstrap, f"{sound}.accepted", 1)
        wait_for(
            lambda: {lanes().get(f"{name}-{number}", {}).get("state") for number in (0, 1)} == {"refused"},
            lambda: f"{lanes()}\n{process.log()}",
        )
        reasons = [lanes()[f"{name}-{number}"]["reason"] for number in (0, 1)]
        checked = run_verb("topics", "check", "--config", str(two), check=False)
        process.stop()
    finally:
        process.destroy()
    with worker(config, "after"):
        kafka.wait_count(bootstrap, f"{name}.accepted", 2, PARTITIONS)
        status = json.loads(run_verb("status", "--json", "--config", str(two), check=False).stdout)
    # The lanes that there are are open, though that file has others.
    (told,) = [item for item in status["findings"] if item["where"] == f"address {name}"]
    assert ("its lanes began with lanes = 0" in told["what"], told["stands"]) == (True, False)
    (shown,) = [item for item in status["addresses"] if item["address"] == name]
    assert [(lane["number"], lane["partitions"], lane["state"]) for lane in shown["lanes"]] == [
        (number, [number], "open") for number in range(PARTITIONS)
    ]

    for reason in reasons:
        assert (
            f"Stop the workers and run 'ringfence rings regroup {name} --lanes 2', or set lanes = 0" in reason
        )
    assert checked.returncode != 0
    assert "rings regroup" in checked.stdout

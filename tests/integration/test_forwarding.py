"""Any client, any key: a duplicate reaches the same lane, and a group stays in order."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.worker import Running, WorkerProcess, one_address, wait_for

APP = "forwarding"
PARTITIONS = 4
ANY = -1
"""The client chooses the partitions itself."""
ADDRESSES: list[dict[str, Any]] = [
    {"name": name, "partitions": PARTITIONS, **more}
    for name, more in {
        "java": {},
        "librdkafka": {"partitioner": "crc32"},
        "mismatch": {},
        "regrouped": {"group_header": "GROUP"},
        "forged": {},
    }.items()
]


def counted(running: Running, address: str) -> Counter[str]:
    lanes = running.worker.health()[1]["lanes"]
    return Counter(
        {
            name: sum(lanes[f"{address}-{p}"].get(name, 0) for p in range(PARTITIONS))
            for name in ("forwarded", "accepted", "duplicates")
        }
    )


def traffic(count: int, groups: int) -> list[Sent]:
    """Messages with two resends of each, in all."""
    records = [Sent(b"%d" % index, b"group-%d" % (index % groups), b"%d" % index) for index in range(count)]
    return [*records, *records]


def assert_exact(got: list[Got], records: list[Sent]) -> None:
    expected = {record.id for record in records}
    assert Counter(item.id for item in got) == Counter(dict.fromkeys(expected, 1))


@pytest.mark.parametrize(
    ("address", "options"), [("java", {"partitioner": "murmur2_random"}), ("librdkafka", {})]
)
def test_right_partitioner_forwards_nothing(running: Running, address: str, options: dict[str, str]) -> None:
    """Traffic of the Java client's partitioner, and of librdkafka's with partitioner = "crc32", is at home where it arrives."""
    records = traffic(500, 50)
    kafka.send(running.bootstrap, address, records, ANY, **options)

    assert_exact(running.settled(address), records)
    assert counted(running, address) == Counter(forwarded=0, accepted=500, duplicates=500)


def test_other_partitioner_is_brought_home(running: Running) -> None:
    """Duplicates of two clients with different partitioners are detected, order is kept, and the remedy is named."""
    records = [Sent(b"%d" % index, b"group-%d" % (index % 50), b"%d" % index) for index in range(2_000)]
    kafka.send(running.bootstrap, "mismatch", records, ANY)
    kafka.send(running.bootstrap, "mismatch", records, ANY, partitioner="murmur2_random")
    got = running.settled("mismatch")

    assert_exact(got, records)
    assert counted(running, "mismatch")["forwarded"] > 1_000
    for group in {item.key for item in got}:
        mine = [item for item in got if item.key == group]
        assert len({item.partition for item in mine}) == 1
    assert 'set partitioner = "crc32"' in running.worker.log()


def test_group_header_other_than_key(running: Running) -> None:
    """Messages whose group is not the key go to the group's lane, in the order of one input partition."""
    records = [
        Sent(b"%d" % index, b"key-%d" % (index % 3), b"%d" % index, (("GROUP", b"group-%d" % (index % 20)),))
        for index in range(1_000)
    ]
    kafka.send(running.bootstrap, "regrouped", records, 1)
    got = running.settled("regrouped")

    assert_exact(got, records)
    for number in range(20):
        mine = [item for item in got if item.key == b"group-%d" % number]
        assert [item.id for item in mine] == [b"%d" % index for index in range(number, 1_000, 20)]


def test_forged_forward_goes_to_quarantine(running: Running) -> None:
    """A foreign record in the forward topic is named in quarantine, and stops nothing."""
    kafka.send(
        running.bootstrap,
        f"{APP}-forged-forward",
        [Sent(b"x", b"k"), Sent(b"y", b"k", headers=(("_RF_SOURCE", b"nonsense"),))],
    )
    kafka.send(running.bootstrap, "forged", [Sent(b"z", b"k")], 0)
    got = running.settled("forged")
    quarantined = running.read("forged.quarantine", PARTITIONS)

    assert [item.id for item in got] == [b"z"]
    assert sorted(item.id or b"" for item in quarantined) == [b"x", b"y"]
    assert {dict(item.headers)["_RF_REASON"] for item in quarantined} == {
        b"a forwarded record that does not end in a valid _RF_SOURCE and _RF_TIMESTAMP"
    }


@pytest.mark.long
def test_kill_while_forwarding(bootstrap: str, tmp_path: Path) -> None:
    """The output is exact after repeated SIGKILL while everything is mixed and three quarters are forwarded."""
    name, config = one_address(tmp_path, bootstrap, "forward-kill", PARTITIONS)
    generator = random.Random(7)
    records = [
        Sent(b"%d" % index, generator.choice([None, b"g%d" % (index % 97)]), b"%d" % index)
        for index in range(20_000)
    ]
    with WorkerProcess(config, "w") as process:
        for part in range(4):
            for partition in range(PARTITIONS):
                mine = [
                    record
                    for record in records[part * 5_000 : (part + 1) * 5_000]
                    if int(record.id or 0) % PARTITIONS == partition
                ]
                kafka.send(bootstrap, name, mine, partition)
                # The same again where it is not at home either.
                kafka.send(bootstrap, name, mine[::7], (partition + 1) % PARTITIONS)
            wait_for(lambda goal=part * 3_000: _accepted(bootstrap, name) > goal, process.log, 120)  # type: ignore[misc]
            process.kill()
            process.start()
        wait_for(lambda: _accepted(bootstrap, name) >= len(records), process.log, 120)
        running = Running(bootstrap, process, [{"name": name, "partitions": PARTITIONS}], name)
        got = running.settled(name)

    assert_exact(got, records)


def _accepted(bootstrap: str, name: str) -> int:
    return len(kafka.read_all(bootstrap, f"{name}.accepted", PARTITIONS))

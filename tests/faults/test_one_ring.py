"""An address with one lane has one ring: copies of an ID in other partitions meet it, even when workers are killed."""

import contextlib
import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support import kafka
from tests.support.kafka import Got, Sent, home
from tests.support.worker import LIMIT_S, WorkerProcess, configure, run_verb, wait_for

SEED = 40_414
PARTITIONS = 4
IDS = 5_000
PRODUCERS = 3
GROUPS = 60
KILLS = 6
AHEAD_MAX = 600
"""The most by which producers are ahead of the lane, so that all kills fall into their traffic."""
FLUSHED = 20
SESSION = {"RINGFENCE_APP__SESSION_TIMEOUT": "6"}


class Producers:
    """Producers that each send each ID once, in an order and under groups of their own, while the lane keeps up."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._allowed = threading.Condition()
        self._sent = self._done = 0
        self._ended = False
        self._partitions = PARTITIONS
        self._threads = [
            threading.Thread(target=self._produce, args=(number,), daemon=True) for number in range(PRODUCERS)
        ]

    @property
    def partitions(self) -> int:
        """Number of input partitions, as far as producers know."""
        return self._partitions

    def spread(self, partitions: int) -> None:
        """Send to this many input partitions from now on."""
        self._partitions = partitions

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def follow(self, done: int) -> None:
        """Note how many messages are processed."""
        with self._allowed:
            self._done = done
            self._allowed.notify_all()

    def end(self) -> None:
        """Wait for the producers that run; those that wait for the lane give up."""
        with self._allowed:
            self._ended = True
            self._allowed.notify_all()
        for thread in self._threads:
            thread.join(LIMIT_S)

    def _producer(self) -> Producer:
        return Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True})

    def _produce(self, number: int) -> None:
        dice = random.Random(f"{SEED} {number}")
        known, producer = self._partitions, self._producer()
        identifiers = list(range(IDS))
        dice.shuffle(identifiers)
        for begin in range(0, IDS, FLUSHED):
            with self._allowed:
                self._allowed.wait_for(lambda: self._ended or self._sent - self._done < AHEAD_MAX, LIMIT_S)
                self._sent += FLUSHED
            if self._ended:
                return
            partitions = self._partitions
            if partitions != known:  # a producer hears of new partitions late, another one at once
                known, producer = partitions, self._producer()
            for identifier in identifiers[begin : begin + FLUSHED]:
                group = b"g%d" % dice.randrange(GROUPS)
                record = Sent(b"id-%d" % identifier, group, b"%d of %d" % (identifier, number))
                kafka.produce(producer, self._topic, record, home(group, partitions))
            assert producer.flush(LIMIT_S) == 0


class Address:
    """An address of one lane, its two workers and its producers."""

    def __init__(self, bootstrap: str, folder: Path, name: str) -> None:
        self.name, self._bootstrap = name, bootstrap
        address = {"name": name, "partitions": PARTITIONS, "lanes": 1, "id_cache_size": 2 * IDS}
        self._config = configure(folder, bootstrap, name, [{**address, "duplicates": "divert"}])
        self.workers = [WorkerProcess(self._config, f"w{number}", SESSION) for number in range(2)]
        self.producers = Producers(bootstrap, name)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the processes and the producers until the producers have finished."""
        try:
            for worker in self.workers:
                worker.start()
            self.producers.start()
            yield
            self.reach(IDS * PRODUCERS)
        finally:
            self.producers.end()
            for worker in self.workers:
                worker.destroy()

    def reach(self, goal: int) -> None:
        """Wait until so many messages are processed."""

        def reached() -> bool:
            offsets = kafka.committed(self._bootstrap, self.name, self.name, self.producers.partitions)
            done = sum(max(0, offset) for offset in offsets)
            self.producers.follow(done)
            return done >= goal

        wait_for(reached, self.logs)

    def owners(self) -> list[WorkerProcess]:
        """Workers that report the lane as open."""
        return [
            worker
            for worker in self.workers
            if worker.running
            and any(lane["state"] == "open" for lane in worker.health()[1].get("lanes", {}).values())
        ]

    def kill_owner(self, *, replaced: bool) -> None:
        """Kill the owner and start it again, perhaps after the other worker has taken the lane."""
        wait_for(lambda: len(self.owners()) == 1, self.logs)
        (owner,) = self.owners()
        owner.kill()
        if replaced:
            wait_for(lambda: self.owners() not in ([], [owner]), self.logs)
        owner.start()
        wait_for(lambda: len(self.owners()) == 1, self.logs)

    def logs(self) -> str:
        return "\n".join(worker.log()[-3_000:] for worker in self.workers)

    def judge(self) -> None:
        """Require exact topics, and a run of the reconciliation that finds nothing."""
        inputs = kafka.read_all(self._bootstrap, self.name, self.producers.partitions)
        accepted = kafka.read_all(self._bootstrap, f"{self.name}.accepted", PARTITIONS)
        diverted = kafka.read_all(self._bootstrap, f"{self.name}.duplicates", PARTITIONS)
        assert len(inputs) == IDS * PRODUCERS
        assert {item.partition for item in inputs} == set(range(self.producers.partitions))
        assert _wrong(self.name, inputs, accepted, diverted) == [], f"seed {SEED}"
        assert f"{self.name}-{self.name}-forward" not in kafka.topics(self._bootstrap)
        run = run_verb("reconcile", "--config", str(self._config), check=False, limit_s=240)
        assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.long
def test_one_ring_over_kills(bootstrap: str, tmp_path: Path) -> None:
    """Each ID is accepted once over the whole address, each duplicate names its original, and a run finds nothing."""
    address = Address(bootstrap, tmp_path, kafka.unique("one-ring"))
    with address.running():
        for number in range(KILLS):
            address.reach(IDS * PRODUCERS * (number + 1) // (KILLS + 2))
            address.kill_owner(replaced=bool(number % 2))
    assert [worker.kills > 1 for worker in address.workers] == [True, True]

    address.judge()


@pytest.mark.long
def test_growth_under_traffic(bootstrap: str, tmp_path: Path) -> None:
    """The lane gets the new partitions and knows their IDs when the input grows from four to eight under traffic."""
    address = Address(bootstrap, tmp_path, kafka.unique("grown-ring"))
    with address.running():
        address.reach(IDS * PRODUCERS // 4)
        kafka.grow_topic(bootstrap, address.name, 2 * PARTITIONS)
        address.producers.spread(2 * PARTITIONS)
        address.reach(IDS * PRODUCERS // 2)
        address.kill_owner(replaced=True)

    address.judge()


def _wrong(topic: str, inputs: list[Got], accepted: list[Got], diverted: list[Got]) -> list[str]:
    """List the errors of a run, a line each; the input is the witness, and _RF_SEQ gives the order in which its partitions were read."""
    found = []
    if sorted(_place(topic, item) for item in inputs) != sorted(
        item.source for item in [*accepted, *diverted]
    ):
        found.append("accepted and diverted together are not the input")
    if len({item.id for item in accepted}) != len(accepted) or len(accepted) != len(
        {item.id for item in inputs}
    ):
        found.append("an ID is not accepted exactly once")
    sequences = sorted(accepted, key=_sequence)
    if [_sequence(item) for item in sequences] != list(range(len(accepted))):
        found.append("_RF_SEQ has gaps or repeats")
    originals = {item.id: item.source for item in accepted}
    found += [
        f"{item.source} names {_header(item, '_RF_ORIGINAL')}, its ID was accepted at {originals.get(item.id)}"
        for item in diverted
        if _header(item, "_RF_ORIGINAL") != originals.get(item.id)
    ]
    # By place in the output for each group, and by number for all that came in one partition.
    by_group, by_partition = defaultdict(list), defaultdict(list)
    for item in accepted:
        partition, offset = item.source.split("/")[1:]
        by_group[item.key, item.partition, partition].append(int(offset))
    for item in sequences:
        partition, offset = item.source.split("/")[1:]
        by_partition[partition].append(int(offset))
    found += [
        f"group {key} is out of order" for key, offsets in by_group.items() if offsets != sorted(offsets)
    ]
    found += [
        f"_RF_SEQ is no order of partition {partition}"
        for partition, offsets in by_partition.items()
        if offsets != sorted(offsets)
    ]
    if len({(key, into) for key, into, _ in by_group}) != len({key for key, _, _ in by_group}):
        found.append("a group is accepted in two partitions")
    return found


def _place(topic: str, item: Got) -> str:
    return f"{topic}/{item.partition}/{item.offset}"


def _header(item: Got, name: str) -> str:
    return (dict(item.headers).get(name) or b"").decode()


def _sequence(item: Got) -> int:
    return int(_header(item, "_RF_SEQ") or -1)


def _example() -> tuple[list[Got], list[Got], list[Got]]:
    """Two IDs in two partitions, and a copy of the first in the other one."""

    def got(partition: int, offset: int, identifier: bytes, **more: bytes) -> Got:
        headers: list[tuple[str, bytes | None]] = [("_AMQ_DUPL_ID", identifier), *more.items()]
        return Got(partition, offset, b"g%d" % partition, b"", headers, 0)

    inputs = [got(0, 0, b"a"), got(1, 0, b"a"), got(1, 1, b"b")]
    accepted = [
        got(0, 0, b"a", _RF_SOURCE=b"t/0/0", _RF_SEQ=b"0"),
        got(1, 0, b"b", _RF_SOURCE=b"t/1/1", _RF_SEQ=b"1"),
    ]
    return inputs, accepted, [got(1, 0, b"a", _RF_SOURCE=b"t/1/0", _RF_ORIGINAL=b"t/0/0")]


def test_judge_of_one_ring() -> None:
    """The judge of this file finds an ID that two rings accept, a gap, a wrong original and a swapped group."""
    inputs, accepted, (diverted,) = _example()
    twice = diverted._replace(
        headers=[("_AMQ_DUPL_ID", b"a"), ("_RF_SOURCE", b"t/1/0"), ("_RF_SEQ", b"0")], offset=1
    )
    misnamed = diverted._replace(
        headers=[("_AMQ_DUPL_ID", b"a"), ("_RF_SOURCE", b"t/1/0"), ("_RF_ORIGINAL", b"t/1/1")]
    )

    assert _wrong("t", inputs, accepted, [diverted]) == []
    assert "an ID is not accepted exactly once" in _wrong("t", inputs, [*accepted, twice], [])
    assert "_RF_SEQ has gaps or repeats" in _wrong("t", inputs, [*accepted, twice], [])
    assert "accepted and diverted together are not the input" in _wrong("t", inputs, accepted[1:], [diverted])
    assert "_RF_SEQ has gaps or repeats" in _wrong("t", inputs, accepted[1:], [diverted])
    assert _wrong("t", inputs, accepted, [misnamed]) == ["t/1/0 names t/1/1, its ID was accepted at t/0/0"]
    swapped = [accepted[1], twice._replace(key=b"g1")]
    assert any("is out of order" in item for item in _wrong("t", inputs, swapped, []))

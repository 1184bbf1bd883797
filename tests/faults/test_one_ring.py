"""An address with one lane has one ring: copies of an ID in other partitions meet it, even when it grows and its worker is killed."""

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
FLUSHED = 20
PAUSE_S = 0.05
SESSION = {"RINGFENCE_APP__SESSION_TIMEOUT": "6"}


class Producers:
    """Producers that each send each ID once, in an order and under groups of their own, at a pace."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._stop = threading.Event()
        self.partitions = PARTITIONS
        """Number of input partitions that they send to."""
        self._threads = [
            threading.Thread(target=self._produce, args=(number,), daemon=True) for number in range(PRODUCERS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(LIMIT_S)

    def _produce(self, number: int) -> None:
        dice = random.Random(f"{SEED} {number}")
        identifiers = list(range(IDS))
        dice.shuffle(identifiers)
        known = 0
        for begin in range(0, IDS, FLUSHED):
            if self._stop.wait(PAUSE_S):
                return
            partitions = self.partitions
            if partitions != known:  # a producer hears of new partitions late, another one at once
                known = partitions
                producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True})
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
        def reached() -> bool:
            offsets = kafka.committed(self._bootstrap, self.name, self.name, self.producers.partitions)
            done = sum(max(0, offset) for offset in offsets)
            return done >= goal

        wait_for(reached, self.logs)

    def owners(self) -> list[WorkerProcess]:
        return [
            worker
            for worker in self.workers
            if worker.running
            and any(lane["state"] == "open" for lane in worker.health()[1].get("lanes", {}).values())
        ]

    def kill_owner(self) -> None:
        wait_for(lambda: len(self.owners()) == 1, self.logs)
        (owner,) = self.owners()
        owner.kill()
        wait_for(lambda: self.owners() not in ([], [owner]), self.logs)
        owner.start()
        wait_for(lambda: len(self.owners()) == 1, self.logs)

    def logs(self) -> str:
        return "\n".join(worker.log()[-3_000:] for worker in self.workers)

    def judge(self) -> None:
        inputs = kafka.read_all(self._bootstrap, self.name, self.producers.partitions)
        accepted = kafka.read_all(self._bootstrap, f"{self.name}.accepted", PARTITIONS)
        diverted = kafka.read_all(self._bootstrap, f"{self.name}.duplicates", PARTITIONS)
        assert len(inputs) == IDS * PRODUCERS
        assert {item.partition for item in inputs} == set(range(self.producers.partitions))
        _require_exact(self.name, inputs, accepted, diverted)
        assert f"{self.name}-{self.name}-forward" not in kafka.topics(self._bootstrap)
        run = run_verb("reconcile", "--config", str(self._config), check=False, limit_s=400)
        assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.long
def test_growth_under_traffic(bootstrap: str, tmp_path: Path) -> None:
    """The lane gets the new partitions and knows their IDs when the input grows from four to eight under traffic."""
    address = Address(bootstrap, tmp_path, kafka.unique("grown-ring"))
    with address.running():
        address.reach(IDS * PRODUCERS // 4)
        kafka.grow_topic(bootstrap, address.name, 2 * PARTITIONS)
        address.producers.partitions = 2 * PARTITIONS
        address.reach(IDS * PRODUCERS // 2)
        address.kill_owner()

    address.judge()


def _require_exact(topic: str, inputs: list[Got], accepted: list[Got], diverted: list[Got]) -> None:
    """Judge by the input as the witness; _RF_SEQ gives the order in which its partitions were read."""
    places = sorted(f"{topic}/{item.partition}/{item.offset}" for item in inputs)
    assert sorted(item.source for item in [*accepted, *diverted]) == places
    originals = {item.id: item.source for item in accepted}
    assert len(accepted) == len(originals) == IDS
    assert [_header(item, "_RF_ORIGINAL") for item in diverted] == [originals[item.id] for item in diverted]
    by_sequence = sorted(accepted, key=_sequence)
    assert [_sequence(item) for item in by_sequence] == list(range(IDS)), f"seed {SEED}"
    # By place in the output for each group, and by number for all that came in one partition.
    orders = defaultdict(list)
    for records, group in ((accepted, True), (by_sequence, False)):
        for item in records:
            partition, offset = item.source.split("/")[1:]
            orders[item.key if group else None, partition].append(int(offset))
    assert all(offsets == sorted(offsets) for offsets in orders.values()), f"seed {SEED}"
    homes = {(item.key, item.partition) for item in accepted}
    assert len(homes) == len({key for key, _ in homes})


def _header(item: Got, name: str) -> str:
    return (dict(item.headers).get(name) or b"").decode()


def _sequence(item: Got) -> int:
    return int(_header(item, "_RF_SEQ") or -1)

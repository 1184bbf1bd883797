"""The link between one of two workers and the broker: cut, slow or silent, under traffic."""

import random
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from confluent_kafka import Producer

from tests.support import kafka
from tests.support.brokers.linked import LinkedBroker
from tests.support.kafka import Sent
from tests.support.worker import Running, WorkerProcess, configure, wait_for

SEED = 20_112
PARTITIONS = 4
STEP = 10
"""Records in each send to a partition."""
PAUSE_S = 0.1
LIMIT_S = 240.0


class Traffic:
    """Sender to all partitions until it is stopped: records without an ID, records with one, and resends."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.due: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        """Values that are to be accepted, by partition, in order."""
        self._bootstrap = bootstrap
        self._topic = topic
        self._random = random.Random(SEED)
        self._with_id: list[list[Sent]] = [[] for _ in range(PARTITIONS)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"traffic to {topic}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send no more, and wait until all that was sent has arrived. May be repeated."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(LIMIT_S)

    def _run(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True})
        while not self._stop.wait(PAUSE_S):
            for partition in range(PARTITIONS):
                for _ in range(STEP):
                    kafka.produce(producer, self._topic, self._next(partition), partition)
            producer.flush(LIMIT_S)

    def _next(self, partition: int) -> Sent:
        """Choose one group for each partition, so that all its records keep their order at any home."""
        due, known = self.due[partition], self._with_id[partition]
        if known and self._random.random() < 0.2:
            return self._random.choice(known[-2_000:])
        value = b"%d" % len(due)
        identifier = b"%d-%d" % (partition, len(due)) if self._random.random() < 0.5 else None
        record = Sent(identifier, b"g%d" % partition, value)
        due.append(value)
        if identifier is not None:
            known.append(record)
        return record


class Pair:
    """Two workers that share the lanes of one address, each on a link of its own; the first one's is disturbed."""

    def __init__(self, linked: LinkedBroker, folder: Path) -> None:
        self.name = kafka.unique("link")
        self.link = linked.links[0]
        self._bootstrap = linked.bootstrap
        self._addresses = [{"name": self.name, "partitions": PARTITIONS}]
        self._traffic = Traffic(linked.bootstrap, self.name)
        config = configure(folder, linked.bootstrap, self.name, self._addresses)
        self.struck, self.other = (
            WorkerProcess(config, name, {"RINGFENCE_KAFKA__BOOTSTRAP_SERVERS": link.bootstrap})
            for name, link in zip(("struck", "other"), linked.links, strict=True)
        )

    def __enter__(self) -> Self:
        try:
            self.struck.start()
            self.other.start()
            self.wait_shared()
            self._traffic.start()
            self.wait_progress(self.struck)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._traffic.stop()
        self.struck.destroy()
        self.other.destroy()

    def wait_shared(self) -> None:
        """Wait until both are ready, with half of the lanes each."""
        half = PARTITIONS // 2
        self.wait(lambda: self._ready(self.struck, half) and self._ready(self.other, half))

    def wait_taken_over(self) -> None:
        """Wait until the other worker is ready with all lanes."""
        self.wait(lambda: self._ready(self.other, PARTITIONS))

    def wait_progress(self, worker: WorkerProcess) -> None:
        """Wait until a worker's lanes have made progress."""
        goal = self._progress(worker) + 20 * STEP
        self.wait(lambda: self._progress(worker) >= goal)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; on a timeout, report what the workers show."""
        wait_for(condition, self._state, LIMIT_S)

    def troubles(self) -> int:
        """Count how often the first worker's lanes were closed or failed."""
        log = self.struck.log()
        return log.count("rebalance: ") + log.count("retrying in") + log.count("fenced")

    def judge(self) -> None:
        """Require every input accepted once, in order, with its own source, and nothing else; both workers still run."""
        self.wait_progress(self.struck)
        self._traffic.stop()
        got = Running(self._bootstrap, self.other, self._addresses, self.name).settled(self.name)
        values = [
            [item.value for item in got if item.source.startswith(f"{self.name}/{partition}/")]
            for partition in range(PARTITIONS)
        ]

        assert values == self._traffic.due, f"seed {SEED}"
        assert len({item.source for item in got}) == len(got) == sum(map(len, self._traffic.due))
        assert self.struck.running
        assert self.other.running

    def _ready(self, worker: WorkerProcess, lanes: int) -> bool:
        status, document = worker.health()
        return status == 200 and len(document["lanes"]) == lanes

    def _progress(self, worker: WorkerProcess) -> int:
        return sum(value["next"] for value in worker.health()[1].get("lanes", {}).values())

    def _state(self) -> str:
        return "\n".join(
            f"{worker_process.health()}\n{worker_process.log()[-4_000:]}"
            for worker_process in (self.struck, self.other)
        )


@pytest.mark.long
def test_cut_and_healed(linked: LinkedBroker, tmp_path: Path) -> None:
    """A worker whose connections are reset and refused reports it and resumes later; the other never waits for it."""
    with Pair(linked, tmp_path) as pair:
        before = pair.link.connections_cut
        pair.link.cut()
        pair.wait(lambda: pair.struck.health()[0] == 503)
        pair.wait_progress(pair.other)
        pair.link.open()
        pair.wait_shared()

        assert pair.link.connections_cut > before
        pair.judge()


@pytest.mark.long
def test_delayed(linked: LinkedBroker, tmp_path: Path) -> None:
    """A worker far from its broker is slow, and stays a ready member of the group."""
    with Pair(linked, tmp_path) as pair:
        before = pair.link.bytes_delayed
        troubles_before = pair.troubles()
        pair.link.delay(0.3)
        for _ in range(2):
            pair.wait_progress(pair.struck)
        troubles = pair.troubles()
        pair.link.open()
        pair.wait_shared()

        assert pair.link.bytes_delayed > before
        assert troubles == troubles_before
        pair.judge()


@pytest.mark.parametrize("how", ["blackhole", pytest.param("hold", marks=pytest.mark.long)])
def test_silent_past_the_session(linked: LinkedBroker, tmp_path: Path, how: str) -> None:
    """A worker whose link falls silent loses its lanes; once healed, it changes nothing and gets its share again.

    With ``hold``, all that it had sent arrives at the broker after the other has taken over.
    """
    with Pair(linked, tmp_path) as pair:
        before = pair.link.bytes_withheld
        getattr(pair.link, how)()
        pair.wait_taken_over()
        pair.wait_progress(pair.other)
        pair.link.open()
        pair.wait_shared()

        assert pair.link.bytes_withheld > before
        pair.judge()

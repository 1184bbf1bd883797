"""Workers that are killed again and again, or sleep past their session: the output is exact at the end."""

import random
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.support import kafka
from tests.support.kafka import Got, Sent, at_home
from tests.support.worker import WorkerProcess, configure, wait_for, worker

SEED = 20_111
MESSAGES = 60_000
GROUPS = 200
PARTITIONS = 4
KILLS = 6
WITHOUT_ID = 500


def _traffic(generator: random.Random) -> list[Sent]:
    """Every ID of its own group; a tenth are resends, some of them far back; some messages without an ID."""
    sent: list[Sent] = []
    for number in range(MESSAGES):
        if sent and generator.random() < 0.1:
            sent.append(generator.choice(sent[-generator.choice([10, 20_000]) :]))
        else:
            group = b"g%d" % generator.randrange(GROUPS)
            identifier = None if number % (MESSAGES // WITHOUT_ID) == 0 else b"id-%d" % number
            sent.append(Sent(identifier, group, b"%d" % number))
    return sent


def _partition(record: Sent) -> int:
    assert record.key is not None
    return int(record.key[1:]) % PARTITIONS


def _judge(inputs: list[Got], outputs: list[Got], topic: str) -> dict[str, int]:
    """Count the errors of a run: the input is the witness, and the first record of each ID is due exactly once, in order."""
    due: list[Got] = []
    seen = set()
    for input_ in inputs:
        if input_.id is None or input_.id not in seen:
            due.append(input_)
            seen.add(input_.id)
    expected = Counter(f"{topic}/{item.partition}/{item.offset}" for item in due)
    found = Counter(output.source for output in outputs)
    order: dict[bytes | None, list[int]] = {}
    for output in outputs:
        order.setdefault(output.key, []).append(int(output.source.rsplit("/", 1)[1]))
    return {
        "lost": (expected - found).total(),
        "doubled or phantom": (found - expected).total(),
        "out of order": sum(offsets != sorted(offsets) for offsets in order.values()),
    }


@pytest.mark.long
def test_exact_after_kills(bootstrap: str, tmp_path: Path) -> None:
    """Each ID and each message without one is accepted once after any kill, and groups keep their order."""
    generator = random.Random(SEED)
    name = kafka.unique("kills")
    config = configure(tmp_path, bootstrap, name, [{"name": name, "partitions": PARTITIONS}])
    traffic = _traffic(generator)
    workers = [WorkerProcess(config, "w1"), WorkerProcess(config, "w2")]
    producing = threading.Thread(target=_produce, args=(bootstrap, name, traffic))
    try:
        for worker in workers:
            worker.start()
        producing.start()
        for number in range(KILLS):
            goal = MESSAGES * (number + 1) // (KILLS + 2)
            _reach(goal, bootstrap, name, workers)
            victim = generator.choice(workers)
            victim.kill()
            victim.start()
        producing.join(120)
        _reach(MESSAGES, bootstrap, name, workers)
        # What is not at home where it arrived is on its way through the forward topic.
        forward = f"{name}-{name}-forward"
        wait_for(
            lambda: kafka.consumed(bootstrap, name, forward, PARTITIONS),
            lambda: _state(bootstrap, name, workers),
            120,
        )
    finally:
        for worker in workers:
            worker.destroy()
        producing.join(120)

    inputs = kafka.read_all(bootstrap, name, PARTITIONS)
    outputs = kafka.read_all(bootstrap, f"{name}.accepted", PARTITIONS)
    assert len(inputs) == MESSAGES
    assert _judge(inputs, outputs, name) == {"lost": 0, "doubled or phantom": 0, "out of order": 0}, (
        f"seed {SEED}"
    )


def _produce(bootstrap: str, topic: str, traffic: list[Sent]) -> None:
    """Send the traffic slowly enough that the kills fall into it."""
    step = 2_000
    for begin in range(0, len(traffic), step):
        for partition in range(PARTITIONS):
            part = [item for item in traffic[begin : begin + step] if _partition(item) == partition]
            kafka.send(bootstrap, topic, part, partition)


def _progress(bootstrap: str, name: str) -> int:
    return sum(max(0, number) for number in kafka.committed(bootstrap, name, name, PARTITIONS))


def _reach(goal: int, bootstrap: str, name: str, workers: list[WorkerProcess]) -> None:
    wait_for(lambda: _progress(bootstrap, name) >= goal, lambda: _state(bootstrap, name, workers), 120)


def _state(bootstrap: str, name: str, workers: list[WorkerProcess]) -> str:
    return f"{_progress(bootstrap, name)} of {MESSAGES}\n" + "\n".join(
        worker.log()[-3_000:] for worker in workers
    )


def test_judge_sees_what_is_wrong() -> None:
    """The judge of this file finds what is lost, doubled, made up and swapped."""

    def record(offset: int, identifier: bytes) -> Got:
        return Got(
            0, offset, b"g", b"", [("_AMQ_DUPL_ID", identifier), ("_RF_SOURCE", b"t/0/%d" % offset)], 0
        )

    inputs = [record(0, b"a"), record(1, b"a"), record(2, b"b")]
    good = [inputs[0], inputs[2]]

    assert _judge(inputs, good, "t") == {"lost": 0, "doubled or phantom": 0, "out of order": 0}
    assert _judge(inputs, good[:1], "t")["lost"] == 1
    assert _judge(inputs, [*good, good[0]], "t")["doubled or phantom"] == 1
    assert _judge(inputs, [*good, inputs[1]], "t")["doubled or phantom"] == 1
    assert _judge(inputs, good[::-1], "t")["out of order"] == 1


def test_woken_zombie_changes_nothing(bootstrap: str, tmp_path: Path) -> None:
    """A worker that is stopped, replaced and woken neither repeats nor loses anything, and joins the group again."""
    name = kafka.unique("zombie")
    config = configure(tmp_path, bootstrap, name, [{"name": name, "partitions": 2}])
    count = 3_000
    groups = [at_home(index, 2) for index in range(2)]

    def send(first: int) -> None:
        for partition in range(2):
            records = [Sent(None, groups[partition], b"%d" % index) for index in range(first, first + count)]
            kafka.send(bootstrap, name, records, partition)

    def committed() -> list[int]:
        return kafka.committed(bootstrap, name, name, 2)

    with worker(config, "w1") as sleeper:
        send(0)
        wait_for(lambda: committed() == [count] * 2, sleeper.log)
        send(count)
        sleeper.signal(signal.SIGSTOP)
        with worker(config, "w2") as heir:
            wait_for(
                lambda: len(heir.health()[1].get("lanes", {})) == 2 and heir.health()[0] == 200, heir.log, 90
            )
            wait_for(lambda: committed() == [2 * count] * 2, heir.log)
            sleeper.signal(signal.SIGCONT)
            send(2 * count)
            wait_for(lambda: committed() == [3 * count] * 2, lambda: heir.log() + sleeper.log())
            wait_for(
                lambda: (
                    [worker_process.health()[0] for worker_process in (sleeper, heir)] == [200, 200]
                    and [len(worker_process.health()[1]["lanes"]) for worker_process in (sleeper, heir)]
                    == [1, 1]
                ),
                lambda: heir.log() + sleeper.log(),
            )

    got = kafka.read_all(bootstrap, f"{name}.accepted", 2)
    for partition in range(2):
        values = [item.value for item in got if item.source.startswith(f"{name}/{partition}/")]
        assert values == [b"%d" % index for index in range(3 * count)]

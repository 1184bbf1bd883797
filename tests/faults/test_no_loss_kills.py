"""A worker that sleeps past its session: the output is exact at the end."""

import signal
from pathlib import Path

from tests.support import kafka
from tests.support.kafka import Sent, at_home
from tests.support.worker import configure, wait_for, worker


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

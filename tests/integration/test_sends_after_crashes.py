"""Consumers that die or lose their lease: readers of committed data see one copy of each send, in order, and exact totals."""

import signal
from collections import defaultdict
from pathlib import Path

import pytest

from ringfence_kafka.protocol import wire_names
from tests.support import kafka
from tests.support.consumers.in_process import interleaved
from tests.support.consumers.processes import ConsumerProcess, consumers, noted, wait_shared
from tests.support.worker import configure, wait_for

PARTITIONS = 2
GROUPS = 6
EACH = 20


class Relay:
    """An address, a target topic, and consumers that relay from one to the other."""

    def __init__(self, bootstrap: str, folder: Path, count: int, **environment: str) -> None:
        self.bootstrap = bootstrap
        self.name = kafka.unique("relay")
        self.target = f"{self.name}-target"
        self.handled = folder / f"{self.name}.handled"
        self.config = configure(folder, bootstrap, self.name, [{"name": self.name, "partitions": PARTITIONS}])
        kafka.create_topics(bootstrap, {self.target: (PARTITIONS, {})})
        self.processes = [
            ConsumerProcess(
                self.config, f"{self.name}-c{number}", self.name, f"{self.name}-group",
                "--lease-timeout", "3", "--lease-idle", "0.5", "--session-timeout", "2", "--concurrency", "20",
                handler="tests.support.consumers.sending_handlers:relay",
                environment={
                    "TARGET": self.target, "HANDLED_FILE": str(self.handled), "HANDLING_SECONDS": "0.05", **environment
                },
            )
            for number in range(count)
        ]  # fmt: skip

    def send(self) -> None:
        for partition in range(PARTITIONS):
            records = [
                item
                for item in interleaved(GROUPS, EACH)
                if kafka.home(item.key or b"", PARTITIONS) == partition
            ]
            kafka.send(self.bootstrap, f"{self.name}.accepted", records, partition)

    def ended(self) -> int:
        return len(noted(self.handled))

    def wait_done(self) -> None:
        """Wait until everything is acknowledged."""
        ends = kafka.end_offsets(self.bootstrap, f"{self.name}.accepted", PARTITIONS)
        wait_for(
            lambda: (
                kafka.committed(self.bootstrap, f"{self.name}-group", f"{self.name}.accepted", PARTITIONS)
                == ends
            ),
            lambda: "\n".join(process.log()[-3_000:] for process in self.processes),
            90,
        )

    def check(self) -> None:
        """Require each send once, the sends of a group in order, and its exact total."""
        found: dict[bytes | None, list[bytes | None]] = defaultdict(list)
        for record in kafka.read_all(self.bootstrap, self.target, PARTITIONS):
            found[record.key].append(record.value)
        assert found == {
            b"group-%d" % group: [b"%d %d" % (turn, turn + 1) for turn in range(EACH)]
            for group in range(GROUPS)
        }
        topic = wire_names.state_topic(self.name, f"{self.name}-group", f"{self.name}.accepted")
        states = {record.key: record.value for record in kafka.read_all(self.bootstrap, topic, PARTITIONS)}
        assert states == {b"group-%d" % group: b"%d" % EACH for group in range(GROUPS)}


def test_one_copy_after_a_kill(bootstrap: str, tmp_path: Path) -> None:
    """Each send is there once after a kill of its process at any point of the transaction."""
    relays = {
        point: Relay(bootstrap, tmp_path, 1) for point in ("before-send", "after-send", "before-commit")
    }
    try:
        for point, relay in relays.items():
            relay.send()
            relay.processes[0].start(RINGFENCE_FAILPOINTS=f"{point}:*=kill@5")
        for relay in relays.values():
            [process] = relay.processes
            assert process.wait_end() == -signal.SIGKILL
            assert relay.ended() > 0
            process.start()
        for relay in relays.values():
            relay.wait_done()
            assert relay.processes[0].stop() == 0
    finally:
        for relay in relays.values():
            relay.processes[0].destroy()

    for relay in relays.values():
        relay.check()


@pytest.mark.long
def test_one_copy_after_a_lost_lease(bootstrap: str, tmp_path: Path) -> None:
    """A consumer that is stopped past its lease with a transaction open writes nothing when it wakes.

    A successor has handled everything by then.
    """
    relay = Relay(bootstrap, tmp_path, 2)
    sleeper, heir = relay.processes
    # Of one partition: a partition that comes back later has not reached it yet.
    lane = f"{relay.name}-group/{relay.name}.accepted/0"
    with consumers(later=[sleeper, heir]):
        sleeper.start(RINGFENCE_FAILPOINTS=f"before-commit:{lane}=stop@5")
        # The first of two members keeps partition 0.
        wait_for(lambda: len(sleeper.held) == PARTITIONS, sleeper.log)
        heir.start()
        wait_shared(sleeper, heir, partitions=PARTITIONS)
        relay.send()
        wait_for(lambda: sleeper.frozen, sleeper.log)
        wait_for(lambda: len(heir.held) == PARTITIONS, heir.log)
        relay.wait_done()
        sleeper.thaw()
        wait_shared(sleeper, heir, partitions=PARTITIONS)
        assert [process.stop() for process in relay.processes] == [0, 0]

    pids = {line.split()[0] for line in noted(relay.handled)}
    assert len(pids) == 2
    relay.check()

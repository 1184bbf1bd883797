"""Consumer processes of one group on one address, and the notes of their handlers."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ringfence_client.progress.progress_record import Progress
from tests.harness.checker.groups import Disturbance, Run, Snapshot, parse
from tests.harness.workloads.message_groups import Flow
from tests.support import kafka
from tests.support.consumers.processes import ConsumerProcess, latest_written, noted, progress_written
from tests.support.worker import configure, wait_for

PARTITIONS = 4
UNWRITTEN_S = 3.0
"""Seconds before a kill: runs that began or ended earlier are written, which takes a tenth of a second and a transaction."""


class System:
    """Consumer processes of one group on one address, and the notes of their handlers."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        name: str,
        count: int,
        seconds: float,
        slow_seconds: float = 0,
        *,
        options: Sequence[str] = (),
        partitions: int = PARTITIONS,
    ) -> None:
        self.partitions = partitions
        self.bootstrap = bootstrap
        self.name = name
        self.group = f"{name}-group"
        self.topic = f"{name}.accepted"
        self.handled = folder / "handled"
        config = configure(folder, bootstrap, name, [{"name": name, "partitions": partitions}])
        environment = {"HANDLED_FILE": str(self.handled), "HANDLING_SECONDS": str(seconds)}
        environment["HANDLING_SLOW_SECONDS"] = str(slow_seconds)
        self.processes = [
            ConsumerProcess(
                config,
                f"c{number}",
                name,
                self.group,
                *("--concurrency", "7", *options),
                handler="record",
                environment=environment,
            )
            for number in range(count)
        ]

    def runs(self) -> list[Run]:
        return parse(noted(self.handled))

    def snapshot(self) -> Snapshot:
        written = latest_written(self.bootstrap, self.name, self.group, self.topic)
        return Snapshot(time.monotonic(), written)

    def kill(self, process: ConsumerProcess) -> tuple[Disturbance, Snapshot]:
        pid = process.pid
        process.kill()
        return Disturbance(pid, time.monotonic(), unwritten=UNWRITTEN_S), self.snapshot()

    def wait_ended(self, count: int) -> None:
        self.wait(lambda: self.ended() >= count, 120)

    def ended(self) -> int:
        return len({(run.partition, run.offset) for run in self.runs() if run.end})

    def wait_attempt_written(self, process: ConsumerProcess) -> None:
        def counted() -> bool:
            written = self.snapshot()
            return any(
                run.pid == process.pid and run.end is None and written.counts(run) for run in self.runs()
            )

        self.wait(counted)

    def finish(self, flow: Flow) -> dict[str, int]:
        """End the traffic, and wait until all of it is handled and committed; return the sizes of its groups."""
        sent = flow.finish()
        self.wait_ended(sum(sent.values()))
        ends = kafka.end_offsets(self.bootstrap, self.topic, self.partitions)
        self.wait(lambda: [max(0, number) for number in self._committed()] == ends)
        return sent

    def wait_written_beyond(self, offsets: list[int]) -> None:
        self.wait(lambda: all(now > then for now, then in zip(self._committed(), offsets, strict=True)))

    def wait(self, condition: Callable[[], bool], limit_s: float = 90) -> None:
        wait_for(condition, self._state, limit_s)

    def freeze_at_work(self, process: ConsumerProcess) -> float:
        while True:
            frozen = process.freeze()
            if any(run.pid == process.pid and run.end is None for run in self.runs()):
                return frozen
            process.thaw()
            self.wait(lambda: not process.frozen)

    def written(self, partition: int) -> list[Progress]:
        written = progress_written(self.bootstrap, self.name, self.group, self.topic)
        return [item.progress for item in written if item.partition == partition]

    def _committed(self) -> list[int]:
        return kafka.committed(self.bootstrap, self.group, self.topic, self.partitions)

    def _state(self) -> str:
        logs = (f"{process.name} {process.health()}\n{process.log()[-4_000:]}" for process in self.processes)
        return f"{len(self.runs())} runs, committed {self._committed()}\n" + "\n".join(logs)


def assert_rising(system: System) -> None:
    """Assert that no record takes back an earlier one, nobody writes after a successor has, and tokens rise with holders."""
    for partition in range(system.partitions):
        written = system.written(partition)
        nexts, tokens = [progress.next for progress in written], [progress.token for progress in written]
        holders = [progress.holder for progress in written]
        changes = [
            holder for index, holder in enumerate(holders) if index == 0 or holders[index - 1] != holder
        ]
        assert nexts == sorted(nexts)
        assert tokens == sorted(tokens)
        assert len(changes) == len(set(changes)) == len(set(tokens))

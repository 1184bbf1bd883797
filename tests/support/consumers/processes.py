"""Consumer processes, and the progress records that they wrote."""

import contextlib
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ringfence_client.progress import progress_record
from ringfence_client.progress.progress_record import Progress
from ringfence_client.progress.progress_topic import PARTITIONS as PROGRESS_PARTITIONS
from tests.support import kafka
from tests.support.worker import RingfenceProcess, wait_for


class ConsumerProcess(RingfenceProcess):
    """One ``ringfence consume`` whose handler is one of :mod:`tests.support.handlers`."""

    def __init__(
        self,
        config: Path,
        name: str,
        address: str,
        group: str,
        *options: str,
        handler: str = "record",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Name the ``handler`` there, or as ``MODULE:FUNCTION``; ``options``: options of the verb."""
        path = handler if ":" in handler else f"tests.support.handlers:{handler}"
        where = ["--handler", path, "--consumer-group", group]
        super().__init__(config, name, ["consume", address, *where, *options], dict(environment or {}))
        self.handled = config.parent / f"{name}.handled"
        self._environment.setdefault("HANDLED_FILE", str(self.handled))

    def freeze(self) -> float:
        self.signal(signal.SIGSTOP)
        wait_for(lambda: self.frozen, self.log)
        return time.monotonic()

    def thaw(self) -> float:
        thawed = time.monotonic()
        self.signal(signal.SIGCONT)
        return thawed

    def groups(self) -> list[dict[str, Any]]:
        return list(self.get("/groups")[1].get("groups", []))

    @property
    def held(self) -> set[int]:
        return {int(item) for item in self.health()[1].get("partitions", {})}


def noted(file: Path) -> list[str]:
    """Return the lines that handlers appended, without one that is being written: a reader may see a part of it."""
    return file.read_text().split("\n")[:-1] if file.exists() else []


@contextlib.contextmanager
def consumers(*processes: ConsumerProcess, later: Sequence[ConsumerProcess] = ()) -> Iterator[None]:
    """Start processes, wait until all are ready, and destroy them at the end, together with those of ``later``."""
    try:
        for process in processes:
            process.start()
        wait_shared(*processes)
        yield
    finally:
        for process in (*processes, *later):
            process.destroy()


def wait_shared(*processes: ConsumerProcess, partitions: int = 0, limit_s: float = 90) -> None:
    def state() -> str:
        return "\n".join(
            f"{process.name} {process.health()}\n{process.log()[-3_000:]}" for process in processes
        )

    def shared() -> bool:
        assert all(process.running for process in processes), state()
        held = [process.held for process in processes]
        return all(process.health()[0] == 200 for process in processes) and (
            not partitions or (all(held) and sum(map(len, held)) == partitions)
        )

    wait_for(shared, state, limit_s)


class Written(NamedTuple):
    """A progress record, in the order of the log."""

    partition: int
    progress: Progress

    def finished(self, offset: int) -> bool:
        return offset < self.progress.next or any(
            begin <= offset < end for begin, end in self.progress.finished
        )


def progress_written(bootstrap: str, app_id: str, group: str, topic: str) -> list[Written]:
    found = []
    for item in kafka.read_all(bootstrap, f"{app_id}-progress", PROGRESS_PARTITIONS):
        if item.key is not None and item.value is not None:
            whose, where, partition = progress_record.decode_key(item.key)
            if (whose, where) == (group, topic):
                found.append(Written(partition, progress_record.decode(item.value)))
    return found


def latest_written(bootstrap: str, app_id: str, group: str, topic: str) -> dict[int, Written]:
    return {item.partition: item for item in progress_written(bootstrap, app_id, group, topic)}

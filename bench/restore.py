"""How fast a lane's ring comes back: from the changelog alone, and from a RocksDB that is up to date."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import topics
from bench.contenders import ringfence
from bench.errors import BenchError
from bench.job import Job, perform
from bench.measure import REPORT, ROOT, environment
from bench.traffic import Plan, generate, publish

INPUT: Final = "bench-restore"
APP_ID: Final = "bench-restore"
LIMIT_S: Final = 300.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Restoration:
    """One opening of the lane's table."""

    reused: bool
    """RocksDB was there and up to date; else the whole changelog was read and RocksDB built."""
    ids: int
    """In the ring afterwards."""
    changelog_records: int
    """Read; one where RocksDB was up to date."""
    seconds: float
    cpu_s: float
    """CPU time of the process with all its threads, in those seconds."""
    again_s: float
    """Seconds of a second opening by the same process: what is in memory is not read again."""

    @property
    def rate(self) -> float:
        """IDs a second."""
        return self.ids / self.seconds


def run(bootstrap: str, broker_pid: int, folder: Path, ids: int, rounds: int, say: Say) -> list[Restoration]:
    """Fill one lane's ring through a worker, then open it with an empty disk and with a full one, in turn.

    Raises:
        BenchError: the worker or an opening failed, or the ring did not come back whole.
    """
    config = _fill(bootstrap, broker_pid, folder, ids, say)
    found: list[Restoration] = []
    for number in range(rounds):
        state = folder / f"state-{number}"
        for reused in (False, True):
            restoration = _probe(config, state)
            if (restoration.reused, restoration.ids) != (reused, ids):
                raise BenchError(
                    f"expected {ids} IDs, RocksDB {'reused' if reused else 'new'}: {restoration}"
                )
            found.append(restoration)
            say(
                f"  RocksDB {'up to date' if reused else 'new'}: {restoration.ids:,} IDs in {restoration.seconds:.2f} s, "
                f"{restoration.cpu_s:.2f} CPU s"
            )
    return found


def _fill(bootstrap: str, broker_pid: int, folder: Path, ids: int, say: Say) -> Path:
    """Let a worker accept so many IDs in one lane; return its configuration."""
    topics.create(bootstrap, INPUT, 1)
    publish(bootstrap, INPUT, generate(Plan(ids, partitions=1, resends=0.0, ring=1)))
    worker = ringfence.prepare(folder / "worker", bootstrap, APP_ID, INPUT, ids)
    job = Job("the worker that fills the ring", worker.command, APP_ID, INPUT, worker.output, 1, ids)
    done = perform(job, bootstrap, [broker_pid], folder / "worker.log")
    say(f"  a worker accepted {ids:,} IDs in one lane, {done.rate:,.0f} a second")
    return folder / "worker" / "ringfence.toml"


def _probe(config: Path, state: Path) -> Restoration:
    done = subprocess.run(
        [sys.executable, "-m", "bench.restore_probe", str(config), str(state)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    for line in done.stdout.splitlines():
        if line.startswith(REPORT):
            return Restoration(**json.loads(line.removeprefix(REPORT)))
    raise BenchError(
        f"opening the lane ended with {done.returncode}:\n{done.stderr.decode(errors='replace')}"
    )

"""Measure which deliberate bugs the simulator finds, and after how many schedules: ``python -m tests.simulator.mutants [NAME …]``."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.mutants import (
    envelopes,
    group_consumption,
    lane_opening,
    lane_transactions,
    partition_opening,
    sends,
)
from tests.mutants.mutant import Mutant
from tests.mutants.trial import ROOT, copy_sources

SECONDS: Final = 30.0
LOGICAL: Final = {
    "lanes": (*lane_opening.MUTANTS, *lane_transactions.MUTANTS),
    "envelopes": envelopes.MUTANTS,
    "consumers": (*group_consumption.MUTANTS, *partition_opening.MUTANTS),
    "sends": sends.MUTANTS,
}
OUTSIDE: Final = frozenset(
    {
        "consumers-offsets-followed", "count-alone", "cut-inside", "foreign-changelog-unnoticed", "half-a-lane",
        "impostors-get-partitions", "input-read-uncommitted", "leaderless-partition-stops-its-lane",
        "lanes-follow-anybody", "lease-not-written-again", "membership-believed", "read-beside-a-write-wins",
        "one-worker-shrinks-rings", "other-rules-open-the-lane", "partition-counts-not-compared",
        "restore-to-last-stable-offset", "waits-anew-after-each-rebalance",
    }
)  # fmt: skip
"""Mutants of something that the simulated worlds leave out (README.md)."""
_FAILED: Final = re.compile(
    r"^seed (\d+) of \w+ fails, number (\d+), after ([\d.]+) s: ([^ :/]*)", re.MULTILINE
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="of mutants (default: all)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of CPU time, for each")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    chosen = [
        (mutant, world)
        for world, mutants in LOGICAL.items()
        for mutant in mutants
        if (mutant.name in asked.names if asked.names else mutant.name not in OUTSIDE)
    ]
    print("| world | mutant | seed | schedules | seconds | found as |\n|---|---|---|---|---|---|")
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for row in pool.map(lambda item: _row(item[0], item[1], asked.seconds, asked.seed), chosen):
            print(f"| {' | '.join(row)} |", flush=True)


def _row(mutant: Mutant, world: str, seconds: float, first: int) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        copy_sources(root)
        mutant.apply(root)
        told = _run(root, "--world", world, "--seed", str(first), "--seconds", str(seconds), "--cpu")
    if (found := _FAILED.search(told)) is None:
        return world, mutant.name, "-", "-", "-", "not found"
    seed, number, spent, said = found.groups()
    # A seed that fails without the mutant too shows nothing.
    if "fails, number" in _run(ROOT, "--world", world, "--seed", seed, "--count", "1"):
        said = "a seed that fails without it too"
    return world, mutant.name, seed, number, spent, said


def _run(root: Path, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulator", "--as-it-is", "--jobs", "1", *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


if __name__ == "__main__":
    main()

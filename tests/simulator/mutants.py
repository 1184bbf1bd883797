"""Measure which deliberate bugs the simulator finds, and after how many schedules: ``python -m tests.simulator.mutants [NAME …]``."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants import (
    bridge_hops,
    envelopes,
    fixed_lanes,
    group_consumption,
    handover,
    lane_opening,
    lane_transactions,
    partition_opening,
    sends,
)
from tests.mutants.mutant import Mutant, PatchError
from tests.mutants.trial import COPIED, ROOT

SECONDS: Final = 30.0
LOGICAL: Final = {
    "lanes": (*lane_opening.MUTANTS, *lane_transactions.MUTANTS, *fixed_lanes.MUTANTS),
    "envelopes": (*envelopes.MUTANTS, *bridge_hops.MUTANTS),
    "consumers": (*group_consumption.MUTANTS, *partition_opening.MUTANTS, *handover.MUTANTS),
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
    r"^seed (?P<seed>[0-9]+) of [a-z]+ fails, number (?P<number>[0-9]+), after (?P<seconds>[0-9.]+) s: (?P<said>.*)$",
    re.MULTILINE,
)
_COUNT: Final = re.compile(r"^([0-9]+) schedules", re.MULTILINE)


class Row(NamedTuple):
    """Result of one mutant."""

    mutant: Mutant
    world: str
    found: str
    number: int
    seconds: float = 0.0
    seed: int = -1

    def __str__(self) -> str:
        if not self.found:
            return f"| {self.mutant.name} | not in {self.number} | | |"
        return f"| {self.mutant.name} | {self.number} | {self.seconds:.1f} | {self.found} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="of mutants (default: all)")
    parser.add_argument("--world", choices=LOGICAL, help="only those that belong there")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of CPU time, for each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="at once (default: a core each)"
    )
    asked = parser.parse_args()
    chosen = [
        (mutant, world)
        for world, mutants in LOGICAL.items()
        for mutant in mutants
        if asked.world in {None, world}
        and (mutant.name in asked.names or (not asked.names and mutant.name not in OUTSIDE))
    ]  # fmt: skip
    rows: list[Row] = []
    with ThreadPoolExecutor(asked.jobs) as pool:
        for row in pool.map(lambda item: _row(item[0], item[1], asked.seconds, asked.seed), chosen):
            if not rows or rows[-1].world != row.world:
                print(f"\nOf {row.world}:\n\n| mutant | schedules | seconds | found as |\n|---|---|---|---|")
            rows.append(row)
            print(row, flush=True)
    seeds: dict[tuple[str, int], list[str]] = {}
    for row in sorted((row for row in rows if row.found), key=lambda item: item.seed):
        seeds.setdefault((row.world, row.seed), []).append(row.mutant.name)
    print()
    for world in LOGICAL:
        for (of, seed), names in seeds.items():
            if of == world:
                print(f"{world} {seed}  # finds {', '.join(names)}")


def _row(mutant: Mutant, world: str, seconds: float, seed: int) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        try:
            mutant.apply(root)
        except PatchError as error:
            return Row(mutant, world, str(error), 0)
        told = _run(root, "--world", world, "--seed", str(seed), "--seconds", str(seconds), "--cpu")
    found = _FAILED.search(told)
    if found is None:
        return Row(mutant, world, "", int((_COUNT.findall(told) or ["0"])[-1]))
    if "fails, number" in _run(ROOT, "--world", world, "--seed", found["seed"], "--count", "1"):
        return Row(mutant, world, f"seed {found['seed']}, which fails without it too", int(found["number"]))
    said = re.split(r"[ :]", found["said"], maxsplit=1)[0].split("/")[0]
    return Row(mutant, world, said, int(found["number"]), float(found["seconds"]), int(found["seed"]))


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

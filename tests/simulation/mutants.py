"""Which deliberate bugs the simulator finds, and after how many schedules: one copy of the sources for each, run as it stands.

``python -m tests.simulation.mutants [--seconds S] [--seed N] [NAME …]`` prints a row of docs/simulation.md for each mutant. With a seed that
fails in a copy and in the sources alike it would show nothing, so that is tried too.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.mutants import bugs_in_attempts, bugs_in_groups, bugs_in_handover, bugs_in_lanes, bugs_in_opening
from tests.mutants.mutant import Mutant, PatchError
from tests.mutants.trial import COPIED, ROOT
from tests.simulation.patches import simulated
from tests.simulation.run import Runner
from tests.simulation.worlds import WORLDS

SECONDS: Final = 60.0
LOGICAL: Final = {
    "lanes": (*bugs_in_opening.MUTANTS, *bugs_in_lanes.MUTANTS),
    "consumers": (*bugs_in_groups.MUTANTS, *bugs_in_handover.MUTANTS, *bugs_in_attempts.MUTANTS),
}
"""By world."""
COSTS_ONLY: Final = frozenset(
    {
        "own-group-first", "free-group-first", "one-more-than-the-prefetch", "prefetch-not-filled-again", "purged-heads-are-kept",
        "swept-each-time", "sweep-forgets-the-ungrouped", "consumers-are-kept", "longer-form-written", "memory-of-each-partition",
        "first-come-first-served", "memory-not-given-back", "fetched-and-left-behind",
    }
)  # fmt: skip
"""Memory, speed, and in which order messages of different groups come: nothing that a world can be wrong in."""
OUTSIDE: Final = frozenset(
    {
        "purge-takes-what-is-held", "position-taken-twice", "late-but-old-is-overlooked", "bitmap-the-other-way-round",
        "lease-of-a-topic-that-was-recreated", "clock-that-sleeps", "plain-commit-beside-the-transaction", "dead-letter-topic-never-looked-at",
        "reason-must-be-text", "given-up-in-an-outage", "full-speed-in-an-outage", "one-poison-message-slows-all", "count-alone",
        "restarts-count-as-deaths", "generator-acknowledges-everything", "returned-coroutine-is-forgotten", "hung-thread-keeps-its-place",
        "stubborn-handler-keeps-its-slot", "waits-anew-after-each-rebalance", "membership-believed", "restore-to-last-stable-offset",
        "partition-counts-not-compared", "foreign-changelog-unnoticed", "refused-fences-again", "half-a-lane", "clear-without-fence",
        "input-read-uncommitted", "batch-begins-at-its-first-record", "malformed-batch-mistaken", "malformed-unnamed", "rewind-unmarked",
        "fetching-ended-for-good", "refusal-tried-at-once",
    }
)  # fmt: skip
"""What no world has: operators, aiokafka's own options, machines that sleep, recreated progress, outages, threads, what is no handler; changed
partition counts, foreign changelogs, half a lane; malformed records, and Faust's transport."""
_FAILED: Final = re.compile(
    r"^seed (?P<seed>[0-9]+) of [a-z]+ fails, number (?P<number>[0-9]+), after (?P<seconds>[0-9.]+) s: (?P<said>.*)$",
    re.MULTILINE,
)
_COUNT: Final = re.compile(r"^([0-9]+) schedules", re.MULTILINE)


def main() -> None:
    """A row each."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="of mutants (default: all)")
    parser.add_argument("--world", choices=LOGICAL, help="only those that belong there")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    for world, mutants in LOGICAL.items():
        for mutant in mutants if asked.world in {None, world} else ():
            tried = mutant.name not in COSTS_ONLY | OUTSIDE
            if mutant.name in asked.names or (tried and not asked.names):
                print(_row(mutant, world, asked.seconds, asked.seed), flush=True)


def _row(mutant: Mutant, world: str, seconds: float, seed: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        try:
            mutant.apply(root)
        except PatchError as error:
            return f"| {mutant.name} | {error} |"
        told = _run(root, "--world", world, "--seed", str(seed), "--seconds", str(seconds), "--cpu")
    found = _FAILED.search(told)
    if found is None:
        count = (_COUNT.findall(told) or ["0"])[-1]
        return f"| {mutant.name} | not in {count} | | |"
    with simulated():
        fails = Runner().run(WORLDS[world](int(found["seed"]))).faults
    if fails:
        return f"| {mutant.name} | seed {found['seed']} fails without it too | | |"
    said = re.split(r"[ :]", found["said"], maxsplit=1)[0].split("/")[0]
    return f"| {mutant.name} | {found['number']} | {found['seconds']} | {said} |"


def _run(root: Path, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--as-it-is", *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


if __name__ == "__main__":
    main()

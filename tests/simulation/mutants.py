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

from tests.mutants import bugs_in_lanes, bugs_in_opening
from tests.mutants.mutant import Mutant, PatchError
from tests.mutants.trial import COPIED, ROOT

SECONDS: Final = 60.0
LOGICAL: Final = (*bugs_in_opening.MUTANTS, *bugs_in_lanes.MUTANTS)
_FAILED: Final = re.compile(
    r"^seed (?P<seed>[0-9]+) fails, number (?P<number>[0-9]+), after (?P<seconds>[0-9.]+) s: (?P<said>.*)$",
    re.MULTILINE,
)
_COUNT: Final = re.compile(r"^([0-9]+) schedules", re.MULTILINE)


def main() -> None:
    """A row each."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="of mutants (default: all in opening and lane)")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    for mutant in LOGICAL:
        if not asked.names or mutant.name in asked.names:
            print(_row(mutant, asked.seconds, asked.seed), flush=True)


def _row(mutant: Mutant, seconds: float, seed: int) -> str:
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
        told = _run(root, "--seed", str(seed), "--seconds", str(seconds))
    found = _FAILED.search(told)
    if found is None:
        count = (_COUNT.findall(told) or ["0"])[-1]
        return f"| {mutant.name} | not in {count} | | |"
    if _FAILED.search(_run(ROOT, "--seed", found["seed"], "--count", "1")):
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

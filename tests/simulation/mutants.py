"""Which deliberate bugs the simulator finds, and after how many schedules: one copy of the sources for each, run as it stands.

``python -m tests.simulation.mutants [--seconds S] [--seed N] [NAME …]`` prints the tables of docs/simulation.md, and corpus.txt. A seed that
fails in a copy and in the sources alike would show nothing, so that is tried too.
"""

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
    bugs_in_attempts,
    bugs_in_groups,
    bugs_in_handover,
    bugs_in_hops,
    bugs_in_lanes,
    bugs_in_opening,
    bugs_in_recreated_topics,
    bugs_in_transactions,
)
from tests.mutants.mutant import Mutant, PatchError
from tests.mutants.trial import COPIED, ROOT

SECONDS: Final = 30.0
LOGICAL: Final = {
    "lanes": (*bugs_in_opening.MUTANTS, *bugs_in_lanes.MUTANTS),
    "envelopes": (*bugs_in_transactions.MUTANTS, *bugs_in_hops.MUTANTS),
    "consumers": (
        *bugs_in_groups.MUTANTS,
        *bugs_in_handover.MUTANTS,
        *bugs_in_attempts.MUTANTS,
        *bugs_in_recreated_topics.MUTANTS,
    ),
}
"""By world."""
COSTS_ONLY: Final = frozenset(
    {
        "own-group-first", "free-group-first", "one-more-than-the-prefetch", "prefetch-not-filled-again", "purged-heads-are-kept",
        "swept-each-time", "sweep-forgets-the-ungrouped", "consumers-are-kept", "longer-form-written", "memory-of-each-partition",
        "first-come-first-served", "memory-not-given-back", "fetched-and-left-behind", "opening-keeps-its-producer",
        "haste-fills-a-core", "half-of-the-wait", "brokers-at-once", "fetch-costs-no-time", "marker-costs-no-time",
        "begun-before-the-markers", "refusals-are-not-felt", "asked-by-the-generation-before",
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
        "fetching-ended-for-good", "refusal-tried-at-once", "room-unheard", "offset-set-in-a-new-topic", "left-runs-by-name-alone", "token-anew-in-a-grown-topic",
        "lease-not-written-again", "created-by-asking", "stale-metadata",
        "written-though-a-part-is-too-large", "malformed-burns-ids", "partitioner-of-the-own-address", "count-of-the-own-address",
        "group-by-the-own-rules", "ids-by-the-own-header-names", "list-of-addresses-ignored", "forged-part-kept", "cut-inside",
        "trailing-text-accepted", "unknown-names-accepted", "refused-and-sent-all-the-same", "sent-before-it-is-added",
        "home-of-the-foreign-id-as-stored", "hops-without-end", "size-0-drops-hops", "malformed-confirmation-believed", "malformed-hop-passes",
        "members-of-anybody-kept", "members-lost", "hops-cleared-not-on-disk", "hops-in-memory-only-kept", "hop-headers-not-stripped",
        "all-letters-at-once", "a-letter-a-batch", "skipped-and-nobody-woken", "skips-whatever-is-first", "no-leader-is-a-doubt",
        "refused-hops-not-noted", "refused-hops-noted-twice", "refused-hops-forwarded", "known-hops-refused-for-their-parts",
    }
)  # fmt: skip
"""What no world has: operators, aiokafka's own options, machines that sleep, recreated progress, outages, threads, what is no handler; changed
partition counts, foreign changelogs, half a lane; malformed records, addresses with other rules, records that are too large, rings that are
cleared, hops that are refused, more dead letters than fit, partitions without a leader, what aiokafka's own sender does with refusals, and Faust's transport."""
_FAILED: Final = re.compile(
    r"^seed (?P<seed>[0-9]+) of [a-z]+ fails, number (?P<number>[0-9]+), after (?P<seconds>[0-9.]+) s: (?P<said>.*)$",
    re.MULTILINE,
)
_COUNT: Final = re.compile(r"^([0-9]+) schedules", re.MULTILINE)


class Row(NamedTuple):
    """What came of one."""

    mutant: Mutant
    world: str
    found: str
    """As what; empty = not at all."""
    number: int
    """Of schedules."""
    seconds: float = 0.0
    seed: int = -1

    def __str__(self) -> str:
        if not self.found:
            return f"| {self.mutant.name} | not in {self.number} | | |"
        return f"| {self.mutant.name} | {self.number} | {self.seconds:.1f} | {self.found} |"


def main() -> None:
    """A table for each world, then the seeds that found something, as corpus.txt has them."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
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
        and (mutant.name in asked.names or (not asked.names and mutant.name not in COSTS_ONLY | OUTSIDE and not mutant.harmless))
    ]  # fmt: skip
    rows: list[Row] = []
    with ThreadPoolExecutor(asked.jobs) as pool:
        for row in pool.map(lambda each: _row(each[0], each[1], asked.seconds, asked.seed), chosen):
            if not rows or rows[-1].world != row.world:
                print(f"\nOf {row.world}:\n\n| mutant | schedules | seconds | found as |\n|---|---|---|---|")
            rows.append(row)
            print(row, flush=True)
    seeds: dict[tuple[str, int], list[str]] = {}
    for row in sorted((each for each in rows if each.found), key=lambda each: each.seed):
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
        [sys.executable, "-m", "tests.simulation", "--as-it-is", "--jobs", "1", *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


if __name__ == "__main__":
    main()

"""Try schedules and print one line a second; shorten a seed that fails, and print how to repeat it.

``python -m tests.simulator [--seed N] [--world NAME] [--seconds S | --count N] [--jobs N] [--schedule]``
"""

import argparse
import gc
import os
import secrets
import sys
import time
from collections.abc import Sequence
from typing import Final

from tests.simulator.batches import Failure, Tally, tallies
from tests.simulator.patches import simulated
from tests.simulator.runner import Runner
from tests.simulator.schedules import Schedule
from tests.simulator.shrink import shrunk
from tests.simulator.worlds import WORLDS

SECONDS: Final = 60.0
SEEDS: Final = 2**40


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first; those after it follow (default: a fresh one)")
    parser.add_argument("--world", choices=WORLDS, help="of what (default: by turns)")
    parser.add_argument("--seconds", type=float, help=f"stop after so many (default: {SECONDS:g})")
    parser.add_argument("--cpu", action="store_true", help="of CPU time, where others are at work too")
    parser.add_argument("--count", type=int, help="stop after so many seeds")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="at once (default: a core each)"
    )
    parser.add_argument(
        "--schedule", action="store_true", help="show the first seed's schedule and all that happens in it"
    )
    parser.add_argument("--as-it-is", action="store_true", help="do not make short what fails")
    asked = parser.parse_args()
    first: int = secrets.randbelow(SEEDS) if asked.seed is None else asked.seed
    worlds = list(WORLDS) if asked.world is None else [asked.world]
    limit = SECONDS if asked.seconds is None and asked.count is None else asked.seconds
    with simulated():
        gc.disable()
        if asked.schedule:
            return max(_show(WORLDS[world](first)) for world in worlds)
        print(f"seeds from {first} on", flush=True)
        failure = _try(first, worlds, asked.jobs, limit, asked.count, cpu=asked.cpu)
        if failure is None:
            return 0
        if not asked.as_it_is:
            print("\nmade short:")
            _show(shrunk(WORLDS[failure.world](failure.seed), Runner()))
    return 1


def _try(
    first: int, worlds: Sequence[str], jobs: int, limit: float | None, count: int | None, *, cpu: bool
) -> Failure | None:
    tally, began = Tally(), time.monotonic()
    shown_at = began

    def spent() -> float:
        return tally.seconds if cpu else time.monotonic() - began

    for item in tallies(first, worlds, jobs, count, lambda: limit is None or spent() < limit):
        tally.add(item)
        if (found := tally.failure) is not None:
            print(
                f"seed {found.seed} of {found.world} fails, number {found.number}, after {found.seconds:.2f} s: {found.said}\n"
                f"again: python -m tests.simulator --seed {found.seed} --world {found.world} --count 1",
                flush=True,
            )
            return found
        if time.monotonic() >= shown_at + 1:
            shown_at = time.monotonic()
            print(f"{tally.count} schedules, {tally.count / (shown_at - began):.0f}/s", flush=True)
    print(f"{tally.count} schedules, {tally.count / max(1e-9, tally.seconds):.0f} in a second of CPU time")
    return None


def _show(plan: Schedule) -> int:
    result = Runner().run(plan, watched=True)
    print(plan)
    print("\n".join(result.trace))
    print("\n".join(result.faults) or "well")
    return 1 if result.faults else 0


if __name__ == "__main__":
    sys.exit(main())

"""Tries schedules: one line a second; a seed that fails says how to run it again, and is made short.

``python -m tests.simulation [--seed N] [--world lanes|consumers] [--seconds S | --count N] [--schedule]``
"""

import argparse
import gc
import itertools
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.patches import simulated
from tests.simulation.run import Result, Runner
from tests.simulation.schedules import Kind, Schedule
from tests.simulation.shrink import shrunk
from tests.simulation.worlds import WORLDS

SECONDS: Final = 60.0
SEEDS: Final = 2**40
"""Fresh ones are below this."""


@dataclass
class Tally:
    """What was tried so far."""

    clock: Callable[[], float]
    began: float
    count: int = 0
    virtual: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, plan: Schedule, result: Result) -> None:
        """One more."""
        self.count += 1
        self.virtual += result.seconds
        self.kinds.update(each.kind.value for each in plan.happenings if each.kind is not Kind.SEND)

    def line(self) -> str:
        """As it is shown."""
        rate = self.count / max(0.001, self.clock() - self.began)
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        return f"{self.count} schedules, {rate:.0f}/s, {self.virtual:.0f} simulated seconds: {kinds}"


def main() -> int:
    """Exit code 0: none failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first; those after it follow (default: a fresh one)")
    parser.add_argument("--world", choices=WORLDS, help="of what (default: by turns)")
    parser.add_argument("--seconds", type=float, help=f"stop after so many (default: {SECONDS:g})")
    parser.add_argument(
        "--cpu", action="store_true", help="of this process's own CPU time, where others are at work too"
    )
    parser.add_argument("--count", type=int, help="stop after so many schedules")
    parser.add_argument(
        "--schedule", action="store_true", help="show the first seed's schedule and all that happens in it"
    )
    parser.add_argument("--as-it-is", action="store_true", help="do not make short what fails")
    asked = parser.parse_args()
    first: int = secrets.randbelow(SEEDS) if asked.seed is None else asked.seed
    worlds = list(WORLDS) if asked.world is None else [asked.world]
    with simulated():
        gc.disable()
        if asked.schedule:
            return max(_show(WORLDS[each](first)) for each in worlds)
        print(f"seeds from {first} on", flush=True)
        failed = _try(
            first, worlds, asked.seconds, asked.count, time.process_time if asked.cpu else time.monotonic
        )
        if failed is None:
            return 0
        if not asked.as_it_is:
            _explain(failed)
    return 1


def _try(
    first: int, worlds: Sequence[str], seconds: float | None, count: int | None, clock: Callable[[], float]
) -> Schedule | None:
    """The first that fails; None = none did."""
    runner, tally = Runner(), Tally(clock, clock())
    limit = SECONDS if seconds is None and count is None else seconds
    shown_at = tally.began
    for seed, world in ((seed, world) for seed in itertools.count(first) for world in worlds):
        now = clock()
        if now >= shown_at + 1:
            print(tally.line(), flush=True)
            shown_at = now
        if (count is not None and tally.count >= count) or (limit is not None and now >= tally.began + limit):
            break
        plan = WORLDS[world](seed)
        result = runner.run(plan)
        tally.add(plan, result)
        if result.faults:
            print(tally.line())
            print(
                f"seed {seed} of {world} fails, number {tally.count}, after {now - tally.began:.1f} s: {result.faults[0]}\n"
                f"again: python -m tests.simulation --seed {seed} --world {world} --count 1",
                flush=True,
            )
            return plan
    print(tally.line())
    return None


def _explain(plan: Schedule) -> None:
    runner = Runner()
    short = shrunk(plan, runner)
    result = runner.run(short, watched=True)
    print(f"\nmade short:\n{short}\n")
    print("\n".join(result.trace))
    print("\n".join(result.faults))


def _show(plan: Schedule) -> int:
    result = Runner().run(plan, watched=True)
    print(plan)
    print("\n".join(result.trace))
    print("\n".join(result.faults) or "well")
    return 1 if result.faults else 0


if __name__ == "__main__":
    sys.exit(main())

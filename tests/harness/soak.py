"""Run rounds of faults until the time is up: ``python -m tests.harness.soak --minutes 60 --seed 1``."""

import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

import click

from tests.harness import rounds
from tests.harness.nemeses.catalogue import fitting
from tests.harness.workloads.catalogue import KINDS

OBSERVED_EVERY: Final = 5
"""One round in this many lets duplicates pass with their verdict."""


@click.command()
@click.option("--minutes", default=60.0, help="No round begins after this.")
@click.option("--seed", default=1, help="Of the first round; the others count on from it.")
@click.option("--nemeses", default="", help="Only these, in this order, separated by commas.")
@click.option("--workload", type=click.Choice(list(KINDS)), help="Of one address of every round.")
@click.option(
    "--brokers",
    type=click.Choice(["1", "3"]),
    default="1",
    help="One behind links, or three whose leaders move.",
)
@click.option("--strikes", default=4, help="Nemeses a round, where the seed chooses.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the folders of rounds that fail here.")
def soak(
    minutes: float,
    seed: int,
    nemeses: str,
    workload: str | None,
    brokers: str,
    strikes: int,
    keep: Path | None,
) -> None:
    """Exit with 1 when a round failed; ``--seed N --minutes 0`` runs the round of that seed alone."""
    names = [part for part in nemeses.split(",") if part]
    if workload == "bridged" and brokers != "1":
        raise click.BadParameter("a round with a bridge has one broker on either side: leave --brokers out")
    possible = fitting(workload or "", int(brokers))
    if unknown := [name for name in names if name not in possible]:
        raise click.BadParameter(f"{', '.join(unknown)}: possible are {', '.join(possible)}")
    # sys.exit ends the processes that a round has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    deadline = time.monotonic() + minutes * 60
    totals: Counter[str] = Counter()
    failed: list[int] = []
    remaining: list[str] = []
    chooser = random.Random(seed)
    only = (f" WORKLOAD={workload}" if workload else "") + (f" BROKERS={brokers}" if brokers != "1" else "")
    while True:
        if not names and len(remaining) < strikes:
            # Every nemesis comes up before any comes again.
            remaining += chooser.sample(possible, len(possible))
        # Every round has its kills; across clusters also its cuts.
        always = ["kill-loop", "bridge-link-cuts"] if workload == "bridged" else ["kill-loop"]
        chosen, remaining = (names, []) if names else ([*always, *remaining[:strikes]], remaining[strikes:])
        observe = seed % OBSERVED_EVERY == 0
        verdict = rounds.run(seed, chosen, keep, workload or "", int(brokers), observe=observe)
        print(verdict.line(), flush=True)
        totals.update(rounds=1, sent=verdict.sent, accepted=verdict.accepted, kills=verdict.kills)
        if verdict.faults:
            failed.append(seed)
            print(f"  again: make soak MINUTES=0 SEED={seed} NEMESES={','.join(chosen)}{only}", flush=True)
        seed += 1
        if time.monotonic() >= deadline:
            break
    print(
        f"{totals['rounds']} rounds, {totals['kills']:,} kills, {totals['sent']:,} sent, {totals['accepted']:,} accepted: "
        + (f"FAILED with seeds {', '.join(map(str, failed))}" if failed else "exact")
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    soak()

"""The command that measures Ringfence beside other programs, the default of ``python -m bench``."""

import sys
from typing import Final

import click

from bench import table
from bench.clusters import RESULTS, temporary_broker
from bench.contest import CONTENDERS, Contest, Outcome
from bench.errors import EXIT_NOT_WELL, BenchError
from bench.startup import PLAIN, missing
from bench.traffic import MESSAGES_MIN, Plan
from bench.trickle import RATE
from conf import terminal

QUICK_MESSAGES: Final = 100_000
QUICK_TRICKLE_S: Final = 5.0
PLAIN_SHARE: Final = 50
"""The plain agent gets one message of so many: at its pace the whole would take minutes to hours."""
PLAIN_MESSAGES_MIN: Final = 20_000
"""Some ten seconds of work for it."""


@click.group(invoke_without_command=True)
@click.option("--messages", type=click.IntRange(min=MESSAGES_MIN), default=1_000_000, show_default=True)
@click.option(
    "--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Of all but the plain agent."
)
@click.option("--quick", is_flag=True, help=f"{QUICK_MESSAGES:,} messages, one round: to see that it works.")
@click.option(
    "--trickle",
    type=click.FloatRange(min=0),
    default=20.0,
    show_default=True,
    help=f"Seconds of {RATE:,} messages/s; 0: none.",
)
@click.option("--only", type=click.Choice(list(CONTENDERS)), multiple=True, help="May be repeated.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the traffic.")
@click.pass_context
def command(
    context: click.Context,
    messages: int,
    rounds: int,
    quick: bool,
    trickle: float,
    only: tuple[str, ...],
    seed: int,
) -> None:
    """Measure Ringfence, at home and forwarding, beside what else does the job, and beside copies without a ring."""
    if context.invoked_subcommand:
        return
    if quick:
        messages, rounds, trickle = QUICK_MESSAGES, 1, min(trickle, QUICK_TRICKLE_S)
    chosen = [CONTENDERS[name] for name in only or CONTENDERS]
    plain = max(messages // PLAIN_SHARE, PLAIN_MESSAGES_MIN)
    outcome = Outcome(Plan(messages, seed=seed), Plan(plain, seed=seed))
    outcome.left_out = {name: reason for name in chosen if (reason := missing(name))}
    if only and outcome.left_out:
        raise BenchError("\n".join(f"{name}: {reason}" for name, reason in outcome.left_out.items()))
    chosen = [name for name in chosen if name not in outcome.left_out]
    console = terminal.console()
    with temporary_broker() as (broker, folder):
        Contest(broker, folder, outcome, console.print).run(rounds, chosen, trickle)
    table.show(outcome, console)
    table.save(outcome, RESULTS / "latest.json")
    # The plain agent's exactness is a finding, not a fault of the benchmark.
    exact = all(outcome.exact(name) for name in chosen if name != PLAIN)
    complete = not outcome.failures
    if not (exact and complete):
        sys.exit(EXIT_NOT_WELL)

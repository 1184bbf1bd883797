"""A plan as a table, and as a document for programs."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.table import Table

from app.plan.demand import Demand
from app.plan.limits import Assumption, Limit
from app.plan.model import STALE_S, Plan
from app.plan.units import counted, lasting, sized
from app.status.wording import count
from conf.terminal import tell

ROUGH: Final = 100
"""From here on digits behind the point say nothing."""


def document(
    demand: Demand, plan: Plan, limits: Sequence[Limit], assumptions: Sequence[Assumption]
) -> dict[str, Any]:
    """All of it; bytes, seconds, cores."""
    return {
        "demand": asdict(demand),
        "plan": asdict(plan),
        "limits": [asdict(each) for each in limits],
        "assumptions": [{**asdict(each), "times": each.times} for each in assumptions],
    }


def show(demand: Demand, plan: Plan, limits: Sequence[Limit], assumptions: Sequence[Assumption]) -> None:
    """Print it."""
    needed = Table("", "needed", "because")
    for row in rows(demand, plan):
        needed.add_row(*row)
    tell(needed)
    giving = Table("gives first", "at so many times this load", "before that")
    for each in limits:
        giving.add_row(
            each.what, f"{each.times:.2g}" if each.times < ROUGH else f"{each.times:,.0f}", each.do
        )
    tell(giving)
    for line in verdict(limits, assumptions):
        print(line)  # noqa: T201 - the answer


def verdict(limits: Sequence[Limit], assumptions: Sequence[Assumption]) -> Iterator[str]:
    """What does not fit, and what nobody has tried."""
    for each in limits:
        if each.times < 1:
            yield f"Does not fit: {each.what} is at its end at {each.times:.2g} of this load: {each.do}."
    if assumptions:
        weakest = assumptions[0]
        yield f"Weakest assumption: {weakest.what}: {counted(weakest.planned)} planned, {counted(weakest.measured)} measured."


def rows(demand: Demand, plan: Plan) -> Iterator[tuple[str, str, str]]:
    """What, how much, and why."""
    yield (
        "partitions",
        counted(plan.partitions),
        f"by {plan.lanes_by}; {plan.lanes} lanes a worker",
    )
    yield "id_cache_size", f"{plan.id_cache_size:,}", f"{counted(demand.ids)} IDs in all lanes together"
    yield "workers", str(plan.workers), "one of them may be away" + _caught_up(demand)
    yield (
        "CPU of all workers, cores",
        f"{plan.worker_cpu:.1f}",
        _cpu(plan),
    )
    yield (
        "memory of a worker",
        sized(plan.worker_memory),
        f"{100 * plan.worker_share:.3g} % of the IDs, while one is away",
    )
    yield "disk of a worker", sized(plan.worker_disk), "a cache: it may be lost"
    yield (
        "CPU of all brokers, cores",
        f"{plan.broker_cpu:.1f}",
        f"{plan.broker_catch_up_cpu:.1f} while workers catch up, copies included",
    )
    yield (
        "brokers receive, /s",
        sized(plan.broker_in),
        f"{demand.replicas} replicas, nothing compressed" + _busiest(demand),
    )
    yield (
        "brokers send, /s",
        sized(plan.broker_out),
        f"to workers, replicas and {count(demand.readers, 'group')} of consumers",
    )
    yield (
        "disk of all brokers",
        sized(plan.broker_disk),
        _kept(demand),
    )
    yield "... the changelog of it", sized(plan.changelog), "compacted"
    yield (
        "a worker is killed",
        lasting(plan.killed_s),
        f"session time-out of {demand.session_s:.0f} s, then a restore",
    )
    yield "all workers start", lasting(plan.restart_s), _disks(demand)
    yield "... with empty disks", lasting(plan.empty_s), "from the changelog"
    if demand.outage_s:
        yield (
            "after the outage",
            lasting(plan.catch_up_s),
            f"until {counted(demand.rate * demand.outage_s)} messages are worked off",
        )


def _cpu(plan: Plan) -> str:
    found = f"{plan.catch_up_cpu:.1f} while they catch up"
    if plan.stretched:
        found += "; transactions of so many lanes are larger than those of a few, and messages wait longer"
    return found


def _kept(demand: Demand) -> str:
    if not demand.kept_s:
        return "no outage: input and accepted come to it, for as long as they are kept"
    return f"input and accepted kept for {lasting(demand.kept_s)}"


def _disks(demand: Demand) -> str:
    if demand.outage_s > STALE_S:
        return f"after {lasting(STALE_S)} their disks are too old to be used"
    return "with their disks"


def _caught_up(demand: Demand) -> str:
    return f"; {counted(demand.peak_rate)} messages/s while they catch up" if demand.outage_s else ""


def _busiest(demand: Demand) -> str:
    return ", while workers catch up" if demand.outage_s else ""

"""A plan as a table, and as a document for programs."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from app.plan.demand import Demand
from app.plan.limits import Assumption, Limit
from app.plan.model import Plan
from app.plan.units import counted, lasting, sized
from conf.terminal import tell


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
    table = Table("", "needed", "because")
    for row in rows(demand, plan):
        table.add_row(*row)
    tell(table)
    first = limits[0]
    print(  # noqa: T201 - the answer
        f"Gives first, at {first.times:.2g} times this load: {first.what}. Before that: {first.do}."
    )
    if assumptions:
        weakest = assumptions[0]
        print(  # noqa: T201 - as above
            f"Weakest assumption: {weakest.what}: {counted(weakest.planned)} planned, {counted(weakest.measured)} measured."
        )


def rows(demand: Demand, plan: Plan) -> Iterator[tuple[str, str, str]]:
    """What, how much, and why."""
    yield "partitions", counted(plan.partitions), f"{plan.lanes} lanes a worker; {100 * plan.lane_share:.2g} % of all in the busiest"
    yield "id_cache_size", f"{plan.id_cache_size:,}", f"{counted(demand.ids)} IDs in all lanes together"
    yield "workers", str(plan.workers), "one of them may be away" + _caught_up(demand)
    yield "CPU of all workers, cores", f"{plan.worker_cpu:.1f}", f"{plan.catch_up_cpu:.1f} while they catch up"
    yield "memory of a worker", sized(plan.worker_memory), f"{100 * plan.worker_share:.3g} % of the IDs, while one is away"
    yield "disk of a worker", sized(plan.worker_disk), "a cache: it may be lost"
    yield "CPU of all brokers, cores", f"{plan.broker_cpu:.1f}", "without what replication costs"
    yield "brokers receive, /s", sized(plan.broker_in), f"{demand.replicas} replicas, nothing compressed" + _busiest(demand)
    yield "brokers send, /s", sized(plan.broker_out), f"to {demand.readers} groups of consumers, to workers and to replicas"
    yield "disk of all brokers", sized(plan.broker_disk), f"input and accepted kept for {lasting(demand.kept_s)}"
    yield "... the changelog of it", sized(plan.changelog), "compacted"
    yield "a worker is killed", lasting(plan.killed_s), f"session time-out of {demand.session_s:.0f} s, then a restore"
    yield "all workers start", lasting(plan.restart_s), "with their disks"
    yield "... with empty disks", lasting(plan.empty_s), "from the changelog"
    if demand.outage_s:
        yield "after the outage", lasting(plan.catch_up_s), f"until {counted(demand.rate * demand.outage_s)} messages are worked off"


def _caught_up(demand: Demand) -> str:
    return f"; {counted(demand.peak_rate)} messages/s while they catch up" if demand.outage_s else ""


def _busiest(demand: Demand) -> str:
    return ", while workers catch up" if demand.outage_s else ""

"""What a plan promises whatever is asked: who asks for more never gets less, and nothing is below nothing.

The examples are derived from the tests themselves: each run of the suite tries the same ones.
"""

from dataclasses import asdict, replace
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.commands.plan.capacity import LOAD_MAX, MEMORY_MAX, Demand, Plan, limits, plan
from app.commands.plan.plan import assumptions
from ringfence_kafka.errors import ConfigurationError

demands = st.builds(
    Demand,
    rate=st.floats(1, 2e6),
    size=st.floats(1, 1e6),
    ids=st.floats(0, 1e9),
    outage_s=st.floats(0, 7 * 86_400),
    catch_up_s=st.just(0) | st.floats(600, 7 * 86_400),
    largest_group=st.just(0) | st.floats(0, 0.5),
    forwarded=st.just(0) | st.floats(0, 1),
    native=st.booleans(),
    replicas=st.integers(1, 3),
    readers=st.integers(0, 5),
    worker_memory=st.floats(2**30, 2**36),
)
GROWING = ("rate", "size", "ids", "outage_s", "forwarded", "largest_group", "replicas", "readers")
COSTS = (
    "partitions", "workers", "worker_cpu", "broker_cpu", "broker_in", "broker_out", "broker_disk", "changelog",
)  # fmt: skip
quick = settings(max_examples=200, derandomize=True, deadline=None)


def _plan(demand: Demand) -> Plan:
    try:
        return plan(demand)
    except ConfigurationError:
        assume(False)
        raise


@quick
@given(demands)
def test_no_quantity_is_negative(demand: Demand) -> None:
    found = _plan(demand)

    assert all(value >= 0 for value in asdict(found).values() if not isinstance(value, str))
    assert found.workers >= 2
    assert found.partitions >= found.workers
    assert found.id_cache_size * found.partitions >= demand.ids


@quick
@given(demands, st.sampled_from(GROWING), st.floats(1, 4))
def test_who_asks_for_more_never_gets_less(demand: Demand, name: str, times: float) -> None:
    """Of what costs something. A longer time to catch up is the one thing that makes a plan smaller."""
    more: Any = getattr(demand, name) * times
    if name in ("forwarded", "largest_group"):
        more = min(more, 1.0)
    if name == "replicas":
        more = int(more)
    larger = replace(demand, **{name: more})
    here, there = _plan(demand), _plan(larger)

    assert [cost for cost in COSTS if getattr(there, cost) < getattr(here, cost) * (1 - 1e-9)] == []


@quick
@given(demands)
def test_workers_lanes_and_memory_are_within_what_they_may(demand: Demand) -> None:
    """With one worker away, while the others catch up."""
    found = _plan(demand)

    assert found.worker_share * demand.peak_rate <= LOAD_MAX * demand.worker_rate * (1 + 1e-9)
    assert found.lane_share * demand.peak_rate <= LOAD_MAX * demand.lane_rate * (1 + 1e-9)
    assert found.id_cache_size <= demand.resident_ids
    room = demand.worker_memory - MEMORY_MAX * demand.worker_memory
    assert found.worker_memory <= MEMORY_MAX * demand.worker_memory + room


@quick
@given(demands)
def test_what_gives_first_comes_first(demand: Demand) -> None:
    """And workers and lanes, which the plan has chosen, are never what does not fit."""
    found = _plan(demand)
    told = limits(demand, found)

    assert [item.times for item in told] == sorted(item.times for item in told)
    assert all(item.times >= 1 for item in told if "broker" not in item.what)
    assert all(assumption.planned > assumption.measured for assumption in assumptions(demand, found))


def test_a_plan_at_its_limit_has_no_room() -> None:
    """The load that is said to be the end of it needs more workers or lanes."""
    demand = Demand(100_000, 154, 1_000_000)
    found = plan(demand)
    first = limits(demand, found)[0]
    beyond = plan(replace(demand, rate=demand.rate * first.times / LOAD_MAX * 1.5))

    assert (beyond.workers, beyond.partitions) > (found.workers, found.partitions)

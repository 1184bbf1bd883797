"""What gives first when a load grows beyond its plan, and how far a plan goes beyond what was measured. Pure."""

from dataclasses import dataclass

from app.plan import measured
from app.plan.demand import Demand
from app.plan.model import Plan, base_memory, id_bytes, lane_rate, worker_rate


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that ends."""

    what: str
    times: float
    """The load may grow to so many times the planned one, with what the plan has; below 1 = the plan itself does not fit."""
    do: str
    """What to do before that."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """Something that nobody measured as it is planned."""

    what: str
    planned: float
    measured: float
    """The most that was; 1 = none."""

    @property
    def times(self) -> float:
        """How far beyond."""
        return self.planned / self.measured


def limits(demand: Demand, plan: Plan) -> list[Limit]:
    """All that may give, the first one first. Rate and IDs grow together; partitions, workers and brokers stay."""
    memory = demand.worker_memory - base_memory(demand) - plan.lanes * measured.LANE.value
    rings = demand.ids * plan.worker_share * id_bytes(demand)
    found = [
        Limit(
            "the thread of the busiest worker, while it catches up",
            worker_rate(demand) / (plan.worker_share * demand.peak_rate),
            "more workers; they need partitions",
        ),
        Limit(
            "the busiest lane: a lane is in one worker, and a group in one lane",
            lane_rate(demand) / (plan.lane_share * demand.peak_rate),
            "divide the largest group"
            if demand.largest_group
            else "more partitions (`ringfence topics grow`)",
        ),
        Limit(
            "memory of the busiest worker",
            memory / rings,
            "more workers, fewer IDs, or more memory for each",
        )
        if rings
        else None,
        Limit(
            "the network of a broker",
            demand.broker_network * demand.brokers / max(plan.broker_in, plan.broker_out),
            "more brokers; or compression at the producers",
        ),
        Limit(
            "CPU of the brokers",
            demand.broker_cores * demand.brokers / plan.broker_catch_up_cpu,
            "more brokers, or fewer lanes: quiet ones cost as many transactions as busy ones",
        ),
    ]
    return sorted((each for each in found if each is not None), key=lambda each: each.times)


def assumptions(demand: Demand, plan: Plan) -> list[Assumption]:
    """All that goes beyond what was measured, the furthest first."""
    found = [
        Assumption("workers that share the lanes of one cluster", plan.workers, measured.WORKERS_TRIED),
        Assumption("messages/s through one cluster", demand.peak_rate, measured.RATE_TRIED),
        Assumption("lanes of one worker", plan.lanes, measured.LANES_TRIED),
        Assumption("IDs of one lane", plan.id_cache_size, measured.LANE_IDS_TRIED),
        Assumption("IDs of one worker", demand.ids * plan.worker_share, measured.IDS_TRIED),
        Assumption("bytes of a message, by which CPU grows", demand.size, measured.SIZE_TRIED),
        Assumption("replicas: what they cost brokers", demand.replicas, measured.REPLICAS_TRIED),
        Assumption("brokers that share the load evenly", demand.brokers, measured.BROKERS_TRIED),
    ]
    if plan.id_cache_size > demand.resident_ids:
        found.append(
            Assumption(
                "IDs of a lane, their index in RocksDB: neither its rate nor its memory",
                plan.id_cache_size,
                1,
            )
        )
    return sorted((each for each in found if each.times > 1), key=lambda each: -each.times)

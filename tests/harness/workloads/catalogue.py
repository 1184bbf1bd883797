"""The workloads of a round: an address, its settings, and its producers."""

import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from aiokafka.partitioner import murmur2

from tests.harness.workloads.plan import Groups, Plan

AMPLE: Final = 500_000
"""IDs of a ring that nothing in a round can overflow. It comes from the environment, so that a worker can be given another size."""


@dataclass(frozen=True)
class Workload:
    """An address under load."""

    name: str
    plans: list[Plan]
    capacity: int = AMPLE
    partitioner: str = "murmur2"
    divert: bool = False
    allowed: frozenset[str] = field(default_factory=frozenset)
    """Anomalies that this workload provokes and Ringfence does not promise to prevent."""
    targets: tuple[str, ...] = ()
    user_ids: str = ""
    """``check`` or ``ignore``: a bridge brings all messages from another cluster, with this option for IDs."""
    lanes: int = 0
    """Key of the address; 0 = each partition is a lane."""
    observe: bool = False
    by_value: bool = False
    size: int = 0
    """With a promise in time: ``id_cache_size``, while ``capacity`` is ``id_cache_size_max``; 0 = without."""

    @property
    def min_age_ms(self) -> int:
        return 3_600_000 if self.size else 0

    @property
    def shown(self) -> str:
        lanes = f" (lanes = {self.lanes})" if self.lanes else ""
        return f"{self.name}{lanes}{' (observe)' if self.observe else ''}"

    def lane_count(self, partitions: int) -> int:
        return self.lanes or partitions

    def settings(self, partitions: int) -> dict[str, Any]:
        size: dict[str, Any] = {} if self.capacity == AMPLE else {"id_cache_size": self.capacity}
        if self.size:
            size = {"id_cache_size": self.size, "id_cache_size_max": self.capacity, "id_min_age": "1h"}
        lanes = {"lanes": self.lanes} if self.lanes else {}
        return {
            **size,
            **lanes,
            "name": self.name,
            "partitions": partitions,
            "partitioner": self.partitioner,
            "duplicates": "divert" if self.divert else "drop",
            "mode": "observe" if self.observe else "enforce",
            "on_conflict": "accept" if self.by_value else "duplicate",
            "transaction_addresses": list(self.targets),
        }

    def home(self, partitions: int) -> Callable[[bytes], int]:
        if self.partitioner == "crc32":
            return lambda name: zlib.crc32(name) % partitions
        return lambda name: (murmur2(name) & 0x7FFFFFFF) % partitions


def resending(name: str, rng: random.Random) -> Workload:
    """Fifteen producers at once, killed by others, that send again everything in doubt."""
    plans = [
        Plan(name, f"{name}.{index}", f"r{index}", rng.randrange(2**31), 60, Groups.MANY, without_id_every=97)
        for index in range(15)
    ]
    return Workload(name, plans, divert=rng.random() < 0.5)


def twins(name: str, rng: random.Random) -> Workload:
    """Two producers that send the same IDs at the same instant, each with duplicate sends as well."""
    seed = rng.randrange(2**31)
    plans = [Plan(name, f"{name}.{index}", "twin", seed, 800, Groups.ZIPF) for index in range(2)]
    return Workload(name, plans, divert=rng.random() < 0.5)


def conflicting(name: str, rng: random.Random) -> Workload:
    """Two producers that send the same IDs with different values: each value of an ID is accepted once."""
    pair = twins(name, rng)
    plans = [replace(plan, rate=400, own_values=True) for plan in pair.plans]
    return replace(pair, plans=plans, by_value=True)


def transactional(name: str, rng: random.Random) -> Workload:
    """Return producers whose transactions often abort, beside a plain one; aborted messages are sent again."""
    plans = [
        Plan(name, f"{name}.{index}", f"t{index}", rng.randrange(2**31), 500, transactional=index < 2)
        for index in range(3)
    ]
    return Workload(name, plans)


def extreme(name: str, rng: random.Random) -> Workload:
    return Workload(name, [Plan(name, f"{name}.0", "x", rng.randrange(2**31), 60, extreme=True)])


def duplicates(name: str, rng: random.Random) -> Workload:
    plan = Plan(name, f"{name}.0", "d", rng.randrange(2**31), 2_000, id_space=50)
    return Workload(name, [plan], divert=rng.random() < 0.5)


def overflow(name: str, rng: random.Random) -> Workload:
    plan = Plan(
        name, f"{name}.0", "o", rng.randrange(2**31), 1_500, Groups.ZIPF, resend_share=0.4, resend_reach=6_000
    )
    return Workload(name, [plan], capacity=300, allowed=frozenset({"OVERRUN"}))


def promised(name: str, rng: random.Random) -> Workload:
    """Return a ring that keeps 300 IDs a lane whatever their age, and all of an hour: duplicate sends from far beyond the 300."""
    return replace(overflow(name, rng), capacity=50_000, size=300, allowed=frozenset())


def few(name: str, rng: random.Random) -> Workload:
    return Workload(name, [Plan(name, f"{name}.0", "f", rng.randrange(2**31), 2_000, Groups.FEW)])


def ungrouped(name: str, rng: random.Random) -> Workload:
    """No groups: null keys, spread by the producer, so that most are away from the home of their IDs."""
    plan = Plan(name, f"{name}.0", "u", rng.randrange(2**31), 1_000, Groups.NONE, without_id_every=97)
    return Workload(name, [plan], divert=rng.random() < 0.5)


def misplaced(name: str, rng: random.Random) -> Workload:
    """Return the default partitioner of librdkafka before an address that expects Java's: most messages are forwarded."""
    plans = [
        Plan(name, f"{name}.{number}", f"m{number}", rng.randrange(2**31), 600, partitioner=partitioner)
        for number, partitioner in enumerate(["consistent_random", "murmur2_random"])
    ]
    # A group in two input partitions has no order between them, so each producer has its own groups.
    plans[1] = replace(plans[1], groups=Groups.MANY)
    return Workload(name, plans, divert=rng.random() < 0.5)


def crc32(name: str, rng: random.Random) -> Workload:
    plan = Plan(name, f"{name}.0", "c", rng.randrange(2**31), 2_000, partitioner="consistent_random")
    return Workload(name, [plan], partitioner="crc32")


def bridged(name: str, rng: random.Random) -> Workload:
    """Return producers on another cluster, whose messages a bridge sends here: duplicate sends, aborted transactions, and messages without an ID."""
    plans = [
        Plan(
            name, f"{name}.{index}", f"b{index}", rng.randrange(2**31), 400, Groups.ZIPF if index else Groups.MANY,
            without_id_every=7, transactional=index == 2,
        )
        for index in range(3)
    ]  # fmt: skip
    # A target whose partitioner differs from the bridge's forwards most messages.
    partitioner, user_ids = rng.choice(["murmur2", "crc32"]), rng.choice(["check", "ignore"])
    return Workload(name, plans, partitioner=partitioner, divert=rng.random() < 0.5, user_ids=user_ids)


def transfers(name: str, rng: random.Random, targets: tuple[str, ...] = ()) -> Workload:
    """Fifteen producers of transactions with parts for all addresses; most are at home by their key, some are forwarded, some have no key or ID."""
    plans = [
        Plan(
            name, f"{name}.{index}", f"x{index}", rng.randrange(2**31), 30,
            Groups.NONE if index % 5 == 0 else Groups.ZIPF,
            partitioner="consistent_random" if index % 5 == 1 else "murmur2_random",
            without_id_every=97, parts_to=(name, *targets),
        )
        for index in range(15)
    ]  # fmt: skip
    return Workload(name, plans, divert=rng.random() < 0.5, targets=targets)


KINDS: Final[dict[str, Callable[[str, random.Random], Workload]]] = {
    item.__name__: item
    for item in (
        resending, twins, conflicting, transactional, extreme, duplicates, overflow, promised, few, ungrouped, misplaced, crc32, transfers, bridged,
    )
}  # fmt: skip
ON_REQUEST: Final = ("transfers", "bridged")
"""Workloads that need more than an address of their own."""
FORWARDING: Final = ("ungrouped", "misplaced")

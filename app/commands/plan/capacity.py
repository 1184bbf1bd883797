"""Capacity of a load: partitions, workers, memory, disk and traffic, from measured figures. Pure."""

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Final, NamedTuple

from ringfence_kafka.config.addresses import MAX_ID_CACHE_SIZE, MAX_PARTITIONS
from ringfence_kafka.config.settings import AppSettings
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.wording import counted

MIB: Final = 2**20
# Measured on one machine, see bench/measurements.md. Update a figure after a new measurement.
NATIVE_RATE, NATIVE_CPU = 272_528, 2.29e-6  # messages/s and CPU s/message of a worker, 100-byte values
PYTHON_RATE, PYTHON_CPU = 93_693, 9.03e-6  # the same without the native core
LANE_RATE: Final = 80_382  # messages/s of a worker with one lane, native core
FORWARDED_CPU: Final = 0.97  # additional CPU of a forwarded message, as a multiple of a message's CPU
BYTE_CPU, BROKER_BYTE_CPU = 0.0058e-6, 0.0077e-6  # CPU s/message for each byte above SIZE
SIZE: Final = 154  # bytes of a message with a 100-byte value: with key, ID and the ID's header
TRANSACTION_CPU, BROKER_TRANSACTION_CPU = 0.0014, 0.0017  # CPU s/transaction of any size
LANE_TRANSACTIONS: Final = 39.1  # transactions/s of a busy lane, with app.latency_target_ms = 20
TRANSACTIONS_MAX: Final = (
    0.5  # cores of a worker for transactions, limited by app/worker/fetch/fetch_interval.py
)
BROKER_CPU: Final = 2.78e-6  # CPU s/message of the brokers, without replication
COPY_CPU: Final = 2.6  # CPU of each further copy, as a multiple of the first
PROCESS, LANE, BUFFERS = 82 * MIB, 1.4 * MIB, 2.0  # bytes; bytes; multiple of app.buffer_bytes_max
ID, PYTHON_ID = 64, 188  # bytes of a 32-byte ID in memory
DISK_ID, CHANGELOG_ID = 51, 89.2  # its bytes in RocksDB at rest, and in the changelog
RECORD, SOURCE = 12, 22  # bytes of a record beside its message, and bytes that acceptance adds
RESTORE_RATE, REOPEN_RATE = 294_468, 763_759  # IDs/s of a worker, from the changelog and from RocksDB
TAKEOVER_S: Final = 0.91  # after a killed worker, beside session time-out and restore
# Choices, and settings of the product.
LOAD_MAX, MEMORY_MAX, SPARE = 0.7, 0.85, 1  # share of the measured rate and of --worker-memory; spare workers
LANES_A_WORKER, UNEVEN = 4, 1.25  # with 4 lanes or more, the busiest worker has at most 1.25 times the mean
DISK_TIMES, DISK_BESIDE = 2, 64 * MIB  # factor of RocksDB while it compacts; its unwritten data
STALE_S, DIRTY, SEGMENT = 12 * 3600, 0.3, 64 * MIB  # from the configuration of changelog topics
WORKERS_MAX: Final = MAX_PARTITIONS // LANES_A_WORKER


@dataclass(frozen=True, slots=True)
class Demand:
    """Load, outage to survive, and machines. Units: bytes, seconds, messages/s."""

    rate: float
    size: float
    ids: float  # in all lanes together
    outage_s: float = 0
    catch_up_s: float = 0  # 0 = as long as the outage
    largest_group: float = 0  # share of all messages
    forwarded: float = 0  # share of all messages
    native: bool = True
    replicas: int = 3
    readers: int = 1
    brokers: int = 3
    broker_cores: float = 8
    broker_network: float = 1.25e9
    worker_memory: float = 2 * 2**30
    buffer_bytes: float = AppSettings().buffer_bytes_max
    resident_ids: float = AppSettings().resident_ids_max
    session_s: float = AppSettings().session_timeout

    @property
    def recovery_s(self) -> float:
        """Time to process the backlog of the outage."""
        return self.catch_up_s or self.outage_s

    @property
    def peak_rate(self) -> float:
        """Messages/s while workers catch up."""
        return self.rate * (1 + self.outage_s / self.recovery_s) if self.outage_s else self.rate

    @property
    def message_cpu(self) -> float:
        """CPU seconds of a worker for a message, without its transaction."""
        each = NATIVE_CPU if self.native and not self.forwarded else PYTHON_CPU
        return (each + max(self.size - SIZE, 0) * BYTE_CPU) * (1 + self.forwarded * FORWARDED_CPU)

    @property
    def worker_rate(self) -> float:
        """Messages/s of one worker: the measured rate, reduced if a message takes more CPU."""
        plain = self.native and not self.forwarded
        return (NATIVE_RATE * NATIVE_CPU if plain else PYTHON_RATE * PYTHON_CPU) / self.message_cpu

    @property
    def lane_rate(self) -> float:
        """Messages/s of one lane."""
        return self.worker_rate * min(LANE_RATE / NATIVE_RATE, 1)

    @property
    def ring_bytes(self) -> float:
        """Memory of all IDs; 0 = the index is in RocksDB."""
        return self.ids * (ID if self.native else PYTHON_ID) if self.resident_ids else 0

    def memory(self, lanes: float) -> float:
        """Return the memory of a worker with full buffers and empty rings."""
        return PROCESS + BUFFERS * self.buffer_bytes + lanes * LANE

    def share(self, even: float) -> float:
        """Return a share of all messages: the largest group, plus an even share of the others."""
        return self.largest_group + (1 - self.largest_group) * even

    def worker_share(self, workers: int) -> float:
        """Return the share of the busiest of ``workers`` workers."""
        return self.share(min(UNEVEN / workers, 1.0))


@dataclass(frozen=True, slots=True)
class Plan:
    """Resources in bytes, seconds and cores. Workers and brokers are totals, including replicas."""

    partitions: int
    one_lane_limit: str  # reason why one lane cannot carry the load; empty = it can
    lanes: int  # lanes of a worker while one worker is away
    lanes_by: str
    id_cache_size: int
    workers: int
    lane_share: float
    worker_share: float
    worker_cpu: float
    stretched: bool  # whether transactions of many quiet lanes become fewer and larger
    catch_up_cpu: float
    worker_memory: float
    worker_disk: float
    broker_cpu: float
    broker_catch_up_cpu: float
    broker_in: float  # bytes/s while workers catch up; the same for broker_out
    broker_out: float
    broker_disk: float
    changelog: float
    killed_s: float
    restart_s: float
    empty_s: float
    catch_up_s: float


def partitions_by(demand: Demand) -> dict[str, int]:
    """Return the number of partitions that lanes need, by reason."""
    room = LOAD_MAX * demand.lane_rate - demand.largest_group * demand.peak_rate
    ids_max = min(demand.resident_ids or MAX_ID_CACHE_SIZE, MAX_ID_CACHE_SIZE)
    return {
        "IDs of a lane (app.resident_ids_max)": max(math.ceil(demand.ids / ids_max), 1),
        "messages of a lane": math.ceil((1 - demand.largest_group) * demand.peak_rate / room),
    }


def one_lane_limit(demand: Demand) -> str:
    """Return why ``lanes = 1`` cannot carry the load; empty = it can."""
    if demand.peak_rate > LOAD_MAX * demand.lane_rate:
        return f"a lane judges {LOAD_MAX * demand.lane_rate:,.0f} messages/s, in one thread of one worker"
    if max(partitions_by(demand).values()) > 1:
        return f"a lane has at most {demand.resident_ids or MAX_ID_CACHE_SIZE:,} IDs (app.resident_ids_max)"
    if demand.memory(1) + demand.ring_bytes > MEMORY_MAX * demand.worker_memory:
        return "one worker has all IDs in memory: raise --worker-memory"
    return ""


def nice(least: int) -> int:
    """Return the next power of two, or three times one, since `topics grow` can multiply it."""
    power = 1 << (least - 1).bit_length()
    return power * 3 // 4 if power >= LANES_A_WORKER and power * 3 // 4 >= least else power


def workers_needed(demand: Demand) -> int:
    """Return the number of workers without the spare one. Raises ConfigurationError if no number suffices."""
    room, least = MEMORY_MAX * demand.worker_memory, demand.memory(LANES_A_WORKER)
    if least >= room:
        raise ConfigurationError(
            f"a worker needs {math.ceil(least / MEMORY_MAX / MIB):,} MiB before it remembers an ID, and may have "
            f"{demand.worker_memory / MIB:,.0f}: raise --worker-memory, or lower app.buffer_bytes_max"
        )
    largest, lane_max = demand.largest_group * demand.peak_rate, LOAD_MAX * demand.lane_rate
    if largest >= lane_max:
        raise ConfigurationError(
            f"the largest group has {largest:,.0f} messages/s while workers catch up, all in one lane, and a lane takes "
            f"{lane_max:,.0f}: more partitions do not help; divide the group, or give more time with --catch-up"
        )
    lanes = nice(max(partitions_by(demand).values()))

    def enough(needed: int) -> bool:
        share = demand.worker_share(needed)
        memory = share * demand.ring_bytes + demand.memory(max(lanes / needed, LANES_A_WORKER))
        return share * demand.peak_rate <= LOAD_MAX * demand.worker_rate and memory <= room

    found = bisect_left(range(1, WORKERS_MAX + 1), True, key=enough)
    if found == WORKERS_MAX:
        raise ConfigurationError(
            f"{demand.peak_rate:,.0f} messages/s and {demand.ids:,.0f} IDs need more than {WORKERS_MAX:,} workers of this "
            "size: raise --worker-memory, or divide the load among several clusters"
        )
    return found + 1


def plan(demand: Demand) -> Plan:
    """Return the smallest plan. Raises ConfigurationError if no number of workers suffices."""
    needed = workers_needed(demand)
    by = {"workers": max(LANES_A_WORKER * needed, needed + SPARE), **partitions_by(demand)}
    lanes_by = max(by, key=lambda reason: by[reason])
    partitions = nice(by[lanes_by])
    if partitions > MAX_PARTITIONS:
        raise ConfigurationError(
            f"{demand.ids:,.0f} IDs need {counted(partitions, 'partition')}, and an address has at most {MAX_PARTITIONS:,}: "
            "remember fewer, or spread them over several addresses"
        )
    lanes, share = math.ceil(partitions / needed), demand.worker_share(needed)
    wanted = min(partitions * LANE_TRANSACTIONS, demand.rate)
    transactions = min(wanted, needed * TRANSACTIONS_MAX / TRANSACTION_CPU)
    ids = demand.ids * share
    moved = min(math.ceil(math.ceil(partitions / (needed + SPARE)) / needed) / partitions, 1) * demand.ids
    record, accepted = demand.size + RECORD, demand.size + RECORD + SOURCE
    forwarded = accepted * demand.forwarded
    written = demand.rate * record + demand.peak_rate * (accepted + forwarded + CHANGELOG_ID)
    read = demand.peak_rate * (record + forwarded + accepted * demand.readers)
    changelog = (demand.ids * CHANGELOG_ID / (1 - DIRTY) + partitions * SEGMENT) * demand.replicas
    kept = demand.rate * (demand.outage_s + demand.recovery_s) * (record + accepted + forwarded)

    def worker_cpu(rate: float) -> float:
        return min(rate * demand.message_cpu + transactions * TRANSACTION_CPU, float(needed))

    def broker_cpu(rate: float) -> float:
        message = BROKER_CPU + max(demand.size - SIZE, 0) * BROKER_BYTE_CPU
        first = rate * (1 + demand.forwarded) * message + transactions * BROKER_TRANSACTION_CPU
        return first * (1 + (demand.replicas - 1) * COPY_CPU)

    return Plan(
        partitions=partitions, one_lane_limit=one_lane_limit(demand), lanes=lanes, lanes_by=lanes_by, workers=needed + SPARE,
        id_cache_size=math.ceil(math.ceil(demand.ids) / partitions),
        lane_share=demand.share(1 / partitions), worker_share=share, stretched=transactions < wanted,
        worker_cpu=worker_cpu(demand.rate), catch_up_cpu=worker_cpu(demand.peak_rate),
        worker_memory=demand.memory(lanes) + share * demand.ring_bytes,
        worker_disk=ids * DISK_ID * DISK_TIMES + DISK_BESIDE,
        broker_cpu=broker_cpu(demand.rate), broker_catch_up_cpu=broker_cpu(demand.peak_rate),
        broker_in=written * demand.replicas, broker_out=written * (demand.replicas - 1) + read,
        broker_disk=kept * demand.replicas + changelog, changelog=changelog,
        killed_s=demand.session_s + TAKEOVER_S + moved / RESTORE_RATE,
        restart_s=ids / (RESTORE_RATE if demand.outage_s > STALE_S else REOPEN_RATE),
        empty_s=ids / RESTORE_RATE, catch_up_s=demand.recovery_s,
    )  # fmt: skip


class Limit(NamedTuple):
    """Resource, multiple of the load that it supports, and remedy."""

    what: str
    times: float
    do: str


def limits(demand: Demand, found: Plan) -> list[Limit]:
    """Return all limits, the nearest first, if rate and IDs grow together on the same machines."""
    rings = found.worker_share * demand.ring_bytes
    room = demand.worker_memory - demand.memory(found.lanes)
    network = demand.broker_network * demand.brokers / max(found.broker_in, found.broker_out)
    worker, lane = found.worker_share * demand.peak_rate, found.lane_share * demand.peak_rate
    cores = demand.broker_cores * demand.brokers
    more_lanes = "more partitions (`ringfence topics grow`)"
    result = (
        Limit("the thread of the busiest worker, while it catches up", demand.worker_rate / worker, "more workers; they need partitions"),
        Limit("the busiest lane", demand.lane_rate / lane, "divide the largest group" if demand.largest_group else more_lanes),
        Limit("memory of the busiest worker", room / rings if rings else math.inf, "more workers, fewer IDs, or more memory for each"),
        Limit("the network of a broker", network, "more brokers; or compression at the producers"),
        Limit("CPU of the brokers", cores / found.broker_catch_up_cpu, "more brokers, or fewer lanes"),
    )  # fmt: skip
    return sorted((limit for limit in result if limit.times < math.inf), key=lambda limit: limit.times)

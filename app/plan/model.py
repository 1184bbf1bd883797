"""From a demand to a plan: what is needed, reckoned from what was measured. Pure.

Each quantity grows with the demand, or stays: who asks for more never gets less.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

from app.plan import measured
from app.plan.demand import Demand
from app.verbs.topic_rules import CHANGELOG_CONFIG
from ringfence_kafka.config.addresses import MAX_ID_CACHE_SIZE, MAX_PARTITIONS
from ringfence_kafka.errors import ConfigurationError

LOAD_MAX: Final = 0.7
"""Of what a worker was measured to do. A choice: the rest is for hours that are busier, and for machines that are slower."""
MEMORY_MAX: Final = 0.85
"""Of what a worker may have. A choice: sizes are those of IDs of 32 bytes, and what allocators leave unused differs."""
LANES_A_WORKER: Final = 4
"""As measured; and more lanes than workers can be shared out evenly."""
UNEVEN: Final = 1.25
"""At most so much more than its part has a worker where each has at least :data:`LANES_A_WORKER` lanes."""
SPARE: Final = 1
"""Workers more than are needed: one may be away."""
DISK_TIMES: Final = 2
"""Of what files have at rest: while RocksDB compacts, old and new ones are there."""
DISK_BESIDE: Final = 2 * 32 * 2**20
"""What all stores of a worker have not written to files yet, and its logs."""
WORKERS_MAX: Final = MAX_PARTITIONS // LANES_A_WORKER
STALE_S: Final = int(CHANGELOG_CONFIG["delete.retention.ms"]) / 2000
"""An older RocksDB is not used."""
_DIRTY: Final = float(CHANGELOG_CONFIG["min.cleanable.dirty.ratio"])
_SEGMENT: Final = int(CHANGELOG_CONFIG["segment.bytes"])


@dataclass(frozen=True, slots=True)
class Plan:
    """What is needed. Bytes, seconds, and CPU seconds a second, which are cores."""

    partitions: int
    lanes: int
    """Of a worker, while one is away."""
    lanes_by: str
    """What asks for so many partitions."""
    id_cache_size: int
    """Of each lane."""
    workers: int
    """With one that may be away."""
    lane_share: float
    """Of all messages, in the busiest lane."""
    worker_share: float
    """Of all messages, with the busiest worker while one is away."""
    worker_cpu: float
    """Cores, all workers together, at the steady rate."""
    stretched: bool
    """Transactions of quiet lanes would take more than there is: they are fewer and larger, and messages wait longer."""
    catch_up_cpu: float
    """The same while they catch up."""
    worker_memory: float
    worker_disk: float
    broker_cpu: float
    """Cores, all brokers together, at the steady rate, copies included."""
    broker_catch_up_cpu: float
    """The same while workers catch up."""
    broker_in: float
    """Bytes/s that all brokers together receive, replication included, while workers catch up."""
    broker_out: float
    broker_disk: float
    """All brokers together."""
    changelog: float
    """The part of it that rings take."""
    killed_s: float
    """A worker is killed: until its lanes go on."""
    restart_s: float
    """All workers start with their disks: until the last lane is open."""
    empty_s: float
    """The same with empty disks."""
    catch_up_s: float
    """Until the backlog of the outage is worked off."""


def plan(demand: Demand) -> Plan:
    """The smallest that does it.

    Raises:
        ConfigurationError: no number of workers does.
    """
    needed = _needed(demand)
    workers = needed + SPARE
    lanes_by, least = max(_least(demand, needed).items(), key=lambda each: each[1])
    partitions = nice(least)
    if partitions > MAX_PARTITIONS:
        raise ConfigurationError(
            f"{demand.ids:,.0f} IDs need {partitions:,} partitions, and an address has at most {MAX_PARTITIONS:,}: "
            "remember fewer, or spread them over several addresses"
        )
    lanes = math.ceil(partitions / needed)
    share = worker_share(demand, needed)
    transactions = _transactions(demand, partitions, needed)
    received, sent = _traffic(demand, demand.peak_rate)
    changelog = _changelog(demand, partitions)
    ids_there = demand.ids * share
    return Plan(
        partitions=partitions,
        lanes=lanes,
        lanes_by=lanes_by,
        id_cache_size=math.ceil(math.ceil(demand.ids) / partitions),
        workers=workers,
        lane_share=lane_share(demand, partitions),
        worker_share=share,
        worker_cpu=_worker_cpu(demand, demand.rate, transactions, needed),
        stretched=transactions < _wanted(demand, partitions),
        catch_up_cpu=_worker_cpu(demand, demand.peak_rate, transactions, needed),
        worker_memory=base_memory(demand) + lanes * measured.LANE.value + ids_there * id_bytes(demand),
        worker_disk=ids_there * measured.DISK_ID.value * DISK_TIMES + DISK_BESIDE,
        broker_cpu=_broker_cpu(demand, demand.rate, transactions),
        broker_catch_up_cpu=_broker_cpu(demand, demand.peak_rate, transactions),
        broker_in=received,
        broker_out=sent,
        broker_disk=_disk(demand) + changelog,
        changelog=changelog,
        killed_s=demand.session_s
        + measured.TAKEOVER.value
        + _moved(demand, partitions, needed) / measured.RESTORE_RATE.value,
        restart_s=ids_there
        / (measured.RESTORE_RATE if demand.outage_s > STALE_S else measured.REOPEN_RATE).value,
        empty_s=ids_there / measured.RESTORE_RATE.value,
        catch_up_s=demand.kept_s - demand.outage_s,
    )


def _transactions(demand: Demand, partitions: int, needed: int) -> float:
    """A second, of all lanes: as often as brokers are asked, or as often as workers let themselves.

    Where they do not, transactions become fewer and larger, and messages wait longer; nothing else.
    """
    most = needed * measured.TRANSACTIONS_MAX.value / measured.TRANSACTION_CPU.value
    return min(_wanted(demand, partitions), most)


def _wanted(demand: Demand, partitions: int) -> float:
    """The same, if lanes were few."""
    return min(partitions * measured.TRANSACTIONS_A_LANE.value, demand.rate)


def _worker_cpu(demand: Demand, rate: float, transactions: float, needed: int) -> float:
    """Cores; a worker has no use for more than one."""
    wanted = rate * message_cpu(demand) + transactions * measured.TRANSACTION_CPU.value
    return min(wanted, float(needed))


def _broker_cpu(demand: Demand, rate: float, transactions: float) -> float:
    more = max(demand.size - measured.SIZE_MEASURED, 0) * measured.BROKER_BYTE_CPU.value
    messages = rate * (1 + demand.forwarded) * (measured.BROKER_CPU.value + more) / 1e6
    copies = 1 + (demand.replicas - 1) * measured.COPY.value
    return (messages + transactions * measured.BROKER_TRANSACTION_CPU.value) * copies


def _needed(demand: Demand) -> int:
    """Workers without the spare one.

    Raises:
        ConfigurationError: no number does it.
    """
    room = MEMORY_MAX * demand.worker_memory - base_memory(demand) - LANES_A_WORKER * measured.LANE.value
    if room <= 0:
        least = math.ceil((MEMORY_MAX * demand.worker_memory - room) / MEMORY_MAX / 2**20)
        raise ConfigurationError(
            f"a worker needs {least:,} MiB before it remembers anything, and may have {demand.worker_memory / 2**20:,.0f}: "
            "raise --worker-memory, or lower app.buffer_bytes_max"
        )
    rate, lane = LOAD_MAX * worker_rate(demand), LOAD_MAX * lane_rate(demand)
    if demand.largest_group * demand.peak_rate >= lane:
        raise ConfigurationError(
            f"the largest group has {demand.largest_group * demand.peak_rate:,.0f} messages/s while workers catch up, all in one "
            f"lane, and {lane:,.0f} is what is to be asked of one: no number of partitions helps; divide the group, or "
            "give more time with --catch-up"
        )

    def enough(needed: int) -> bool:
        return worker_share(demand, needed) * demand.peak_rate <= rate and _ids_memory(demand, needed) <= room

    found = bisect_left(range(1, WORKERS_MAX + 1), True, key=enough)
    if found == WORKERS_MAX:
        raise ConfigurationError(
            f"{demand.peak_rate:,.0f} messages/s and {demand.ids:,.0f} IDs need more than {WORKERS_MAX:,} workers of this size: "
            "raise --worker-memory, or divide the load among several clusters"
        )
    return found + 1


def _ids_memory(demand: Demand, needed: int) -> float:
    """Rings of the lanes that a worker has, and of what it has beyond its first lanes."""
    lanes = max(nice(max(_by_ids(demand), _by_rate(demand))) / needed - LANES_A_WORKER, 0)
    return worker_share(demand, needed) * demand.ids * id_bytes(demand) + lanes * measured.LANE.value


def _least(demand: Demand, needed: int) -> dict[str, int]:
    """Partitions, by what asks for them."""
    return {
        "workers": max(LANES_A_WORKER * needed, needed + SPARE),
        "IDs of a lane (app.resident_ids_max)": _by_ids(demand),
        "messages of a lane": _by_rate(demand),
    }


def _by_ids(demand: Demand) -> int:
    return max(math.ceil(demand.ids / min(demand.resident_ids or MAX_ID_CACHE_SIZE, MAX_ID_CACHE_SIZE)), 1)


def _by_rate(demand: Demand) -> int:
    room = LOAD_MAX * lane_rate(demand) - demand.largest_group * demand.peak_rate
    return math.ceil((1 - demand.largest_group) * demand.peak_rate / room)


def id_bytes(demand: Demand) -> float:
    """Memory of an ID; none where the index is in RocksDB."""
    each = measured.ID if demand.native else measured.PYTHON_ID
    return each.value if demand.resident_ids else 0.0


def worker_share(demand: Demand, needed: int) -> float:
    """Of all messages, what the busiest of so many workers has at most: lanes are not shared out evenly, and groups differ."""
    even = min(UNEVEN / needed, 1.0)
    return demand.largest_group + (1 - demand.largest_group) * even


def lane_share(demand: Demand, partitions: int) -> float:
    """Of all messages, what the busiest lane has."""
    return demand.largest_group + (1 - demand.largest_group) / partitions


def message_cpu(demand: Demand) -> float:
    """CPU seconds of workers for a message, without its transaction."""
    plain = demand.native and not demand.forwarded
    each = (measured.NATIVE_CPU if plain else measured.PYTHON_CPU).value / 1e6
    more = max(demand.size - measured.SIZE_MEASURED, 0) * measured.BYTE_CPU.value / 1e6
    return (each + more) * (1 + demand.forwarded * measured.FORWARDED.value)


def worker_rate(demand: Demand) -> float:
    """Messages/s that one worker was measured to do; as much less as a message takes more CPU than a measured one."""
    plain = demand.native and not demand.forwarded
    rate, cpu = (
        (measured.NATIVE_RATE, measured.NATIVE_CPU) if plain else (measured.PYTHON_RATE, measured.PYTHON_CPU)
    )
    return rate.value * cpu.value / 1e6 / message_cpu(demand)


def lane_rate(demand: Demand) -> float:
    """The same of one lane."""
    return min(
        measured.LANE_RATE.value * worker_rate(demand) / measured.NATIVE_RATE.value, worker_rate(demand)
    )


def base_memory(demand: Demand) -> float:
    """Of a worker without lanes, and all that it may have under way."""
    return measured.PROCESS.value + measured.BUFFER_FACTOR.value * demand.buffer_bytes


def _moved(demand: Demand, partitions: int, needed: int) -> float:
    """IDs that one survivor restores when a worker is gone."""
    lanes = math.ceil(math.ceil(partitions / (needed + SPARE)) / needed)
    return min(lanes * demand.ids / partitions, demand.ids)


def _traffic(demand: Demand, rate: float) -> tuple[float, float]:
    """Bytes/s that all brokers receive and send, where workers work at this rate; nothing is compressed."""
    arrived, accepted = _input_record(demand), _accepted_record(demand)
    forwarded = accepted * demand.forwarded
    changelog = measured.CHANGELOG_ID.value
    written = demand.rate * arrived + rate * (accepted + forwarded + changelog)
    received = written * demand.replicas
    sent = written * (demand.replicas - 1) + rate * (arrived + forwarded + accepted * demand.readers)
    return received, sent


def _input_record(demand: Demand) -> float:
    return demand.size + measured.RECORD.value


def _accepted_record(demand: Demand) -> float:
    return _input_record(demand) + measured.SOURCE.value


def _disk(demand: Demand) -> float:
    """Of input, accepted and forward topics: no message is deleted before the outage is over and worked off."""
    accepted = _accepted_record(demand)
    each = _input_record(demand) + accepted * (1 + demand.forwarded)
    return demand.rate * demand.kept_s * each * demand.replicas


def _changelog(demand: Demand, partitions: int) -> float:
    """What is alive, what compaction has not reached, and the segment that it never touches."""
    alive = demand.ids * measured.CHANGELOG_ID.value
    return (alive / (1 - _DIRTY) + partitions * _SEGMENT) * demand.replicas


def nice(least: int) -> int:
    """The next power of two, or three times one: numbers that `topics grow` can multiply."""
    power = 1 << (least - 1).bit_length()
    return power * 3 // 4 if power >= 4 and power * 3 // 4 >= least else power  # noqa: PLR2004 - 3 is the first such

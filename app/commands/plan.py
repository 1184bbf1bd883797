"""The command ``plan``: resources for a load, from measured figures, without a broker."""

import json
import math
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import Any, Final

import click

from app.commands.options import Quantity
from ringfence_kafka.config.addresses import MAX_ID_CACHE_SIZE, MAX_PARTITIONS
from ringfence_kafka.config.settings import AppSettings
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.page.formats import age
from ringfence_kafka.process.command_line import (
    NumberRange,
    config_option,
    refuse_connection,
    settings_if_any,
)
from ringfence_kafka.wording import counted

MIB: Final = 2**20
# Measured on one machine with the native core: bench/measurements.md. Update a figure after a new measurement.
RATE, LANE_RATE, CPU = 272_528, 80_382, 2.29e-6  # messages/s of a worker, with one lane; CPU s/message
SIZE: Final = 154  # bytes of these messages: a 100-byte value with key, ID and the ID's header
BYTE_CPU, BROKER_BYTE_CPU = 0.0058e-6, 0.0077e-6  # CPU s/message for each byte above SIZE
TRANSACTION_CPU, BROKER_TRANSACTION_CPU = 0.0014, 0.0017  # CPU s/transaction of any size
LANE_TRANSACTIONS: Final = 39.1  # transactions/s of a busy lane, with app.latency_target_ms = 20
TRANSACTIONS_MAX: Final = 0.5 / TRANSACTION_CPU  # half a core of a worker: app/worker/fetch/fetch_interval.py
BROKER_CPU, COPY_CPU = 2.78e-6, 2.6  # CPU s/message of the first copy; of each further one as its multiple
PROCESS, LANE, BUFFERS = 82 * MIB, 1.4 * MIB, 2.0  # bytes; bytes; multiple of app.buffer_bytes_max
ID, DISK_ID, CHANGELOG_ID = 64, 51, 89.2  # bytes of a 32-byte ID in memory, in RocksDB, in the changelog
RECORD, SOURCE = 12, 22  # bytes of a record beside its message, and bytes that acceptance adds
RESTORE_RATE, REOPEN_RATE = 294_468, 763_759  # IDs/s of a worker, from the changelog and from RocksDB
TAKEOVER_S: Final = 0.91  # after a killed worker, beside session time-out and restore
# Choices, and settings of the product.
LOAD_MAX, MEMORY_MAX, SPARE = 0.7, 0.85, 1  # share of the measured rate and of --worker-memory; spare workers
LANES_A_WORKER, UNEVEN = 4, 1.25  # with 4 lanes or more, the busiest worker has at most 1.25 times the mean
DISK_TIMES, DISK_BESIDE = 2, 64 * MIB  # factor of RocksDB while it compacts; its unwritten data
STALE_S, DIRTY, SEGMENT = 12 * 3600, 0.3, 64 * MIB  # from the configuration of changelog topics


@dataclass(kw_only=True)
class Plan:
    """Smallest plan for a load; raises ConfigurationError if no number suffices. Units: messages/s, bytes, seconds, cores."""

    rate: float
    size: float
    ids: float  # in all lanes together
    outage_s: float
    catch_up_s: float | None
    largest_group: float  # share of all messages
    replicas: int
    broker_cores: float
    broker_network: float
    worker_memory_max: float
    app: InitVar[AppSettings]

    def __post_init__(self, app: AppSettings) -> None:
        self.recovery_s = self.outage_s and (self.catch_up_s or self.outage_s)
        self.peak_rate = self.rate * (1 + self.outage_s / (self.recovery_s or 1))
        self.worker_rate = RATE * CPU / (CPU + max(self.size - SIZE, 0) * BYTE_CPU)
        self.lane_rate = self.worker_rate * (LANE_RATE / RATE)
        self.base_memory = PROCESS + BUFFERS * app.buffer_bytes_max
        self.ring_memory = self.ids * ID if app.resident_ids_max else 0  # 0 = the index is in RocksDB
        self._divide(min(app.resident_ids_max or MAX_ID_CACHE_SIZE, MAX_ID_CACHE_SIZE))
        needed = self.workers - SPARE
        self.worker_share = self.share(UNEVEN / needed)
        rings = self.worker_share * self.ring_memory
        self.worker_memory = self.base_memory + self.lanes * LANE + rings
        ids = self.ids * self.worker_share
        self.worker_disk = ids * DISK_ID * DISK_TIMES + DISK_BESIDE
        transactions = min(self.partitions * LANE_TRANSACTIONS, self.rate, needed * TRANSACTIONS_MAX)
        copies_cpu = 1 + (self.replicas - 1) * COPY_CPU
        message_cpu = (BROKER_CPU + max(self.size - SIZE, 0) * BROKER_BYTE_CPU) * copies_cpu
        other_cpu = transactions * BROKER_TRANSACTION_CPU * copies_cpu
        self.broker_cpu = self.rate * message_cpu + other_cpu
        self.broker_catch_up_cpu = self.peak_rate * message_cpu + other_cpu
        record, accepted = self.size + RECORD, self.size + RECORD + SOURCE
        written = self.rate * record + self.peak_rate * (accepted + CHANGELOG_ID)
        self.broker_in = written * self.replicas  # bytes/s while workers catch up, as broker_out
        self.broker_out = written * (self.replicas - 1) + self.peak_rate * (record + accepted)
        kept = self.rate * (self.outage_s + self.recovery_s) * (record + accepted)
        changelog = self.ids * CHANGELOG_ID / (1 - DIRTY) + self.partitions * SEGMENT
        self.broker_disk = (kept + changelog) * self.replicas

        moved = math.ceil(math.ceil(self.partitions / self.workers) / needed) / self.partitions * self.ids
        self.killed_s = app.session_timeout + TAKEOVER_S + moved / RESTORE_RATE
        self.restart_s = ids / (RESTORE_RATE if self.outage_s > STALE_S else REOPEN_RATE)
        self.empty_s = ids / RESTORE_RATE
        self.limits: list[dict[str, Any]] = sorted((
            {"what": "the thread of the busiest worker", "times": self.worker_rate / (self.worker_share * self.peak_rate), "do": "more workers; they need partitions"},
            {"what": "the busiest lane", "times": self.lane_rate / (self.share(1 / self.partitions) * self.peak_rate), "do": "more partitions (`ringfence topics grow`), or a smaller largest group"},
            {"what": "memory of the busiest worker", "times": 1 + (self.worker_memory_max - self.worker_memory) / max(rings, 1), "do": "more workers, fewer IDs, or more memory for each"},
            {"what": "the network of the brokers", "times": self.broker_network / max(self.broker_in, self.broker_out), "do": "more brokers; or compression at the producers"},
            {"what": "CPU of the brokers", "times": self.broker_cores / self.broker_catch_up_cpu, "do": "more brokers, or fewer lanes"},
        ), key=lambda limit: limit["times"])  # fmt: skip

    def share(self, even: float) -> float:
        """Return a share of all messages: the largest group, plus an even share of the others."""
        return self.largest_group + (1 - self.largest_group) * min(even, 1)

    def _divide(self, lane_ids_max: int) -> None:
        """Set workers, partitions and lanes of a worker while one is away."""
        room, lane_max = MEMORY_MAX * self.worker_memory_max, LOAD_MAX * self.lane_rate
        if (least := self.base_memory + LANES_A_WORKER * LANE) >= room:
            raise ConfigurationError(
                f"a worker needs {math.ceil(least / MEMORY_MAX / MIB):,} MiB before it remembers an ID, and may have "
                f"{self.worker_memory_max / MIB:,.0f}: raise --worker-memory, or lower app.buffer_bytes_max"
            )
        if (largest := self.largest_group * self.peak_rate) >= lane_max:
            raise ConfigurationError(
                f"the largest group has {largest:,.0f} messages/s while workers catch up, all in one lane, and a lane takes "
                f"{lane_max:,.0f}: more partitions do not help; divide the group, or give more time with --catch-up"
            )
        lanes_for_ids = max(math.ceil(self.ids / lane_ids_max), 1)
        lanes = nice(max(lanes_for_ids, math.ceil((self.peak_rate - largest) / (lane_max - largest))))

        def enough(needed: int) -> bool:
            share = self.share(UNEVEN / needed)
            memory = self.base_memory + max(lanes / needed, LANES_A_WORKER) * LANE + share * self.ring_memory
            return share * self.peak_rate <= LOAD_MAX * self.worker_rate and memory <= room

        needed = next((number for number in range(1, MAX_PARTITIONS) if enough(number)), MAX_PARTITIONS)
        self.workers = needed + SPARE
        self.partitions = nice(max(LANES_A_WORKER * needed, lanes))
        if self.partitions > MAX_PARTITIONS:
            raise ConfigurationError(
                f"{self.peak_rate:,.0f} messages/s and {self.ids:,.0f} IDs need more than {MAX_PARTITIONS:,} partitions, "
                "and an address has no more: raise --worker-memory, or divide the load among several addresses"
            )
        self.lanes = math.ceil(self.partitions / needed)
        self.id_cache_size = math.ceil(math.ceil(self.ids) / self.partitions)
        one_lane_limits = (
            (self.peak_rate > lane_max, f"a lane judges {lane_max:,.0f} messages/s, in one thread of one worker"),
            (lanes_for_ids > 1, f"a lane has at most {lane_ids_max:,} IDs (app.resident_ids_max)"),
            (self.base_memory + LANE + self.ring_memory > room, "one worker has all IDs in memory: raise --worker-memory"),
        )  # fmt: skip
        self.one_lane_limit = next((limit for exceeded, limit in one_lane_limits if exceeded), "")


def nice(least: int) -> int:
    """Return the next power of two, or three times one, since `topics grow` can multiply it."""
    power = 1 << (least - 1).bit_length()
    return power * 3 // 4 if power * 3 // 4 >= least else power


def sized(value: float) -> str:
    """Return bytes in the largest unit with a value of 1 or more."""
    power = min(int(math.log2(max(value, 1))) // 10, 4)
    return (
        f"{value / 1024**power:.{int(value < 10 * 1024**power)}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
    )


@click.command(params=[
    click.Option(["--rate"], type=Quantity("NUMBER", zero=False), required=True, help="Messages/s in the busiest minutes: 500, 5k, 1.5M."),
    click.Option(["--size"], type=Quantity("SIZE", zero=False), default="100B", show_default=True, help="Bytes of a message: key, value, headers."),
    click.Option(["--ids"], type=Quantity("NUMBER"), help="IDs to remember, all lanes together: 80k, 100M."),
    click.Option(["--resends-within", "within"], type=Quantity("TIME"), help="Instead of --ids: all IDs of that time, such as 30m, 2h, 7d."),
    click.Option(["--outage", "outage_s"], type=Quantity("TIME"), default="1h", show_default=True, help="How long workers or consumers may be away."),
    click.Option(["--catch-up", "catch_up_s"], type=Quantity("TIME", zero=False), help="Time for workers to catch up afterwards; the length of the outage without it."),
    click.Option(["--largest-group"], type=NumberRange(0, 1), default=0.0, help="Share of all messages that the largest group has, 0 to 1."),
    click.Option(["--replicas"], type=click.IntRange(1), default=3, show_default=True, help="Copies of each topic."),
    click.Option(["--broker-cores"], type=NumberRange(0, 1_000_000, min_open=True), default=24.0, show_default=True, help="Cores of all brokers together."),
    click.Option(["--broker-network"], type=Quantity("SIZE", zero=False), default="3750MB", show_default=True, help="Bytes a second of all brokers together, in each direction."),
    click.Option(["--worker-memory", "worker_memory_max"], type=Quantity("SIZE"), default="2GiB", show_default=True, help="Memory of each worker, at most."),
    click.Option(["--json", "as_json"], is_flag=True, help="One JSON document for programs; bytes, seconds, cores."),
])  # fmt: skip
@config_option
def plan(config: Path, as_json: bool, ids: float | None, within: float | None, **given: Any) -> int:
    """Calculate partitions, workers, memory, disk, traffic of brokers and restore times for a load.

    It asks no broker. It calculates from measured figures (docs/sizing.md has the rules), and names the nearest limit.
    Exit code 1: the brokers cannot carry the load; 2: no number of workers can. Without --ids and --resends-within: the
    IDs of the configuration's addresses.
    """
    refuse_connection("plan", "which asks no broker")
    settings = settings_if_any(config)
    if ids is not None and within is not None:
        raise click.UsageError("--ids and --resends-within: choose one")
    if within is not None:
        ids = given["rate"] * within
    elif ids is None and settings.addresses:
        ids = float(sum((each.lanes or each.partitions) * each.ring_capacity for each in settings.addresses))
    if ids is None:
        raise click.UsageError(f"no IDs: give --ids 10M or --resends-within 2h; {config} has no addresses")
    found = Plan(ids=ids, app=settings.app, **given)
    if as_json:
        click.echo(json.dumps(vars(found), indent=2))
    else:
        show(found)
    return 1 if found.limits[0]["times"] < 1 else 0


def show(found: Plan) -> None:
    """Print the table, and the nearest limit or all exceeded ones."""
    from rich.table import Table

    from conf.terminal import print_table

    table = Table("", "needed", "because")
    for row in (
        ("partitions", f"{found.partitions:,}", f"{found.lanes} lanes a worker while one is away"),
        ("lanes = 1 is enough", "no" if found.one_lane_limit else "yes", found.one_lane_limit or "one ring knows all IDs of the address"),
        ("id_cache_size", f"{found.id_cache_size:,}", f"{found.ids:,.0f} IDs in all lanes together"),
        ("workers", f"{found.workers:,}", f"one of them may be away; {found.peak_rate:,.0f} messages/s while they catch up"),
        ("memory of a worker", sized(found.worker_memory), f"{100 * found.worker_share:.3g} % of the IDs, while one is away"),
        ("disk of a worker", sized(found.worker_disk), "a cache: it may be lost"),
        ("CPU of all brokers, cores", f"{found.broker_cpu:.1f}", f"{found.broker_catch_up_cpu:.1f} while workers catch up, copies included"),
        ("brokers receive, /s", sized(found.broker_in), f"{counted(found.replicas, 'replica')}, nothing compressed, while workers catch up"),
        ("brokers send, /s", sized(found.broker_out), "to workers, replicas and 1 group of consumers"),
        ("disk of all brokers", sized(found.broker_disk), f"the changelog; input and accepted kept for {age(found.outage_s + found.recovery_s)}"),
        ("a worker is killed", age(found.killed_s), "app.session_timeout, then a restore"),
        ("all workers start", age(found.restart_s), f"with their disks; {age(found.empty_s)} with empty ones, or after {age(STALE_S)}"),
        ("after the outage", age(found.recovery_s), f"until {found.rate * found.outage_s:,.0f} messages are processed"),
    ):  # fmt: skip
        table.add_row(*row)
    print_table(table)
    for limit in [limit for limit in found.limits if limit["times"] < 1] or found.limits[:1]:
        verdict = "Does not fit" if limit["times"] < 1 else "Nearest limit"
        click.echo(
            f"{verdict}: {limit['what']} supports {limit['times']:,.2f} times this load: {limit['do']}."
        )

"""What a plan is reckoned from: figures that were measured, in one table, each with how. docs/sizing.md shows it.

A figure changes here when it is measured anew, and nowhere else.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Measured:
    """One figure."""

    value: float
    unit: str
    what: str
    how: str
    """The run that gave it, and what of several values it is."""


NATIVE_CPU: Final = Measured(
    2.29,
    "CPU s / million messages",
    "a worker, backlog of 100-byte values, native core",
    "`make bench`, median of two rounds, machine nearly at rest",
)
PYTHON_CPU: Final = Measured(
    9.03,
    "CPU s / million messages",
    "the same, path in Python",
    "the same run",
)
NATIVE_RATE: Final = Measured(
    272_528,
    "messages/s",
    "one worker, four lanes, native core",
    "the same run, the smaller of two rounds; one process, mostly one thread",
)
PYTHON_RATE: Final = Measured(
    93_693,
    "messages/s",
    "the same, path in Python",
    "the same run, the smaller of two rounds",
)
FORWARDED: Final = Measured(
    0.97,
    "times a message more",
    "CPU of a message that is forwarded",
    "`make bench`, `forwarded`: 11.90 CPU s against 6.93, with 74.1 % forwarded; the core leaves such batches to Python",
)
TRANSACTION_CPU: Final = Measured(
    0.0014,
    "CPU s",
    "a worker, for one transaction, whatever is in it",
    "`bench latency --target-ms 20`, 5,000/s in four lanes, what messages take taken away: the largest of four runs, 1.1 to 1.4 ms; in five requests "
    "instead of three it was 1.4 to 1.9",
)
TRANSACTIONS_A_LANE: Final = Measured(
    39.1,
    "transactions/s",
    "of a lane that always has something and is not behind, with app.latency_target_ms = 20",
    "the same runs: 32 messages a transaction",
)
TRANSACTIONS_MAX: Final = Measured(
    0.5,
    "cores",
    "of a worker's thread, for transactions of lanes that are not behind: where they would take more, they become fewer and larger",
    "so set, `app/worker/spacing.py`",
)
BROKER_CPU: Final = Measured(
    2.78,
    "CPU s / million messages",
    "the broker, for a worker's backlog, without replication",
    "`make bench`, median of two rounds",
)
BROKER_TRANSACTION_CPU: Final = Measured(
    0.0017,
    "CPU s",
    "the broker, for one transaction, without replication",
    "the same runs at 5,000/s: by how much 64 lanes, 198 transactions/s, took more than 4 lanes, 63; what the producer's and the reader's small "
    "requests took, 0.3 cores, is not in it",
)
COPY: Final = Measured(
    2.6,
    "times the first",
    "the brokers, for each further copy of what is written",
    "a backlog, three brokers with three copies beside one, all on one machine of two cores: 9.4 CPU s / million against 1.5, the most of "
    "four rounds, 6.6 against 1.3 the least; taken for small transactions, too, which took some 2.7",
)
PROCESS: Final = Measured(
    82 * 2**20,
    "bytes",
    "Python with all that a worker imports",
    "resident size of a process that has imported it",
)
LANE: Final = Measured(
    1.4 * 2**20,
    "bytes",
    "a lane without IDs",
    "a backlog whose output is refused: 64 lanes beside 4, less their rings",
)
BUFFER_FACTOR: Final = Measured(
    2.0,
    "times app.buffer_bytes_max",
    "what is under way, at most, beside the bound of what is counted",
    "backlogs: no peak is above, large messages and refused output included",
)
ID: Final = Measured(
    56,
    "bytes",
    "an ID of 32 bytes in memory, native core",
    "resident size of 64 full rings of 20,000; one of 1,000,000: 53",
)
PYTHON_ID: Final = Measured(
    188,
    "bytes",
    "the same, in Python",
    "the same",
)
RESTORE_RATE: Final = Measured(
    294_468,
    "IDs/s",
    "a ring read from its changelog, empty disk, native core",
    "`bench rings`, 10,000,000 IDs, the slowest of three, 294,468 to 467,594; 1,000,000: 339,880, the slowest of three; busy machine",
)
REOPEN_RATE: Final = Measured(
    763_759,
    "IDs/s",
    "a ring read from RocksDB, native core",
    "the same runs, the slowest; 1,000,000: 1,158,727",
)
TAKEOVER: Final = Measured(
    0.91,
    "s",
    "beside the session time-out and the restore, when a worker is killed",
    "`bench recovery`, the largest of five, small restores included",
)
CHANGELOG_ID: Final = Measured(
    80.1,
    "bytes",
    "a changelog record of an ID of 32 bytes",
    "400,000 messages through a worker; the broker's files",
)
DISK_ID: Final = Measured(
    41,
    "bytes",
    "an ID of 32 bytes in RocksDB, at rest",
    "the same run; the worker's files",
)
RECORD: Final = Measured(
    12,
    "bytes",
    "a record of an input, beside key, value and headers",
    "the same run; the broker's files",
)
SOURCE: Final = Measured(
    22,
    "bytes",
    "what an accepted record has more than the input's",
    "the same run; the topic's name is in it, and was short",
)
BYTE_CPU: Final = Measured(
    0.0058,
    "CPU s / million messages",
    "a worker, for each further byte of a message",
    "`bench latency --rate 0`, values of 10,000 bytes beside 100: the median of three, 5.0 to 6.5 a thousand; values of 1,000: 4.1; busy machine",
)
BROKER_BYTE_CPU: Final = Measured(
    0.0077,
    "CPU s / million messages",
    "the broker, for the same, without replication",
    "one of these runs",
)
LANE_RATE: Final = Measured(
    80_382,
    "messages/s",
    "a worker with one lane, native core",
    "`bench latency --rate 0 --partitions 1`, the median of three, 65,414 to 94,242; busy machine, on which four lanes did 143,001 to 177,269",
)
SIZE_MEASURED: Final = 154
"""Bytes of a message of the runs with values of 100: key, ID and its header's name come to them."""
WORKERS_TRIED: Final = 2
RATE_TRIED: Final = 318_648
LANES_TRIED: Final = 1_000
IDS_TRIED: Final = 10_000_000
LANE_IDS_TRIED: Final = 10_000_000
SIZE_TRIED: Final = 10_000
REPLICAS_TRIED: Final = 3
BROKERS_TRIED: Final = 3
"""The most of each that was measured, in any run. Messages/s are one worker's."""


def table() -> list[Measured]:
    """All of them, in their order here."""
    return [each for each in globals().values() if isinstance(each, Measured)]

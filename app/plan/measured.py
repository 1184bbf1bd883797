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
    0.0020,
    "CPU s",
    "a worker, for one transaction, whatever is in it",
    "`bench latency`, 5,000/s in four lanes: 32.3 CPU s / million, less 2.29, at 67 messages a transaction",
)
TRANSACTIONS_A_LANE: Final = Measured(
    18.7,
    "transactions/s",
    "of a lane that always has something and is not behind",
    "the same run: 5,000/s in four lanes, 67 messages a transaction; brokers are asked each 50 ms",
)
BROKER_CPU: Final = Measured(
    2.78,
    "CPU s / million messages",
    "the broker, for a worker's backlog, without replication",
    "`make bench`, median of two rounds",
)
BROKER_TRANSACTION_CPU: Final = Measured(
    0.0062,
    "CPU s",
    "the broker, for one transaction, without replication",
    "`bench latency`: 96 CPU s / million, less 2.78, at 67 messages a transaction; small produce requests and fetches of that run are in it",
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
    "`bench backlog`, refused: 64 lanes beside 4, less their rings",
)
BUFFER_FACTOR: Final = Measured(
    2.0,
    "times app.buffer_bytes_max",
    "what is under way, at most, beside the bound of what is counted",
    "`bench backlog`: no peak of it is above, large messages and refused output included",
)
ID: Final = Measured(
    188,
    "bytes",
    "an ID of 32 bytes in memory",
    "resident size of 64 rings of 20,000",
)
RESTORE_RATE: Final = Measured(
    326_366,
    "IDs/s",
    "a ring read from its changelog, empty disk",
    "`bench recovery`, 1,000,000 IDs, the slowest of three",
)
REOPEN_RATE: Final = Measured(
    615_020,
    "IDs/s",
    "a ring read from RocksDB",
    "the same run, the slowest of three",
)
TAKEOVER: Final = Measured(
    0.91,
    "s",
    "beside the session time-out and the restore, when a worker is killed",
    "`bench recovery`, the largest of five, small restores included",
)
CHANGELOG_ID: Final = Measured(
    81,
    "bytes",
    "a changelog record of an ID of 32 bytes",
    "PLACEHOLDER",
)
DISK_ID: Final = Measured(
    100,
    "bytes",
    "an ID of 32 bytes in RocksDB",
    "PLACEHOLDER",
)
SIZE_MEASURED: Final = 150
"""Bytes of a message of those runs: a value of 100, a key, an ID and its header."""
BYTE_CPU: Final = Measured(0.002, "CPU s / million messages", "each further byte", "PLACEHOLDER")
LANE_RATE: Final = Measured(100_000, "messages/s", "one worker with one lane, native core", "PLACEHOLDER")
RECORD: Final = Measured(10, "bytes", "a record in a log", "PLACEHOLDER")
SOURCE: Final = Measured(36, "bytes", "what is added to an accepted record", "PLACEHOLDER")
WORKERS_TRIED: Final = 2
RATE_TRIED: Final = 318_648
LANES_TRIED: Final = 64
IDS_TRIED: Final = 4_000_000
SIZE_TRIED: Final = 10_000
REPLICAS_TRIED: Final = 1
BROKERS_TRIED: Final = 1

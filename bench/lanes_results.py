"""The shape and the figures of the benchmark of many lanes."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Shape:
    """How many lanes, and of how many addresses."""

    lanes: int = 1_000
    addresses: int = 10
    idle_s: float = 60.0

    @property
    def partitions(self) -> int:
        """Of each address."""
        return -(-self.lanes // self.addresses)

    @property
    def names(self) -> list[str]:
        """Of the addresses."""
        return [f"wide-{number}" for number in range(self.addresses)]


@dataclass(frozen=True, slots=True)
class Opened:
    """From the start of a process until it is ready."""

    seconds: float
    cpu_s: float
    broker_cpu_s: float
    rss_mib: float
    files: int
    """That it has open, sockets included."""


@dataclass(frozen=True, slots=True)
class Idle:
    """While nothing comes."""

    cpu_percent: float
    """Of one core."""
    broker_cpu_percent: float
    rss_mib: float


@dataclass(frozen=True, slots=True)
class Found:
    """Everything."""

    shape: Shape
    first: Opened
    """Nothing was there before but topics."""
    traffic_s: float
    """From the first message of a round until the group has committed the last."""
    idle: Idle
    stop_s: float
    """From SIGTERM to the end of the process."""
    again: Opened
    """On the disk that the first left, with IDs in each ring."""
    joined_s: float
    """From the start of a second worker until both are ready, each with its lanes."""
    left_s: float
    """From the second's SIGTERM until the first has all lanes again."""
    peak_rss_mib: float
    """Peak memory in the first worker's second life."""
    inexact: list[str]
    """Addresses whose output is not what it must be, a line each."""


def save(found: Found, path: Path) -> None:
    """As JSON."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(asdict(found), indent=1) + "\n")

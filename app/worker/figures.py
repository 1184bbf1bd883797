"""Figures of a worker for the charts of the page, read from its lanes every ten seconds."""

from collections.abc import Callable, Mapping
from typing import Final

from agents.lane.assignment import LaneKey
from agents.lane.lane import Lane
from agents.worker.lanes import Lanes
from app.worker.fetch.buffers import Buffers
from ringfence_kafka.page.history import Subject, rss

_JUDGED: Final = ("accepted", "duplicates", "unchecked", "quarantined")
TURNS: Final = 6
"""Number of samples in which each lane's covered time is read once, because the read may go to RocksDB."""


class WorkerFigures:
    """Figures of one worker, of its own lanes only."""

    def __init__(self, name: str, lanes: Lanes, buffers: Buffers) -> None:
        self._name = name
        self._lanes = lanes
        self._buffers = buffers
        self._turn = 0
        self._covered: dict[LaneKey, float | None] = {}

    def read(self) -> Mapping[Subject, Mapping[str, float | None]]:
        """Return the present figures of the worker and of each address."""
        found: dict[Subject, Mapping[str, float | None]] = {
            ("worker", self._name): {"rss": rss(), "buffered": self._buffers.used}
        }
        lanes = self._lanes.lanes
        self._look_back(lanes)
        own: dict[str, list[LaneKey]] = {}
        for lane in lanes:
            own.setdefault(lane.opening.address.name, []).append(lane.key)
        for address, counts in self._lanes.totals.counts(lanes).items():
            here = own.get(address, [])
            found["address", address] = {
                "in": sum(counts[name] for name in _JUDGED),
                "accepted": counts["accepted"] + counts["unchecked"],
                "duplicates": counts["duplicates"],
                "lag": _known(sum, [self._lanes.lags.of(key) for key in here]),
                "covered": _known(min, [self._covered[key] for key in here]),
            }
        return found

    def _look_back(self, lanes: list[Lane]) -> None:
        """Read the covered time of new lanes, and of a part of the other lanes in turn."""
        self._turn += 1
        self._covered = {
            lane.key: lane.seconds_covered()
            if (place + self._turn) % TURNS == 0 or self._covered.get(lane.key) is None
            else self._covered[lane.key]
            for place, lane in enumerate(lanes)
        }


def _known(
    fold: Callable[[list[float]], float], values: list[float | None] | list[int | None]
) -> float | None:
    known: list[float] = [value for value in values if value is not None]
    return fold(known) if known else None

"""Figures of a worker for the page's charts, read from its lanes once in ten seconds."""

from collections.abc import Callable, Mapping
from typing import Final

from agents.lane.lane import Lane
from agents.worker.lanes import Lanes
from app.worker.fetch.buffers import Buffers
from ringfence_kafka.page.history import Subject, rss

_JUDGED: Final = ("accepted", "duplicates", "unchecked", "quarantined")


def figures(name: str, lanes: Lanes, buffers: Buffers) -> Mapping[Subject, Mapping[str, float | None]]:
    """Return the present figures of a worker and of each address, of its own lanes alone."""
    found: dict[Subject, Mapping[str, float | None]] = {
        ("worker", name): {"rss": rss(), "buffered": buffers.used}
    }
    own: dict[str, list[Lane]] = {}
    for lane in lanes.lanes:
        own.setdefault(lane.opening.address.name, []).append(lane)
    for address, counts in lanes.totals.counts(lanes.lanes).items():
        here = own.get(address, [])
        found["address", address] = {
            "in": sum(counts[name] for name in _JUDGED),
            "accepted": counts["accepted"] + counts["unchecked"],
            "duplicates": counts["duplicates"],
            "lag": _known(sum, [lanes.lags.of(lane.key) for lane in here]),
            "covered": _known(min, [lane.seconds_covered() for lane in here]),
        }
    return found


def _known(
    fold: Callable[[list[float]], float], values: list[float | None] | list[int | None]
) -> float | None:
    known: list[float] = [value for value in values if value is not None]
    return fold(known) if known else None

"""Counts of a worker's lanes, also of those that left."""

from collections import Counter
from collections.abc import Callable, Iterable

from agents.lane.lane import Lane

Count = Callable[[Lane], Counter[str]]


class Totals:
    """Counts of present and former lanes."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._addresses = list(addresses)
        self._gone: dict[Count, dict[str, Counter[str]]] = {
            count: {address: Counter() for address in self._addresses} for count in (_counts, _parts)
        }

    def keep(self, lane: Lane) -> None:
        """Keep the counts of a lane that leaves."""
        for count, gone in self._gone.items():
            gone[lane.opening.address.name].update(count(lane))

    def counts(self, lanes: Iterable[Lane]) -> dict[str, Counter[str]]:
        """Return the counts by address. ``lanes``: present lanes."""
        return self._sums(_counts, lanes)

    def parts(self, lanes: Iterable[Lane]) -> dict[str, Counter[str]]:
        """Return accepted parts of envelopes by the envelopes' address, then by the address that accepted them."""
        return self._sums(_parts, lanes)

    def _sums(self, count: Count, lanes: Iterable[Lane]) -> dict[str, Counter[str]]:
        sums = {address: Counter(gone) for address, gone in self._gone[count].items()}
        for lane in lanes:
            sums[lane.opening.address.name].update(count(lane))
        return sums


def _counts(lane: Lane) -> Counter[str]:
    return lane.counts


def _parts(lane: Lane) -> Counter[str]:
    return lane.transactions.outcomes.parts

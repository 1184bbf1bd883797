"""Hop memory of a lane, ``BRIDGE.<address>``: the offsets of each bridge's source that have arrived. Pure.

Each record states the offset below which the target had acknowledged its source partition. A floor and the few offsets above it therefore
describe a :class:`tables.codec.Route` completely, and other traffic cannot evict them. An offset is known iff it lies below the floor of
its own route, or came by any route and is still remembered. A floor holds for its route alone: records in another input partition may still
be on their way home when a later record confirms them. At most ``capacity`` offsets per route are kept, the highest; capacity 0: off.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Self

from ringfence_kafka.protocol.hop import Source
from ringfence_kafka.protocol.offset_ranges import Run
from tables import codec
from tables.codec import Route

OFFSETS_MAX: Final = 65_536
"""Limit of offsets per route, whatever the capacity. At 10 bytes each they fit into a changelog record of 1 MiB."""


class Arrival(NamedTuple):
    """A record that came over a bridge."""

    route: Route
    offset: int
    """Offset in its source."""
    confirmed: int
    """Offset below which the target had acknowledged the source at the time of the send; at most ``offset``."""


class Held:
    """Remembered offsets of one route."""

    __slots__ = ("_above", "_begin", "floor")

    def __init__(self, floor: int = 0, above: Iterable[int] = ()) -> None:
        """Create the memory. ``above``: offsets in ascending order, from the floor on."""
        self.floor = floor
        self._above = array("q", above)
        self._begin = 0
        """Index of the first remembered offset; earlier ones are removed later."""

    @classmethod
    def restored(cls, floor: int, runs: Sequence[Run], capacity: int) -> Self:
        """Restore the highest ``capacity`` offsets of a hops record."""
        above: list[range] = []
        left = capacity
        for start, stop in reversed(runs):
            above.append(range(max(start, stop - left), stop))
            left -= len(above[-1])
            if not left:
                break
        return cls(floor, (offset for run in reversed(above) for offset in run))

    def copy(self) -> "Held":
        """Return an independent copy."""
        other = Held(self.floor)
        other._above = self._above[self._begin :]
        return other

    @property
    def above(self) -> Sequence[int]:
        """Remembered offsets above the floor, in ascending order."""
        return self._above[self._begin :] if self._begin else self._above

    def __contains__(self, offset: int) -> bool:
        """Return whether this offset is remembered, regardless of the floor."""
        above = self._above
        if not above or offset > above[-1]:
            return False
        place = bisect_left(above, offset, self._begin)
        return place < len(above) and above[place] == offset

    def record(self, offset: int, confirmed: int, capacity: int) -> None:
        """Record an arrived record."""
        above = self._above
        if confirmed > self.floor:
            self.floor = confirmed
            self._begin = bisect_left(above, confirmed, self._begin)
        if offset < self.floor:
            return
        if not above or offset > above[-1]:
            above.append(offset)
        else:
            place = bisect_left(above, offset, self._begin)
            if place == len(above) or above[place] != offset:
                above.insert(place, offset)
        if len(above) - self._begin > capacity:
            self._begin = len(above) - capacity

    def tidy(self) -> None:
        """Remove forgotten offsets."""
        if self._begin:
            del self._above[: self._begin]
            self._begin = 0


class Judged(NamedTuple):
    """Outcome of one batch against the hop memory, not yet applied."""

    known: Sequence[bool]
    """Whether each arrival is known, in order."""
    changed: Mapping[Route, Held]
    """New memory of each affected route."""


NOTHING: Final = Judged((), {})
"""Outcome of a batch without records from bridges."""


class HopMemory:
    """Hop memory of one lane."""

    def __init__(self, capacity: int) -> None:
        """Create an empty memory. ``capacity``: limit of offsets above the floor per route; 0 = off."""
        self.capacity = min(capacity, OFFSETS_MAX)
        self._sources: dict[Source, dict[int, Held]] = {}

    @classmethod
    def restored(cls, capacity: int, records: Iterable[tuple[bytes, bytes]]) -> Self:
        """Restore from hops records, key and value, one for each route. Raises FormatError for a damaged one."""
        memory = cls(capacity)
        memory.follow(records)
        return memory

    def follow(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Apply hops records, key and value: the last one of each route. Raises FormatError for a damaged one."""
        for record in records:
            route, floor, runs = codec.decode_hops(*record)
            held = Held.restored(floor, runs, self.capacity or OFFSETS_MAX)
            self._sources.setdefault(route.source, {})[route.arrived] = held

    @property
    def routes(self) -> dict[Route, Held]:
        """Remembered offsets by route."""
        return {
            Route(source, arrived): held
            for source, routes in self._sources.items()
            for arrived, held in routes.items()
        }

    def check(self, arrivals: Iterable[Arrival]) -> Judged:
        """Return which arrivals are known, each judged after the previous ones. Changes nothing.

        Every arrival is recorded, whatever the verdict on its own ID: a bridge's duplicate send was judged before.
        """
        known: list[bool] = []
        changed: dict[Route, Held] = {}
        if not self.capacity:
            return Judged([False for _ in arrivals], changed)
        sources: dict[Source, dict[int, Held]] = {}
        for route, offset, confirmed in arrivals:
            held = changed.get(route)
            if held is None:
                source, arrived = route
                routes = sources.get(source)
                if routes is None:
                    routes = sources[source] = dict(self._sources.get(source, ()))
                former = routes.get(arrived)
                held = changed[route] = routes[arrived] = Held() if former is None else former.copy()
            else:
                routes = sources[route.source]
            known.append(
                offset < held.floor
                or offset in held
                or (len(routes) > 1 and any(offset in route for route in routes.values()))
            )
            held.record(offset, confirmed, self.capacity)
        for held in changed.values():
            held.tidy()
        return Judged(known, changed)

    def apply(self, judged: Judged) -> None:
        """Apply an outcome after the commit of its transaction."""
        for (source, arrived), held in judged.changed.items():
            self._sources.setdefault(source, {})[arrived] = held


def changelog_records(judged: Judged) -> list[tuple[bytes, bytes]]:
    """Return the changelog records of an outcome, key and value, one for each route."""
    return [
        (codec.hops_key(route), codec.hops_value(held.floor, held.above))
        for route, held in judged.changed.items()
    ]

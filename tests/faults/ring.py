"""Judges what lanes knew of IDs: FORGOTTEN, OVERRUN, CROSS-LANE; and whether a duplicate had an original.

A ring of N holds the last N accepted IDs, so an ID is known while fewer than N others were accepted after it. How many
were is seen exactly where all that the lane accepted came from one input partition: its order is theirs. What is
forwarded from another partition came in between at a moment that nobody saw. But a lane writes one transaction after
the other, so its records are in its own order in each partition of the output; that bounds the number from above, and
an ID is called FORGOTTEN only where even that bound lies within the promise.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from itertools import pairwise

from tests.faults.evidence import Evidence, Input, shown
from tests.faults.finding import Anomaly, Finding


class Standing(Enum):
    """Whether something was there for a duplicate to be one of."""

    FOUND = auto()
    LATER = auto()
    """Accepted records of its ID came later only."""
    NONE = auto()


class Originals:
    """The accepted inputs, by ID."""

    def __init__(self, evidence: Evidence) -> None:
        self._first: dict[bytes, Input] = {}
        self.repeated: dict[bytes, list[Input]] = {}
        """IDs that were accepted more than once, in the order of the output."""
        for each in evidence.accepted:
            if each.id is not None:
                first = self._first.setdefault(each.id, each)
                if first is not each:
                    self.repeated.setdefault(each.id, [first]).append(each)
        self._earliest: dict[tuple[bytes, int], dict[int, int]] = {}
        for known_id, several in self.repeated.items():
            for each in several:
                earliest = self._earliest.setdefault((known_id, each.lane), {})
                partition, offset = each.record.partition, each.record.offset
                earliest[partition] = min(offset, earliest.get(partition, offset))

    def standing(self, duplicate: Input) -> Standing:
        """Whether its ID was accepted in its lane, and not only after it in the same input partition."""
        first = None if duplicate.id is None else self._first.get(duplicate.id)
        if duplicate.id is None or first is None:
            return Standing.NONE
        if duplicate.id in self.repeated:
            earliest = self._earliest.get((duplicate.id, duplicate.lane), {})
        else:
            earliest = {first.record.partition: first.record.offset} if first.lane == duplicate.lane else {}
        if not earliest:
            return Standing.NONE
        partition, offset = duplicate.record.partition, duplicate.record.offset
        known = earliest.get(partition, offset) < offset or len(earliest) > (partition in earliest)
        return Standing.FOUND if known else Standing.LATER


class LaneOrder:
    """In which order a lane accepted its IDs, as far as that is to be seen."""

    def __init__(self, accepted: Sequence[Input]) -> None:
        self._count = len(accepted)
        sources: dict[int, list[int]] = defaultdict(list)
        outputs: dict[int, list[int]] = defaultdict(list)
        both: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for each in accepted:
            source, output = _places(each)
            sources[source[0]].append(source[1])
            outputs[output[0]].append(output[1])
            both[source[0], output[0]].append((source[1], output[1]))
        self._sources = {partition: sorted(offsets) for partition, offsets in sources.items()}
        self._outputs = {partition: sorted(offsets) for partition, offsets in outputs.items()}
        for pairs in both.values():
            pairs.sort()
        # An output that contradicts the input is out of order itself, and no witness.
        self._witness = all(a[1] < b[1] for pairs in both.values() for a, b in pairwise(pairs))
        self._both = {places: [source for source, _ in pairs] for places, pairs in both.items()}
        self.exact = len(self._sources) == 1 or (self._witness and len(self._outputs) == 1)

    def between_max(self, one: Input, other: Input) -> int:
        """The largest possible number of IDs that were accepted between the two."""
        (one_source, one_output), (other_source, other_output) = _places(one), _places(other)
        if one_source[0] == other_source[0]:
            order = one_source < other_source
        elif self._witness and one_output[0] == other_output[0]:
            order = one_output < other_output
        else:
            return max(self._between(one, other), self._between(other, one))
        return self._between(one, other) if order else self._between(other, one)

    def _between(self, earlier: Input, later: Input) -> int:
        before, _ = self._around(earlier)
        _, after = self._around(later)
        return max(0, self._count - 2 - before - after)

    def _around(self, each: Input) -> tuple[int, int]:
        """How many were certainly accepted before, and after."""
        source, output = _places(each)
        before, after = _rank(self._sources[source[0]], source[1])
        if self._witness:
            more = _rank(self._outputs[output[0]], output[1])
            counted = _rank(self._both[source[0], output[0]], source[1])
            before += more[0] - counted[0]
            after += more[1] - counted[1]
        return before, after


def remembered(evidence: Evidence, originals: Originals) -> list[Finding]:
    """IDs that were accepted more than once."""
    capacity = evidence.history.capacity
    if not originals.repeated or capacity == 0:
        return []
    lanes = _lane_orders(evidence.accepted, originals)
    findings: list[Finding] = []
    for each, several in originals.repeated.items():
        by_lane: dict[int, list[Input]] = defaultdict(list)
        for accepted in several:
            by_lane[accepted.lane].append(accepted)
        if len(by_lane) > 1:
            firsts = [inputs[0] for inputs in by_lane.values()]
            where = ", ".join(f"{first.describe()} in lane {first.lane}" for first in firsts)
            places = tuple(first.place for first in firsts)
            findings.append(
                Finding(
                    Anomaly.CROSS_LANE, places, f"ID {shown(each)} was accepted in several lanes: {where}"
                )
            )
        for lane, inputs in by_lane.items():
            if len({accepted.record.partition for accepted in inputs}) == 1:
                inputs.sort(key=lambda accepted: accepted.record.offset)
            findings += [
                _repetition(lane, lanes[lane], one, other, capacity) for one, other in pairwise(inputs)
            ]
    return findings


def _repetition(lane: int, order: LaneOrder, one: Input, other: Input, capacity: int) -> Finding:
    between = order.between_max(one, other)
    forgotten = between < capacity
    return Finding(
        Anomaly.FORGOTTEN if forgotten else Anomaly.OVERRUN,
        (other.place, one.place),
        f"{other.describe()} was accepted in lane {lane}, and so was {one.place}, with "
        f"{'' if order.exact else 'at most '}{between} IDs between them; the ring promises {capacity}",
    )


def _lane_orders(accepted: Iterable[Input], originals: Originals) -> dict[int, LaneOrder]:
    wanted = {each.lane for several in originals.repeated.values() for each in several}
    lanes: dict[int, list[Input]] = {lane: [] for lane in wanted}
    for each in accepted:
        if each.id is not None and each.lane in wanted:
            lanes[each.lane].append(each)
    return {lane: LaneOrder(inputs) for lane, inputs in lanes.items()}


def _places(each: Input) -> tuple[tuple[int, int], tuple[int, int]]:
    """(partition, offset) in the input, and in the output."""
    if each.accepted is None:
        raise AssertionError(f"{each.place} was not accepted")
    return (
        (each.record.partition, each.record.offset),
        (each.accepted.partition, each.accepted.offset),
    )


def _rank(offsets: Sequence[int], offset: int) -> tuple[int, int]:
    """How many are smaller, and how many larger; ``offset`` is one of them."""
    smaller = bisect_left(offsets, offset)
    return smaller, len(offsets) - smaller - 1

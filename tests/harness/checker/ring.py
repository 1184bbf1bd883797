"""Judge the IDs that lanes knew: FORGOTTEN, OVERRUN, CROSS-LANE; and whether a duplicate had an original.

A ring of N knows an ID while fewer than N others were accepted after it. That number is exact if all came from one input partition, or if
records state sequence numbers. Else the lane's order in each output partition bounds it from above: FORGOTTEN needs that bound.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from enum import Enum, auto
from itertools import accumulate, pairwise

from tests.harness.checker.evidence import Evidence, Input, shown
from tests.harness.checker.findings import Anomaly, Finding
from tests.harness.checker.sequences import Sequences
from tests.harness.history import Place

Line = tuple[str, int]


class Standing(Enum):
    """Whether there was an original for a duplicate."""

    FOUND = auto()
    LATER = auto()
    NONE = auto()


class Originals:
    """Accepted inputs by ID."""

    def __init__(self, evidence: Evidence) -> None:
        self._first: dict[Hashable, Input] = {}
        self.repeated: dict[Hashable, list[Input]] = {}
        for input_ in evidence.accepted:
            for known in input_.ids:
                first = self._first.setdefault(known, input_)
                if first is not input_:
                    self.repeated.setdefault(known, [first]).append(input_)
        self._earliest: dict[tuple[Hashable, int], dict[int, int]] = {}
        for known, several in self.repeated.items():
            for item in several:
                earliest = self._earliest.setdefault((known, item.lane), {})
                partition, offset = item.record.partition, item.record.offset
                earliest[partition] = min(offset, earliest.get(partition, offset))

    def standing(self, duplicate: Input) -> Standing:
        """Whether one of its IDs was accepted in its lane, and not only after it in the same input partition."""
        found = {self._standing(duplicate, id_) for id_ in duplicate.ids}
        return next((item for item in (Standing.FOUND, Standing.LATER) if item in found), Standing.NONE)

    def _standing(self, duplicate: Input, known: Hashable) -> Standing:
        first = self._first.get(known)
        if first is None:
            return Standing.NONE
        if known in self.repeated:
            earliest = self._earliest.get((known, duplicate.lane), {})
        else:
            earliest = {first.record.partition: first.record.offset} if first.lane == duplicate.lane else {}
        if not earliest:
            return Standing.NONE
        partition, offset = duplicate.record.partition, duplicate.record.offset
        before = earliest.get(partition, offset) < offset or len(earliest) > (partition in earliest)
        return Standing.FOUND if before else Standing.LATER


class _Weights:
    """Inputs in order of an offset, each with the number of its IDs."""

    def __init__(self, weights: dict[int, int]) -> None:
        self._offsets = sorted(weights)
        self._sums = [0, *accumulate(weights[offset] for offset in self._offsets)]

    def around(self, offset: int) -> tuple[int, int]:
        index = bisect_left(self._offsets, offset)
        return self._sums[index], self._sums[-1] - self._sums[index + 1]


class LaneOrder:
    """Order in which a lane accepted its IDs, as far as it can be seen."""

    def __init__(self, accepted: Sequence[Input]) -> None:
        self._count = sum(len(input_.ids) for input_ in accepted)
        sources: dict[int, dict[int, int]] = defaultdict(dict)
        outputs: dict[Line, dict[int, int]] = defaultdict(dict)
        both: dict[tuple[int, Line], dict[int, int]] = defaultdict(dict)
        pairs: dict[tuple[int, Line], list[tuple[int, int]]] = defaultdict(list)
        for input_ in accepted:
            source, output = _places(input_)
            sources[source[0]][source[1]] = outputs[output[0]][output[1]] = len(input_.ids)
            both[source[0], output[0]][source[1]] = len(input_.ids)
            pairs[source[0], output[0]].append((source[1], output[1]))
        self._sources = {partition: _Weights(found) for partition, found in sources.items()}
        self._outputs = {line: _Weights(found) for line, found in outputs.items()}
        self._both = {places: _Weights(found) for places, found in both.items()}
        # An output that contradicts the input is itself out of order, so it proves nothing.
        self._witness = all(a[1] < b[1] for found in pairs.values() for a, b in pairwise(sorted(found)))
        self.exact = len(self._sources) == 1 or (self._witness and len(self._outputs) == 1)

    def between_max(self, one: Input, other: Input, known: Hashable) -> int:
        """Return the most IDs that were accepted between ``known`` of ``one`` and ``other``, which is judged before any of its own IDs is accepted."""
        (one_source, one_output), (other_source, other_output) = _places(one), _places(other)
        if one_source[0] == other_source[0]:
            order = one_source < other_source
        elif self._witness and one_output[0] == other_output[0]:
            order = one_output < other_output
        else:
            return max(self._between(one, other, known), self._between(other, one, known))
        return self._between(one, other, known) if order else self._between(other, one, known)

    def _between(self, earlier: Input, later: Input, known: Hashable) -> int:
        before, _ = self._around(earlier)
        _, after = self._around(later)
        behind = len(earlier.ids) - 1 - earlier.ids.index(known)
        return behind + max(0, self._count - len(earlier.ids) - len(later.ids) - before - after)

    def _around(self, each: Input) -> tuple[int, int]:
        source, output = _places(each)
        before, after = self._sources[source[0]].around(source[1])
        if self._witness:
            more = self._outputs[output[0]].around(output[1])
            counted = self._both[source[0], output[0]].around(source[1])
            before += more[0] - counted[0]
            after += more[1] - counted[1]
        return before, after


def remembered(evidence: Evidence, originals: Originals, sequences: Sequences) -> list[Finding]:
    """Report IDs that were accepted more than once; two transactions that share several IDs are one finding."""
    capacity = evidence.history.capacity
    if not originals.repeated or capacity == 0:
        return []
    lanes = _lane_orders(evidence.accepted, originals)
    findings: dict[tuple[Anomaly, tuple[Place, ...]], Finding] = {}
    for known, several in originals.repeated.items():
        by_lane: dict[int, list[Input]] = defaultdict(list)
        for accepted in several:
            by_lane[accepted.lane].append(accepted)
        found = [_crossing(known, by_lane)] if len(by_lane) > 1 else []
        for lane, inputs in by_lane.items():
            if all(sequences.first(item) is not None for item in inputs):
                inputs.sort(key=lambda accepted: sequences.first(accepted) or 0)
            elif len({accepted.record.partition for accepted in inputs}) == 1:
                inputs.sort(key=lambda accepted: accepted.record.offset)
            for one, other in pairwise(inputs):
                here, there = sequences.of(one, known), sequences.first(other)
                exact = here is not None and there is not None
                if here is not None and there is not None:
                    between = there - here - 1
                else:
                    between = lanes[lane].between_max(one, other, known)
                history = evidence.history
                if (
                    history.min_age_ms
                    and between >= history.size
                    and _since(one, other, evidence.accepted) > history.min_age_ms
                ):
                    between = max(between, capacity)  # too old for its ring, which has forgotten it
                found.append(_repetition(lane, between, one, other, exact or lanes[lane].exact, capacity))
        findings |= {(finding.anomaly, finding.places): finding for finding in found}
    forgotten = {places for anomaly, places in findings if anomaly is Anomaly.FORGOTTEN}
    return [
        finding
        for finding in findings.values()
        if finding.anomaly is not Anomaly.OVERRUN or finding.places not in forgotten
    ]


def _crossing(known: Hashable, by_lane: dict[int, list[Input]]) -> Finding:
    firsts = [inputs[0] for inputs in by_lane.values()]
    where = ", ".join(f"{first.describe()} in lane {first.lane}" for first in firsts)
    places = tuple(first.place for first in firsts)
    return Finding(Anomaly.CROSS_LANE, places, f"ID {shown(known)} was accepted in several lanes: {where}")


def _repetition(lane: int, between: int, one: Input, other: Input, exact: bool, capacity: int) -> Finding:
    forgotten = between < capacity
    return Finding(
        Anomaly.FORGOTTEN if forgotten else Anomaly.OVERRUN,
        (other.place, one.place),
        f"{other.describe()} was accepted in lane {lane}, and so was {one.place}, with "
        f"{'' if exact else 'at most '}{between} IDs between them; the ring promises {capacity}",
    )


def _since(one: Input, other: Input, accepted: Iterable[Input]) -> int:
    """Age of the earlier record, ms, by the newest one that their lane may have accepted until the later one."""
    times = [one.record.timestamp, other.record.timestamp]
    latest = max((one, other), key=lambda each: each.record.offset)
    newest = max(
        message.record.timestamp
        for message in (*accepted, one, other)
        if message.lane == one.lane
        and (
            message.record.partition != latest.record.partition
            or message.record.offset <= latest.record.offset
        )
    )
    return newest - min(times)


def _lane_orders(accepted: Iterable[Input], originals: Originals) -> dict[int, LaneOrder]:
    wanted = {input_.lane for several in originals.repeated.values() for input_ in several}
    lanes: dict[int, list[Input]] = {lane: [] for lane in wanted}
    for message in accepted:
        if message.ids and message.lane in wanted:
            lanes[message.lane].append(message)
    return {lane: LaneOrder(inputs) for lane, inputs in lanes.items()}


def _places(message: Input) -> tuple[tuple[int, int], tuple[Line, int]]:
    """Return (partition, offset) in the input, and in the output; for a transaction, of its first record there."""
    if message.accepted is None:
        raise AssertionError(f"{message.place} was not accepted")
    return (
        (message.record.partition, message.record.offset),
        ((message.accepted.topic, message.accepted.partition), message.accepted.offset),
    )

"""Judge records from bridges: hops that a lane knew, and hops that were accepted again. A way is a bridge, a source's and an input's partition, and a lane."""

import re
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ringfence_kafka.protocol import wire_names
from tests.harness.checker.findings import Anomaly, Finding
from tests.harness.history import Record

if TYPE_CHECKING:
    from tests.harness.checker.evidence import Evidence, Input

OF_BRIDGES: Final = frozenset({"_RF_BRIDGE_DUPL_ID", "_RF_BRIDGE_CONFIRMED", "_RF_BRIDGE_IDS"})
KEPT_MAX: Final = 65_536
"""Most hops of one way that a lane keeps, however large its ring is."""
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,200}")
_TOPIC_ID: Final = re.compile(r"[a-zA-Z0-9_-]{22}")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]*")


class Step(NamedTuple):
    """Statements of a bridge about a record."""

    source: str
    offset: int
    confirmed: int
    """Offset below which the target had acknowledged all of the source."""
    ids_ignored: bool


class MalformedHopError(Exception):
    """The record belongs into quarantine."""


def read(record: Record) -> Step | None:
    """Return the hop of a record; None = it came over no bridge. Raises MalformedHopError if no bridge has written that."""
    headers = dict(record.headers)
    if wire_names.HEADER_HOP not in headers:
        return None
    pieces = _text(headers[wire_names.HEADER_HOP]).split("/")
    if len(pieces) != 4:
        raise MalformedHopError("its hop")
    bridge, topic_id, partition, offset = pieces
    if not _NAME.fullmatch(bridge) or not _TOPIC_ID.fullmatch(topic_id):
        raise MalformedHopError("its bridge, or its source")
    if _number(partition) >= 2**31 or _number(offset) >= 2**63 - 1:
        raise MalformedHopError("its source, or its offset")
    confirmed = _number(_text(headers.get(wire_names.HEADER_CONFIRMED, b"0")))
    if confirmed > int(offset):
        raise MalformedHopError("what is confirmed")
    if headers.get(wire_names.HEADER_USER_IDS, b"ignore") != b"ignore":
        raise MalformedHopError("what it says of its ID")
    return Step(
        f"{bridge}/{topic_id}/{partition}", int(offset), confirmed, wire_names.HEADER_USER_IDS in headers
    )


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text) or len(text) > 19:
        raise MalformedHopError(f"{text!r} is no number")
    return int(text)


def passed(record: Record, step: Step | None) -> list[bytes | None]:
    """Return the values of :data:`ringfence_kafka.protocol.wire_names.HEADER_HOPS` that an accepted record must have: one or none."""
    there = step is not None and any(name == wire_names.HEADER_HOPS for name, _ in record.headers)
    return [record.header(wire_names.HEADER_HOPS)] if there else []


@dataclass(slots=True)
class _Way:
    """State of one way so far."""

    floor: int = 0
    offsets: list[int] = field(default_factory=list)
    first: "dict[int, Input]" = field(default_factory=dict)


class Known(NamedTuple):
    """State of its way when a record came."""

    below: int
    same: "Input | None"
    above: int
    """Number of higher hops that had come: the lane keeps the highest."""


class Bridged:
    """Records that came over bridges, by their ways."""

    def __init__(self, evidence: "Evidence") -> None:
        self._known: dict[int, Known] = {}
        self._ways: dict[tuple[int, str, int], _Way] = defaultdict(_Way)
        self.accepted: dict[tuple[str, int], list[Input]] = defaultdict(list)
        self._told: dict[tuple[int, str, int], set[int]] = defaultdict(set)
        """Lane and hop → the input partitions in which something shows that they came."""
        self._capacity = min(evidence.history.capacity, KEPT_MAX)
        for input_ in evidence.inputs():
            if input_.hop is not None and self._capacity:
                self._follow(input_, input_.hop)

    def _follow(self, each: "Input", step: Step) -> None:
        way = self._ways[each.lane, step.source, each.record.partition]
        below = way.floor if step.offset < way.floor else 0
        same = way.first.get(step.offset)
        if below or same is not None:
            higher = len(way.offsets) - bisect_right(way.offsets, step.offset)
            self._known[id(each)] = Known(below, same, higher)
        if same is None:
            way.first[step.offset] = each
            insort(way.offsets, step.offset)
        way.floor = max(way.floor, step.confirmed)
        if each.passed is not None or each.diverted is not None or each.quarantined is not None:
            self._told[each.lane, step.source, step.offset].add(each.record.partition)
        if each.passed is not None:
            self.accepted[step.source, step.offset].append(each)

    def known(self, each: "Input") -> bool:
        """Whether its lane can have known its hop, so that it is a duplicate whatever IDs it has."""
        if each.hop is None:
            return False
        elsewhere = self._told.get((each.lane, each.hop.source, each.hop.offset), set())
        return id(each) in self._known or bool(elsewhere - {each.record.partition})

    def again(self) -> Iterable[Finding]:
        """Report hops that were accepted although they were known, or twice: FORGOTTEN, OVERRUN, CROSS-LANE."""
        for several in self.accepted.values():
            first: Input | None = None
            for input_ in several:
                known = self._known.get(id(input_))
                if known is not None:
                    yield self._forgotten(input_, known)
                elif first is None:
                    first = input_
                else:
                    yield self._apart(first, input_)

    def _forgotten(self, each: "Input", known: Known) -> Finding:
        places = (each.place, *(() if known.same is None else (known.same.place,)))
        if known.below:
            why = f"all below {known.below} had been confirmed"
        else:
            why = f"it had come before, with {known.above} higher ones since; the lane keeps {self._capacity}"
        within = bool(known.below) or known.above < self._capacity
        anomaly = Anomaly.FORGOTTEN if within else Anomaly.OVERRUN
        return Finding(
            anomaly, places, f"{each.describe()} was accepted, though of its hop {_shown(each)} {why}"
        )

    def _apart(self, first: "Input", each: "Input") -> Finding:
        anomaly, why = Anomaly.FORGOTTEN, "by two input partitions"
        if first.lane != each.lane:
            anomaly, why = Anomaly.CROSS_LANE, f"in lanes {first.lane} and {each.lane}"
        elif any(self._beyond(one) for one in (first, each)):
            anomaly, why = Anomaly.OVERRUN, f"{why}, of which one need not keep it"
        text = f"{each.describe()} was accepted, and so was {first.place}: hop {_shown(each)}, {why}"
        return Finding(anomaly, (each.place, first.place), text)

    def _beyond(self, each: "Input") -> bool:
        if each.hop is None:
            raise AssertionError(f"{each.place} came over no bridge")
        way, offset = self._ways[each.lane, each.hop.source, each.record.partition], each.hop.offset
        return way.floor > offset or len(way.offsets) - bisect_right(way.offsets, offset) >= self._capacity


def _shown(each: "Input") -> str:
    return "" if each.hop is None else f"{each.hop.source}/{each.hop.offset}"


def said_once(of_hops: Sequence[Finding], of_ids: Sequence[Finding]) -> list[Finding]:
    """Return both, without findings of IDs about records that have a finding of hops: if these count, no ID is checked."""
    named = {hop.places[0] for hop in of_hops if hop.anomaly is not Anomaly.OVERRUN}
    return [*of_hops, *(id_ for id_ in of_ids if named.isdisjoint(id_.places[:1]))]

"""The end of a drain, and the lessons from a batch that the target refuses."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agents.bridge.batch_builder import Batch, BatchBuilder, CycleBatches, Target
from agents.bridge.flow import Flow
from agents.bridge.producer_session import ProducerSession, SessionEndedError
from agents.bridge.source import Read
from agents.bridge.state import BridgeState
from agents.bridge.translation import RefusedError
from agents.bridge.window import CYCLE_RECORDS_MAX, Cycle
from tests.support.bridges.plans import plan

TOPIC_ID = "A" * 22


class _Loader:
    def __init__(self, stops: int | None = None) -> None:
        """Stop at an offset that nothing takes (``stops``)."""
        self.read: list[list[int]] = []
        self._stops = stops

    def load(self, cycle: Cycle, read: dict[Any, list[Any]], malformed: object) -> CycleBatches:
        self.read += [[record.offset for record in records] for records in read.values()]
        load, cycle.pending = CycleBatches(cycle), 0
        for place, end in cycle.ends.items():
            if self._stops is not None and self._stops < end:
                load.stopped[place] = RefusedError(self._stops, "nothing takes it")
        return load


def _flow(ends: dict[int, int] | None = None) -> Flow:
    flow = Flow(plan(), BridgeState("b"), ends)
    for partition in (0, 1):
        flow.window.open(partition, TOPIC_ID, 0)
    return flow


async def _not_asked() -> Target:
    raise AssertionError("nothing is refused for its size")


async def _send(flow: Flow, loader: _Loader, reached: int) -> None:
    found = Read({0: [SimpleNamespace(offset=index) for index in range(reached)]}, {0: reached})
    await flow.send(cast("Any", None), cast("BatchBuilder", loader), flow.wanted(), found, _not_asked)
    await flow.confirm()


def _at_ends(flow: Flow) -> list[bool]:
    return [flow.is_at_end(place) for place in flow.window.places.values()]


async def test_drain_stops_at_the_end() -> None:
    """A drain leaves records behind the end offsets, and asks for no more from a partition at its end."""
    flow, loader = _flow({0: 3, 1: 0}), _Loader()
    assert flow.wanted() == {0: 0}
    assert _at_ends(flow) == [False, True]
    await _send(flow, loader, 5)

    assert loader.read == [[0, 1, 2]]
    assert flow.window.places[0].confirmed == 3
    assert (flow.wanted(), _at_ends(flow)) == ({}, [True, True])


def _refused(flow: Flow, count: int, topic: str = "t") -> bool:
    place = flow.window.places[0]
    batch = Batch(topic, 7, None, Cycle({place: 10}), (place, 4), count, topic != "t")
    return flow.learn(SessionEndedError("no", batch))


async def test_refused_batch_is_halved_until_confirmed() -> None:
    """The halved limit stays until every record of the refused cycle is confirmed."""
    flow = _flow()

    assert _refused(flow, 9)
    assert flow.records_max == {7: 4}
    assert _refused(flow, 1)
    place = flow.window.places[0]
    assert flow.refused.by_target == {(place, 4): "no"}
    await _send(flow, _Loader(), 4)
    assert (flow.records_max, flow.refused.by_target) == ({7: 4}, {(place, 4): "no"})
    await _send(flow, _Loader(), 10)
    assert (flow.records_max, flow.refused.by_target) == ({}, {})


def test_refused_for_its_time() -> None:
    """A refused timestamp applies to other records only if its record was alone. It is forgotten when the target changes."""
    flow = _flow()
    place = flow.window.places[0]
    batch = Batch("t", 7, None, Cycle({place: 10}), (place, 4), timestamp=2**52)

    assert flow.learn(SessionEndedError("no", batch))
    assert flow.refused.times() == (-math.inf, math.inf)
    assert flow.learn(SessionEndedError("no", batch, of_time=True))
    assert flow.refused.times()[1] == pytest.approx(2**52, abs=1_000)
    flow.update_target(TARGET)
    assert flow.refused.times() == (-math.inf, math.inf)


def test_refused_by_the_quarantine() -> None:
    """A refusal by the quarantine topic is remembered for its record alone; another error is not remembered."""
    flow = _flow()

    assert _refused(flow, 1, "b.quarantine")
    assert not flow.learn(SessionEndedError("away"))
    assert (flow.records_max, flow.refused.by_target) == ({}, {})
    assert list(flow.refused.by_all.values()) == ["no"]


TARGET = Target(4, 500, compacted=False, quarantine_bytes_max=0, settings="as it was")


async def test_what_nothing_takes_stops_its_partition_alone() -> None:
    """A record that nothing takes stops its partition, and none before it, until the target was looked at."""
    flow = _flow()
    flow.update_target(TARGET)
    await _send(flow, _Loader(stops=3), 5)
    place = flow.window.places[0]

    assert (place.confirmed, place.next) == (3, 3)
    assert flow.wanted() == {1: 0}
    flow.update_target(TARGET)
    assert flow.wanted() == {0: 3, 1: 0}


async def test_what_was_refused_is_tried_where_the_target_has_changed() -> None:
    flow = _flow()
    flow.update_target(TARGET)
    assert _refused(flow, 1)
    flow.update_target(TARGET)
    assert list(flow.refused.by_target.values()) == ["no"]
    flow.update_target(replace(TARGET, settings="it takes more"))
    assert flow.refused.by_target == {}
    assert _refused(flow, 1)
    flow.update_target(replace(TARGET, settings="it takes more"), again=True)
    assert flow.refused.by_target == {}
    assert _refused(flow, 1)
    flow.window.close([0])
    flow.window.open(0, "B" * 22, 0)

    assert (flow.window.places[0], 4) not in flow.refused.by_target


async def test_fewer_at_once_over_a_narrow_link() -> None:
    """The records in flight are as many as are acknowledged in time, by the time that the last ones took. Filtered records do not count."""
    flow = _flow()
    for end in (5, 10):
        await _send(flow, _Loader(), end)
    assert (flow.portion.bytes, flow.records_at_once()) == (flow.portion.most, CYCLE_RECORDS_MAX)
    assert not flow.learn(SessionEndedError("no answer", late=True))
    assert flow.portion.bytes < flow.portion.most
    life, loader = cast("ProducerSession", _Life()), cast("BatchBuilder", _Large())
    await flow.send(life, loader, flow.wanted(), Read({0: []}, {0: 20}), _not_asked)
    assert flow.records_at_once() == flow.portion.bytes // LARGE


LARGE = 100_000


class _Life:
    def hand_over(self, batches: list[Batch]) -> None:
        """Nobody acknowledges them."""


class _Large(_Loader):
    def load(self, cycle: Cycle, read: dict[Any, list[Any]], malformed: object) -> CycleBatches:
        builder = SimpleNamespace(size=lambda: 10 * LARGE)
        place = next(iter(cycle.ends))
        return CycleBatches(cycle, [Batch("t", 0, cast("Any", builder), cycle, (place, 0), 10)])

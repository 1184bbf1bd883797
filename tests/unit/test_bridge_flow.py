"""What a drain stops at, and what is learned of a batch that the target refuses."""

from typing import Any, cast

from agents.bridge.flow import Flow
from agents.bridge.life import Life, LifeEndedError
from agents.bridge.load import Batch, Load, Loader
from agents.bridge.plan import plans
from agents.bridge.source import Read
from agents.bridge.state import BridgeState
from agents.bridge.window import Cycle
from ringfence_kafka.config.load import validate

TOPIC_ID = "A" * 22


class _Record:
    def __init__(self, offset: int) -> None:
        self.offset = offset


class _Loader:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.read: list[list[int]] = []

    def load(self, cycle: Cycle, read: dict[Any, list[Any]], malformed: object) -> Load:
        self.read += [[each.offset for each in records] for records in read.values()]
        return Load(cycle)


def _flow(ends: dict[int, int] | None = None) -> Flow:
    bridge = {"name": "b", "source_topic": "s", "target_address": "t", "target": {"bootstrap_servers": "x:1"}}
    (plan,) = plans(validate({"bridges": [bridge]}))
    flow = Flow(plan, BridgeState("b"), ends)
    for partition in (0, 1):
        flow.window.open(partition, TOPIC_ID, 0)
    return flow


async def _send(flow: Flow, loader: _Loader, reached: int) -> None:
    found = Read({0: [_Record(each) for each in range(reached)]}, {0: reached})
    await flow.send(cast("Life", None), cast("Loader", loader), flow.wanted(), found)


async def test_drain_stops_at_the_end() -> None:
    """What came behind the ends is left; and what stands there is asked for no more."""
    flow, loader = _flow({0: 3, 1: 0}), _Loader()
    assert flow.wanted() == {0: 0}
    assert not flow.at_ends
    await _send(flow, loader, 5)
    await flow.settle()

    assert loader.read == [[0, 1, 2]]
    assert flow.window.places[0].confirmed == 3
    assert (flow.wanted(), flow.at_ends) == ({}, True)


async def test_without_ends() -> None:
    """It never stands at any."""
    flow, loader = _flow(), _Loader()
    await _send(flow, loader, 5)
    await flow.settle()

    assert loader.read == [[0, 1, 2, 3, 4]]
    assert (flow.wanted(), flow.at_ends) == ({0: 5, 1: 0}, False)


def _refused(flow: Flow, count: int, topic: str = "t") -> bool:
    place = flow.window.places[0]
    batch = Batch(topic, 7, None, Cycle({place: 10}), (0, 4), count)
    return flow.learn(LifeEndedError("no", batch))


async def test_refused_batch_is_halved_until_confirmed() -> None:
    """The limit stays until all that was in the refused cycle is confirmed."""
    flow = _flow()

    assert _refused(flow, 9)
    assert flow.records_max == {7: 4}
    assert _refused(flow, 1)
    assert flow.refused == {(0, 4): "no"}
    await _send(flow, _Loader(), 4)
    await flow.settle()
    assert (flow.records_max, flow.refused) == ({7: 4}, {(0, 4): "no"})
    await _send(flow, _Loader(), 10)
    await flow.settle()
    assert (flow.records_max, flow.refused) == ({}, {})


def test_refused_quarantine_teaches_nothing() -> None:
    """It is a fault like others: tried again, with a pause."""
    flow = _flow()

    assert not _refused(flow, 1, "b.quarantine")
    assert not flow.learn(LifeEndedError("away"))
    assert (flow.records_max, flow.refused) == ({}, {})

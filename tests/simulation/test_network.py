"""Requests that arrive late, after their sender has seen them fail as lost."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError

from tests.simulator.kafka.cluster import SimulatedCluster
from tests.simulator.kafka.network import Network
from tests.simulator.loop import Loops
from tests.simulator.names import settings_of
from tests.simulator.patches import simulated
from tests.simulator.process import Worker

TOLD_S, COMES_S = 0.05, 5.0


class Wire:
    """Network of one process, with what has arrived and what its sender received, in order."""

    def __init__(self) -> None:
        dice = random.Random(1)
        self.loops = Loops(dice)
        cluster = SimulatedCluster(self.loops, dice)
        process = Worker("p0", settings_of("p0", 8, divert=False), cluster, self.loops, dice)
        self.network: Network = process.network
        self.arrived: list[str] = []
        self.told: list[Any] = []
        self._loop = self.loops.new(process)

    def produce(self, what: str) -> str:
        self.arrived.append(what)
        return what

    def end(self, what: str) -> str:
        return self.produce(what)

    def send(self, apply: Any, what: str) -> None:
        self.network.ask(self._loop, lambda answer, error: self.told.append(error or answer), apply, (what,))

    def run(self, until_s: float) -> None:
        self.loops.run(lambda: False, 10**6, until_s)


@pytest.fixture
def wire() -> Iterator[Wire]:
    with simulated():
        yield Wire()


@pytest.mark.parametrize(("passed", "arrived"), [(0, ["b", "a", "c"]), (1, ["b", "c", "a"])])
def test_it_comes_behind_another(wire: Wire, passed: int, arrived: list[str]) -> None:
    """A late request arrives when its sender knows that it is lost, or one request later; nobody receives its answer."""
    wire.network.belate("produce", TOLD_S, COMES_S, "end", passed)
    wire.send(wire.produce, "a")
    wire.run(0.2)
    assert (wire.arrived, [type(said) for said in wire.told]) == ([], [KafkaConnectionError])
    for number, what in enumerate("bc"):
        wire.send(wire.end, what)
        wire.run(0.5 + number / 2)

    assert wire.arrived == arrived
    assert wire.told[1:] == ["b", "c"]


def test_it_comes_when_its_time_is_up(wire: Wire) -> None:
    """A late request arrives once, even if nothing else does; the next one of its kind is not late."""
    wire.network.belate("produce", TOLD_S, COMES_S, "end", 0)
    wire.send(wire.produce, "a")
    wire.send(wire.produce, "b")
    wire.run(COMES_S - 0.1)
    assert wire.arrived == ["b"]
    wire.run(COMES_S + 1)
    wire.send(wire.end, "c")
    wire.run(COMES_S + 2)

    assert wire.arrived == ["b", "a", "c"]

"""Runs over chained addresses: one topic is an output of the first and the input of the second."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from app.embedded.broker import EmbeddedBroker
from tests.reconcile.test_runs import Scheduler
from tests.support.reconcile.planted import In, World, anomalies


def _next(world: World, record: In, offset: int) -> In:
    """Return the input of the second address at this offset of the first one's accepted topic."""
    headers = tuple(header for header in record.headers if not header[0].startswith("_RF_BRIDGE_"))
    return record._replace(address=f"{world.names['a']}.accepted", offset=offset, headers=headers)


@pytest.mark.long
def test_each_address_of_a_chain_is_judged(
    broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path
) -> None:
    """A run ends at the second address's read position, although the first has accepted more: the next run judges the rest.

    A message keeps its passed members over the chain: bridges behind the second address must see them.
    """
    world = World(broker.bootstrap_servers, tmp_path, {"b": {"feeder": "a"}, "a": {}})
    scheduler = Scheduler(spark, world)
    first, second = world.arrive("a", b"1"), world.bridge("a", 1, passed=b"berlin")
    world.accept(first, _next(world, first, 0))
    world.commit("b")
    world.accept(second)
    world.commit("a")
    assert scheduler.run(input=2, accepted=2) == {}
    assert {name: scheduler.address("b")[name] for name in ("input", "accepted")} == {
        "input": 1,
        "accepted": 1,
    }
    assert scheduler.document["verdict"] == "clean"

    # The second address has consumed it, and nothing came out.
    world.commit("b")
    scheduler.run(input=0)
    assert anomalies(scheduler.document, world) == {"a": {}, "b": {"LOST": 1}}
    assert scheduler.runs.acknowledge() is not None

    # A stranger writes into the topic between them, a duplicate comes out of the second address, and one has lost what it had passed.
    third, fourth = world.arrive("a", b"2"), world.bridge("a", 2, passed=b"berlin")
    strange = third._replace(id=None, headers=())
    world.accept(third, fourth)
    world.accept(strange, source=None)
    doubled, bare, honest = _next(world, third, 2), _next(world, fourth, 3), _next(world, strange, 4)
    world.accept(doubled, doubled)
    world.accept(bare, headers=tuple(header for header in bare.headers if header[0] != "_RF_HOPS"))
    world.accept(honest)
    world.commit()
    scheduler.run(input=2)
    assert anomalies(scheduler.document, world) == {"a": {"PHANTOM": 1}, "b": {"DOUBLED": 1, "CORRUPTED": 1}}

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from aiokafka.errors import GroupLoadInProgressError

from agents.worker.lanes import Lanes
from app.worker.membership.orphan_lanes import AGAIN_MOST_S, STANDS_S, OrphanLanes, Partition
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.load import validate
from ringfence_kafka.groups.static_members import Member
from tests.support.cluster_double import ClusterDouble

ALL = frozenset({("a", 0), ("a", 1)})


class World(ClusterDouble):
    """A worker that looks, on a clock of its own, at a group of which it is the one member; topics have two partitions."""

    def __init__(self, *, static: bool = True) -> None:
        self.counts = {"a": 2}
        self.given: frozenset[Partition] = ALL
        self.rebalances = self.away = False
        self.told: list[Sequence[Partition]] = []
        self.joined: list[float] = []
        self.now = 0.0
        again = (lambda: self.joined.append(self.now)) if static else None
        cluster = cast("Cluster", self)
        self._looks = OrphanLanes(cluster, {"a", "b"}, self.told.append, again, lambda: self.now)

    async def static_members(self) -> list[Member]:
        if self.away:
            raise GroupLoadInProgressError
        return [Member("m", "one", None if self.rebalances else "said", self.given)]

    async def partition_counts(self, _topics: list[str]) -> dict[str, int]:
        return self.counts

    async def look(self, after: float = 0.0) -> None:
        self.now += after
        await self._looks.refresh()


@pytest.mark.parametrize("without", ["given", "rebalances", "away"])
async def test_nothing_is_reported(without: str) -> None:
    """New partitions are left to the group's leader. The known state stays during a rebalance or a restart of the broker."""
    world = World()
    world.counts, world.given = {"a": 2, "b": 1}, ALL
    await world.look()
    await world.look(STANDS_S - 1)
    setattr(world, without, ALL | {("b", 0)} if without == "given" else True)
    await world.look(1)

    assert (world.told[-1], world.joined) == ([], [])


@pytest.mark.parametrize("static", [True, False])
async def test_what_stays_nobodys(static: bool) -> None:
    """A lane that stays unassigned is reported, and a static member rejoins ever more rarely."""
    world = World(static=static)
    world.given = frozenset({("a", 0)})
    await world.look()
    for _ in range(200):
        await world.look(STANDS_S)
    tried = list(world.joined)
    world.given = ALL
    await world.look(STANDS_S)
    world.given = frozenset()
    world.joined.clear()
    await world.look(STANDS_S)
    await world.look(STANDS_S)

    assert world.told[1] == [("a", 1)]
    assert world.told[-3:] == [[], [], [("a", 0), ("a", 1)]]
    assert len(world.joined) == static
    assert tried[:4] == [15, 30, 60, 120][: 4 * static]
    assert len(tried) <= 7 + 200 * STANDS_S / AGAIN_MOST_S


async def test_not_ready_meanwhile(tmp_path: Path) -> None:
    """A lane with either half unassigned makes the worker unready. Partitions of topics without an address do not."""
    app = {"id": "rf", "data_dir": str(tmp_path)}
    lanes = Lanes(validate({"app": app, "addresses": [{"name": "orders"}]}), cast("Any", None))
    await lanes.assigned(set(), cast("Any", None))
    for items, unassigned in (
        ([("other", 0)], []),
        ([("orders", 1), ("rf-orders-forward", 1), ("orders", 0)], ["orders-0", "orders-1"]),
        ([], []),
    ):
        lanes.set_unassigned(items)
        assert (lanes.health.ready, lanes.health.unassigned) == (not unassigned, unassigned)

"""The simulated cluster answers scripts of groups, retention and compaction as the real one does.

The real cluster runs the same scripts in tests/integration/test_simulated_cluster.py.
"""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ringfence_client.consumer.assignor import KeepingAssignor
from tests.simulator.conformance.topics import PARTITIONS, SCRIPTS, SLOW, Side
from tests.simulator.consumers import group
from tests.simulator.consumers.group import KeepingGroup
from tests.simulator.consumers.membership import ConsumerRights
from tests.simulator.doubles.group_member import SimulatedMember
from tests.simulator.doubles.reader import SimulatedReader
from tests.simulator.kafka.cluster import SimulatedCluster
from tests.simulator.loop import Loops
from tests.simulator.patches import simulated
from tests.simulator.process import Process


class _Host(Process):
    """Has all that a script makes."""

    def notice(self, topics: Any) -> None:
        for reader in list(self.readers):
            reader.notice(topics)

    def __init__(self, *base: Any) -> None:
        super().__init__(*base)
        self.rights = ConsumerRights(lambda _: False, self.cluster)
        self.learned: list[tuple[int, float]] = []
        self.readers: dict[SimulatedReader, None] = {}


class _Simulated:
    """The simulated cluster as the scripts use it."""

    topic = "scripted"

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def member(self, listener: Any) -> SimulatedMember:
        member = SimulatedMember(
            group_id="scripted",
            partition_assignment_strategy=[KeepingAssignor(self.topic, dict)],
        )
        member.subscribe([self.topic], listener)
        return member

    def reader(self) -> SimulatedReader:
        return SimulatedReader()

    async def send(self, key: bytes, value: bytes) -> None:
        self._cluster.produce(self.topic, 0, [(0, key, value, ())])

    async def abort(self, key: bytes, value: bytes) -> None:
        self._cluster.produce_in_transaction(self.topic, 0, [(0, key, value, ())], 0.0, commit=False)

    async def bounds(self) -> tuple[int, int]:
        start, _, end = self._cluster.ends(self.topic, 0)
        return start, end

    async def delete_below(self, offset: int) -> None:
        self._cluster.log(self.topic, 0).delete_below(offset)

    async def compact(self, count: int) -> None:
        log = self._cluster.log(self.topic, 0)
        log.compact()
        assert len(log.committed()) == count


@pytest.mark.parametrize("name", [*SCRIPTS, *SLOW])
@pytest.mark.parametrize("seed", range(3))
def test_script(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    script, expected = (SCRIPTS | SLOW)[name]  # type: ignore[operator]
    dice = random.Random(seed)
    loops = Loops(dice)
    cluster = SimulatedCluster(loops, dice)
    cluster.create(_Simulated.topic, PARTITIONS)
    cluster.together = [(_Simulated.topic,)]
    cluster.group = KeepingGroup(
        lambda: loops.now, loops.after, dice, cluster.assigned_together, topic=_Simulated.topic, partitions=lambda: PARTITIONS
    )  # fmt: skip
    settings: Any = None
    process = _Host("p0", settings, cluster, loops, dice)
    cluster.moved = lambda topic: process.notice({topic})
    told: list[Any] = []

    async def play(script: Callable[[Side], Awaitable[list[Any]]]) -> None:
        told.append(await script(_Simulated(cluster)))

    monkeypatch.setattr(group, "KEPT_SHARE", 1.0)
    with simulated():
        loops.new(process).create_task(play(script))
        loops.run(lambda: bool(told), 10**6, 60)
        loops.bury()

    assert told == [expected]

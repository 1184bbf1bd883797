"""What a worker restores before it joins."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import GroupLoadInProgressError

from agents.lanes import Lanes
from app.worker import warming
from app.worker.run import create_app
from ringfence_kafka.cluster import Cluster
from ringfence_kafka.config.load import validate
from ringfence_kafka.static import Member

TOPICS = {"orders", "rf-orders-forward"}
COUNTS = dict.fromkeys(TOPICS, 4)


async def _assignor(tmp_path: Path, name: str) -> Any:
    """Faust's own, of a worker of that name."""
    app = {"id": "rf", "data_dir": str(tmp_path), "instance": name, "static_membership": True, "web_port": 0}
    return create_app(validate({"app": app, "addresses": [{"name": "orders"}]})).assignor


def _lead(assignor: Any, joined: dict[str, Any]) -> dict[str, Any]:
    cluster = SimpleNamespace(partitions_for_topic=lambda _: set(range(4)))
    return cast("dict[str, Any]", assignor.assign(cluster, joined))


async def test_share_is_what_the_group_then_gives(tmp_path: Path) -> None:
    """One worker has all lanes. The newcomer restores those two, with both halves, that it is given once it has joined."""
    one, two = await _assignor(tmp_path, "one"), await _assignor(tmp_path, "two")
    one.on_assignment(_lead(one, {"one-1": one.metadata(TOPICS)})["one-1"])
    described = ConsumerProtocol.METADATA.decode(one.metadata(TOPICS).encode())

    share = warming.share(two, [Member("one-1", None, described)], TOPICS, COUNTS)
    decided = _lead(one, {"one-1": one.metadata(TOPICS), "two-1": two.metadata(TOPICS)})["two-1"].assignment

    assert share == {(topic, number) for topic, numbers in decided for number in numbers}
    assert len(share) == 4


async def test_share_of_a_group_that_rebalances(tmp_path: Path) -> None:
    """Nothing can be said: lanes are restored when they open."""
    assert (
        warming.share(await _assignor(tmp_path, "two"), [Member("one-1", None, None)], TOPICS, COUNTS)
        == set()
    )


class Asked:
    """A cluster with these members, and lanes that note what they restore."""

    def __init__(self, members: list[Member] | Exception, *, hangs: bool = False) -> None:
        self._members = members
        self._hangs = hangs
        self.restored: list[Any] = []

    async def static_members(self) -> list[Member]:
        if isinstance(self._members, Exception):
            raise self._members
        return self._members

    async def partition_counts(self, _topics: list[str]) -> dict[str, int]:
        return COUNTS

    async def warm_up(self, partitions: Any) -> None:
        self.restored.append(partitions)
        if self._hangs:
            await asyncio.Event().wait()

    async def run(self, assignor: Any, instance: str | None = None) -> None:
        await warming.warm_up(cast("Lanes", self), cast("Cluster", self), assignor, TOPICS, instance)


async def test_nobody_waits_for_who_is_missed(tmp_path: Path) -> None:
    """In an empty group, and for a static member that comes back, lanes stand still until it joins: at once, then."""
    assignor = await _assignor(tmp_path, "two")
    empty, back = Asked([]), Asked([Member("two-1", "two", None)])
    await empty.run(assignor)
    await back.run(assignor, "two")
    other = Asked([Member("one-1", "one", None)])
    await other.run(assignor, "two")

    assert (empty.restored, back.restored, other.restored) == ([], [], [set()])


async def test_joins_in_any_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever keeps it from restoring before keeps it from nothing else."""
    monkeypatch.setattr(warming, "LIMIT_S", 0.01)
    assignor = await _assignor(tmp_path, "two")
    await Asked(GroupLoadInProgressError()).run(assignor)
    hanging = Asked([Member("one-1", None, None)], hangs=True)
    await hanging.run(assignor)

    assert hanging.restored == [set()]

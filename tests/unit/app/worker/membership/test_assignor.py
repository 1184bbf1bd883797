import asyncio
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import GroupLoadInProgressError
from faust.assignor.partition_assignor import PartitionAssignor

from agents.worker.lanes import Lanes
from app.worker.faust_app import RingfenceApp
from app.worker.membership.assignor import restore_before_joining
from app.worker.parts import WorkerParts
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.load import validate
from ringfence_kafka.groups.static_members import Member
from tests.support.cluster_double import ClusterDouble

TOPICS = {"orders", "rf-orders-forward"}
COUNTS = dict.fromkeys(TOPICS, 4)


async def _assignor(tmp_path: Path, name: str, port: int = 0) -> Any:
    named = {"id": "rf", "data_dir": str(tmp_path), "instance": name}
    app = {**named, "static_membership": True, "web_port": port}
    return RingfenceApp(WorkerParts(validate({"app": app, "addresses": [{"name": "orders"}]}))).assignor


def _lead(assignor: Any, joined: dict[str, Any], partitions: int = 4) -> dict[str, Any]:
    cluster = SimpleNamespace(partitions_for_topic=lambda _: set(range(partitions)))
    return cast("dict[str, Any]", assignor.assign(cluster, joined))


def _partitions(assignment: Any) -> set[tuple[str, int]]:
    return {(topic, number) for topic, numbers in assignment.assignment for number in numbers}


def _described(assignor: Any, name: str, given: Any) -> Member:
    """As the group shows it: with what it said when it joined, and what it was given then."""
    said = ConsumerProtocol.METADATA.decode(assignor.metadata(TOPICS).encode())
    assignor.on_assignment(given)
    return Member(name, None, said, _partitions(given))


@pytest.mark.parametrize("before", [4, 2])
async def test_what_is_foreseen_is_what_the_group_then_gives(tmp_path: Path, before: int) -> None:
    """A newcomer restores the lanes that the group then assigns to it, both halves of each."""
    for order in itertools.permutations(["m1", "m2", "m3"]):
        workers = [await _assignor(tmp_path, name, 7000 + place) for place, name in enumerate("abc")]
        first, second, newcomer = workers
        alone = _lead(first, {order[0]: first.metadata(TOPICS)}, before)
        first.on_assignment(alone[order[0]])
        joined = {order[0]: first.metadata(TOPICS), order[1]: second.metadata(TOPICS)}
        given = _lead(second, joined, before)
        members = [
            _described(item, name, given[name]) for item, name in zip((first, second), order, strict=False)
        ]

        foreseen = newcomer.foresee(members, TOPICS, COUNTS)
        joined = {name: worker.metadata(TOPICS) for name, worker in zip(order, workers, strict=True)}
        decided = _lead(first, dict(sorted(joined.items())))[order[2]]

        assert foreseen == _partitions(decided)
        assert foreseen


@pytest.mark.parametrize("user_data", [None, b"", b"\xff\x00", b"[]", b"{}"])
async def test_nothing_is_foreseen(tmp_path: Path, user_data: bytes | None) -> None:
    """A rebalancing group permits no prediction, so lanes are restored when they open."""
    newcomer = await _assignor(tmp_path, "two")
    said = SimpleNamespace(subscription=["orders"], user_data=user_data)
    member = Member("one-1", None, None if user_data is None else said)
    assert newcomer.foresee([member], TOPICS, COUNTS) == set()


async def test_faust_s_own_assignor_understands_what_is_dealt(tmp_path: Path) -> None:
    """Workers of the first release may be in the group, and lead it."""
    ours = await _assignor(tmp_path, "one", 7001)
    theirs = PartitionAssignor(ours.app)
    given = _lead(ours, {"m1": ours.metadata(TOPICS), "m2": theirs.metadata(TOPICS)})
    theirs.on_assignment(given["m2"])  # holds it against what it knows, and its own URL
    ours.on_assignment(given["m1"])
    again = _lead(theirs, {"m1": ours.metadata(TOPICS), "m2": theirs.metadata(TOPICS)})
    ours.on_assignment(again["m1"])

    for member in ("m1", "m2"):
        assert sorted(again[member].assignment) == sorted(given[member].assignment)
        assert len(_partitions(given[member])) == 4


async def test_a_static_member_takes_what_its_predecessor_had(tmp_path: Path) -> None:
    """A static member takes its predecessor's lanes, even under another host and port."""
    before, after = await _assignor(tmp_path, "one", 7001), await _assignor(tmp_path, "one", 7002)
    given = _lead(before, {"m1": before.metadata(TOPICS)})["m1"]
    after.on_assignment(given)

    assert after.assigned_actives() == _partitions(given)


class Asked(ClusterDouble):
    """A cluster with these members, and lanes that note what they restore."""

    partition_counts = AsyncMock(return_value=COUNTS)

    def __init__(self, members: list[Member] | Exception, *, hangs: bool = False) -> None:
        self._members = members
        self._hangs = hangs
        self.restored: list[Any] = []

    async def static_members(self) -> list[Member]:
        if isinstance(self._members, Exception):
            raise self._members
        return self._members

    async def warm_up(self, partitions: Any) -> None:
        self.restored.append(partitions)
        if self._hangs:
            await asyncio.Event().wait()

    async def run(self, assignor: Any, instance: str | None = None) -> None:
        await restore_before_joining(cast("Lanes", self), cast("Cluster", self), assignor, TOPICS, instance)


async def test_nobody_waits_for_who_is_missed(tmp_path: Path) -> None:
    """A worker joins at once if its lanes are paused until then: in an empty group, or as a returning static member."""
    assignor = await _assignor(tmp_path, "two")
    back, other = Member("two-1", "two", None), Member("one-1", "one", None)
    for members, instance, restored in (([], None, []), ([back], "two", []), ([other], "two", [set()])):
        asked = Asked(members)
        await asked.run(assignor, instance)

        assert asked.restored == restored


async def test_joins_in_any_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker joins even if something keeps it from restoring before."""
    monkeypatch.setattr("app.worker.membership.assignor.RESTORE_LIMIT_S", 0.01)
    assignor = await _assignor(tmp_path, "two")
    await Asked(GroupLoadInProgressError()).run(assignor)
    hanging = Asked([Member("one-1", None, None)], hangs=True)
    await hanging.run(assignor)

    assert hanging.restored == [set()]

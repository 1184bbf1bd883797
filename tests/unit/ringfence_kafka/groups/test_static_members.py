"""The parts of static membership that aiokafka lacks.

The tests of workers cover the brokers' answers.
"""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError, UnknownMemberIdError
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest

from app.worker.membership import group as worker_group
from ringfence_kafka.aiokafka_patches import membership
from ringfence_kafka.aiokafka_patches.membership import FencedInstanceIdError, NamedHeartbeat
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import BrokerUnavailableError
from ringfence_kafka.groups import static_members
from ringfence_kafka.groups.static_members import DescribeMembers, LeaveByName


def _metadata(*topics: str) -> bytes:
    return bytes(ConsumerProtocolMemberMetadata(0, list(topics), b"").encode())


async def test_heartbeats_have_the_name() -> None:
    """Heartbeats alone carry the member's name. A fenced member is notified, whichever answer reveals it."""
    answer = SimpleNamespace(error_code=0)
    send, fenced = AsyncMock(return_value=answer), Mock()
    coordinator = SimpleNamespace(group_id="orders", generation=3, member_id="m", _send_req=send)
    membership.name_heartbeats(SimpleNamespace(_coordinator=coordinator), "orders-0", fenced)
    join = JoinGroupRequest("orders", 1, 1, "m", "orders-0", "consumer", [])
    for request in (HeartbeatRequest("orders", 3, "m"), join):
        await coordinator._send_req(request)

    sent = [call.args[0] for call in send.await_args_list]
    assert sent[1] is join
    assert isinstance(sent[0], NamedHeartbeat)
    prepared, named = sent[0].prepare({12: (0, 4)}), {"group_instance_id": "orders-0"}
    assert prepared.API_VERSION == 3
    assert prepared.to_object() == {"group": "orders", "generation_id": 3, "member_id": "m"} | named
    fenced.assert_not_called()
    answer.error_code = FencedInstanceIdError.errno
    await coordinator._send_req(join)
    fenced.assert_called_once_with()


class _Admin:
    def __init__(self, *members: tuple[str | None, bytes], refused: int = 0) -> None:
        self.become(*members)
        self._refused = refused
        self.left: list[str] = []

    def become(self, *members: tuple[str | None, bytes]) -> None:
        self._members = [("id", name, "client", "host", metadata, b"") for name, metadata in members]

    async def forget(self, *topics: str) -> bool:
        admin = cast("AIOKafkaAdminClient", self)
        return await static_members.forget_outdated(admin, "orders", "orders-0", set(topics))

    async def find_coordinator(self, _group: str) -> int:
        return 1

    async def _send_request(self, request: Any, _node: int) -> Any:
        if isinstance(request, DescribeMembers):
            return SimpleNamespace(groups=[(0, "orders", "Stable", "consumer", "p", self._members, 0)])
        assert isinstance(request, LeaveByName)
        self.left.append(request.prepare({13: (0, 5)}).to_object()["members"][0]["group_instance_id"])
        return SimpleNamespace(error_code=0, members=[("", "orders-0", self._refused)])


@pytest.mark.parametrize(
    ("name", "topics", "outdated"),
    [("orders-0", ("b", "a"), False), ("orders-0", ("a",), True), ("orders-1", ("a",), False)],
)
async def test_a_predecessor_with_other_topics_leaves(
    name: str | None, topics: tuple[str, ...], outdated: bool
) -> None:
    """A predecessor with other topics is removed, as its partitions would pass on unchanged. Other members stay."""
    admin = _Admin(("orders-9", _metadata("z")), (name, _metadata(*topics)))

    assert await admin.forget("a", "b") is outdated
    assert admin.left == (["orders-0"] if outdated else [])


@pytest.mark.parametrize(
    ("then", "outdated"), [([("a",)], False), ([("z",)], True), ([(), ("z",)], True), ([None], False)]
)
async def test_while_the_group_rebalances(
    monkeypatch: pytest.MonkeyPatch, then: list[tuple[str, ...] | None], outdated: bool
) -> None:
    """A rebalancing group is asked until it reports what its members read. One that was thrown out reads nothing."""
    admin = _Admin(("orders-0", b""))
    answers = iter(then)

    async def wait(_seconds: float) -> None:
        topics = next(answers)
        admin.become(*(() if topics is None else [("orders-0", _metadata(*topics) if topics else b"")]))

    monkeypatch.setattr(asyncio, "sleep", wait)

    assert await admin.forget("a") is outdated
    assert admin.left == (["orders-0"] if outdated else [])
    assert next(answers, "asked as often as needed") == "asked as often as needed"


async def test_a_group_that_never_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A predecessor in a group that never answers is removed after a while: its lanes move, and none stays unassigned."""
    monkeypatch.setattr(static_members, "SAYS_LIMIT_S", 0.2)

    assert await _Admin(("orders-0", b"")).forget("a")


async def test_gone_by_itself_or_refused() -> None:
    """A predecessor may be gone by then. A refusal raises, because lanes of an added address would have no worker."""
    assert await _Admin(("orders-0", _metadata("z")), refused=UnknownMemberIdError.errno).forget("a")
    with pytest.raises(KafkaError, match="orders-0"):
        await _Admin(("orders-0", _metadata("z")), refused=FencedInstanceIdError.errno).forget("a")


def _worker(**app: Any) -> Settings:
    return validate({"app": {"id": "rf", "instance": "orders-0", **app}, "addresses": [{"name": "orders"}]})


def test_what_a_worker_is_in_its_group() -> None:
    """A worker is a static member only if configured, because a static member does not announce that it leaves."""
    plain, static_one = _worker(), _worker(static_membership=True)

    assert worker_group.group_instance(plain) is None
    assert worker_group.group_instance(static_one) == "orders-0"
    assert worker_group.subscribed(plain) == {"orders", "rf-orders-forward"}
    assert "app.instance = orders-0" in worker_group.replaced(static_one)


async def test_a_group_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that does not answer is reported in one line with the way out, and without a trace."""
    silent = AsyncMock()
    silent.__aenter__.return_value.groups.await_coordinator.side_effect = GroupAuthorizationFailedError("rf")
    monkeypatch.setattr(worker_group, "Cluster", Mock(return_value=silent))
    said = r"rf does not report .* orders-0 .*: start this worker again"
    with pytest.raises(BrokerUnavailableError, match=said):
        await worker_group.renew(_worker(static_membership=True))

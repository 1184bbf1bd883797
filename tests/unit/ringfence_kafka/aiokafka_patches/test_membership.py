from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import (
    GroupLoadInProgressError,
    KafkaConnectionError,
    KafkaError,
    UnknownMemberIdError,
    for_code,
)
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest

from ringfence_kafka import aiokafka_patches
from ringfence_kafka.aiokafka_patches import membership
from ringfence_kafka.errors import named

JOIN = JoinGroupRequest("group", 1, 1, "member", "", "consumer", [])


class _Coordinator:
    def __init__(self, *answers: int | Exception) -> None:
        self.member_id = "member"
        self.did: list[str] = []
        self._answers = list(answers)

    async def _on_join_prepare(self, previous: Any) -> None:
        self.did.append(f"revoke {previous}")

    async def _send_req(self, _request: Any) -> Any:
        self.did.append("asked")
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(error_code=answer)


def _rejoining(*answers: int | Exception) -> _Coordinator:
    coordinator = _Coordinator(*answers)
    membership.revoke_late(SimpleNamespace(_coordinator=coordinator))
    return coordinator


async def test_goes_on_until_the_group_shares_out() -> None:
    """A member keeps its partitions until the answer to its join, whatever heartbeats are answered meanwhile."""
    coordinator = _rejoining(0, 0)
    await coordinator._on_join_prepare("what was had")
    await coordinator._send_req(HeartbeatRequest("group", 1, "member"))
    before = list(coordinator.did)
    await coordinator._send_req(JOIN)

    assert before == ["asked"]
    assert coordinator.did == ["asked", "asked", "revoke what was had"]


async def test_goes_on_while_the_coordinator_cannot_say() -> None:
    """A member asks again while the coordinator cannot answer, and gives its partitions up only once."""
    coordinator = _rejoining(KafkaConnectionError(), GroupLoadInProgressError.errno, 0, 0)
    await coordinator._on_join_prepare("all")
    with pytest.raises(KafkaConnectionError):
        await coordinator._send_req(JOIN)
    await coordinator._send_req(JOIN)
    before = list(coordinator.did)
    await coordinator._send_req(JOIN)
    await coordinator._send_req(JOIN)

    assert before == ["asked"] * 2
    assert coordinator.did == ["asked"] * 3 + ["revoke all", "asked"]


async def test_no_member_any_more() -> None:
    """A removed member gives its partitions up at once, whether it learns that from the answer or has known it."""
    told = _rejoining(UnknownMemberIdError.errno)
    await told._on_join_prepare("all")
    await told._send_req(JOIN)
    knew = _rejoining()
    knew.member_id = JoinGroupRequest.UNKNOWN_MEMBER_ID
    await knew._on_join_prepare("all")

    assert told.did == ["asked", "revoke all"]
    assert knew.did == ["revoke all"]


def test_a_full_group_names_the_setting() -> None:
    """The client logs the class of an error that it does not handle, and raises its representation."""
    aiokafka_patches.install()
    refusal = for_code(81)()

    assert isinstance(refusal, membership.GroupMaxSizeReachedError)
    assert "group.max.size" in named(KafkaError(repr(refusal)))

"""Consumers of one group and topic that differ in their app.id."""

from typing import cast

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment as Given
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata as Said

from ringfence_client.consumer.assignor import KeepingAssignor, Owned
from ringfence_client.consumer.group_terms import APP_ID, require_app_id
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.errors import ConfigurationError
from tests.support.consumers.assignments import GroupDouble, assigned


def _member(app_id: str | None, owned: Owned, topic: str = "t") -> Said:
    return KeepingAssignor(topic, lambda: owned, app_id).metadata([topic])


def _share(members: dict[str, Said]) -> tuple[dict[str, list[int]], dict[str, str | None]]:
    given, told = assigned(members)
    return given, {name: APP_ID.refused_by(data) for name, data in told.items()}


@pytest.mark.parametrize(
    ("shop", "other", "winner"),
    [
        ({0: 1}, {}, "shop"),
        ({}, {0: 1}, "other"),
        ({0: 0}, {}, "shop"),
        ({0: 0, 1: 0}, {0: 7}, "other"),
        ({}, {}, "other"),
    ],
)
def test_who_holds_it_goes_on(shop: Owned, other: Owned, winner: str) -> None:
    """The holder of a partition keeps it, and a member with another app.id gets nothing and learns the reason."""
    given, refused = _share({"m1": _member("shop", shop), "m2": _member("other", other)})
    lucky, poor = ("m1", "m2") if winner == "shop" else ("m2", "m1")

    assert given == {lucky: [0, 1], poor: []}
    assert refused == {lucky: None, poor: winner}


def test_what_is_said_of_app_and_topic_does_not_mix() -> None:
    """A topic may have any name."""
    told: list[str] = []
    assignor = KeepingAssignor("app.id", dict, "shop", told.append)
    assignor.on_assignment(Given(0, [("app.id", [0])], b""))
    assignor.on_assignment(Given(0, [], b"\xff"))
    assignor.on_assignment(Given(0, [], APP_ID.refusal('"other"')))

    assert APP_ID.of(assignor.metadata(["app.id"]).user_data) == '"shop"'
    assert [APP_ID.of(said) for said in (b"[7]", None, b'{"a": 1}')] == [None] * 3
    assert told == ["other"]


async def test_who_may_join() -> None:
    """A consumer may join a group of its own app.id or of an unknown one. Another app.id is named, with the way out."""
    other = _member("other", {}, "u")
    for members in ((), (None,), (_member("shop", {}),), (other,), (_member(None, {}),)):
        await require_app_id(cast("Cluster", GroupDouble(*members)), "t", "shop")

    group = GroupDouble(_member("shop", {}), _member("other", {}))
    with pytest.raises(ConfigurationError, match=r"consumers of t with app\.id = other.* to change app\.id"):
        await require_app_id(cast("Cluster", group), "t", "shop")

"""Members of one group that state different terms."""

import json
from typing import Any, cast

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata as Said

from agents.bridge.plan import plans
from ringfence_client.consumer import group_terms
from ringfence_client.consumer.assignor import KeepingAssignor, Owned
from ringfence_client.consumer.group_terms import Terms
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.load import validate
from tests.support.consumers.assignments import GroupDouble, assigned

PARK, FLOW = {"on_dead_letter": "park"}, {"on_dead_letter": "flow"}


def _member(stated: Terms | None, owned: Owned, app_id: str | None = "shop") -> Said:
    return KeepingAssignor("t", lambda: owned, app_id, stated=stated).metadata(["t"])


def _share(members: dict[str, Said]) -> tuple[dict[str, list[int]], dict[str, Terms | None]]:
    given, told = assigned(members)
    return given, {name: group_terms.TERMS.refused_by(data) for name, data in told.items()}


def test_who_states_nothing_gets_nothing() -> None:
    """Holders continue. A member with other terms, or without any, gets nothing and learns the terms of the group."""
    holder, flow = _member(PARK, {0: 1}), _member(FLOW, {1: 5})
    given, refused = _share({"m1": holder, "m2": _member(None, {}), "m3": _member(PARK, {}, "other")})

    assert given == {"m1": [0, 1], "m2": [], "m3": []}
    assert refused == {"m1": None, "m2": PARK, "m3": None}
    assert _share({"m1": holder, "m2": flow}) == ({"m1": [], "m2": [0, 1]}, {"m1": FLOW, "m2": None})


def test_a_foreign_member_gets_nothing() -> None:
    """A member that states nothing of Ringfence gets no partition, even if others of the group state no terms either."""
    foreign = Said(0, ["t", "u"], b"")
    given, _ = _share({"m1": _member(None, {}, None), "foreign": foreign})

    assert given == {"m1": [0, 1], "foreign": []}


async def test_a_newcomer_looks_first() -> None:
    """Members of another topic, members that state nothing, and a group that does not answer keep nobody out."""

    async def found(*members: Any) -> str:
        return await group_terms.unlike(cast("Cluster", GroupDouble(*members)), "t", FLOW)

    elsewhere = Said(0, ["u"], json.dumps({group_terms.TERMS.key: PARK}).encode())

    assert await found(_member(PARK, {})) == 'on_dead_letter = "park" in the group and "flow" here'
    assert await found(_member(FLOW, {}), _member(None, {})) == ""
    assert await found(elsewhere, None) == ""
    assert await found() == ""
    assert await found(Said(0, ["t"], b"\xff")) == ""


@pytest.mark.parametrize(
    "changed",
    [
        {"filter_values": ["be"]},
        {"add_headers": {"by": "another"}},
        {"target_address": "stock"},
        {"user_ids": "ignore"},
        {"use_duplicate_detection": False},
    ],
)
def test_terms_of_a_bridge(changed: dict[str, Any]) -> None:
    """Filter, headers, target and detection are terms, and survive JSON. The brokers' addresses are none."""

    def stated(servers: str = "b:9092", **keys: Any) -> Terms:
        bridge = {
            "name": "b", "source_topic": "s", "target_address": "orders", "target": {"bootstrap_servers": servers},
            "filter_header": "land", "filter_values": ["fr"], **keys,
        }  # fmt: skip
        (plan,) = plans(validate({"bridges": [bridge]}))
        return plan.terms

    assert json.loads(json.dumps(stated())) == stated()
    assert group_terms.differences(stated(), stated("c:9092")) == ""
    assert group_terms.differences(stated(), stated(**changed)) != ""

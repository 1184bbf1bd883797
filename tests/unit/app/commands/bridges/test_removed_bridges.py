import socket
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest

from agents.bridge.offsets import OffsetMetadata, encode
from agents.bridge.plan import plans
from app.commands.bridges import removed_bridges
from app.commands.bridges.removed_bridges import Left
from app.commands.status.model import LeftBridge
from ringfence_kafka.config.load import validate
from ringfence_kafka.groups.committed_offsets import Committed
from tests.support.statuses import STATUS, only

MEMBERS = [{"name": "berlin"}, {"name": "paris", "bootstrap_servers": "p:9092"}]
CONNECTION = {
    "name": "eu",
    "this": "berlin",
    "addresses": ["orders"],
    "load_balancing": "strict",
    "members": MEMBERS,
}
SETTINGS = validate({
    "app": {"id": "shop"}, "addresses": [{"name": "orders"}, {"name": "orders.shared"}], "cluster_connections": [CONNECTION],
    "bridges": [{"name": "west", "source_topic": "s", "target_address": "orders"}],
})  # fmt: skip


async def test_names() -> None:
    """A consumer group is left over if it belongs to a bridge of this application that is not configured.

    A foreign group with such a name does not count as a bridge's.
    """
    for group, left in {
        "shop-bridge-west": False,
        "shop-bridge-east": True,
        "shop": False,
        "billing": False,
        "other-bridge-east": False,
        "shop-bridge-eu.berlin.paris.orders": False,
        "shop-bridge-eu.berlin.rome.orders": False,  # of a former member its connection's start tells
        "shop-bridge-eu.berlin.rome.payments": True,
    }.items():
        assert removed_bridges._is_left(group, "shop", plans(SETTINGS)) is left, group

    committed = {0: Committed(5, encode(OffsetMetadata(forwarded=5))), 1: Committed(7, "somebody's")}
    beside = AsyncMock(side_effect=lambda _, partition: committed.get(partition))
    cluster: Any = SimpleNamespace(groups=SimpleNamespace(committed=beside))
    found = await removed_bridges._notes(cluster, [("t", 0), ("t", 1), ("t", 2)])
    assert found == {"t": {0: (5, OffsetMetadata(forwarded=5))}}


@pytest.mark.parametrize("reader", [None, "west"])
def test_finding(reader: str | None) -> None:
    """A removed bridge is a problem, unless another bridge reads its topic."""
    left = Left("east", "shop-bridge-east", "kafka:9092", "s", 1, reader)
    bridge = LeftBridge(left.bridge, left.what, left.do, stands=left.read_by is None)
    found = only(replace(STATUS, left_bridges=[bridge]))

    assert (found.where, found.stands) == ("bridge east", reader is None)
    assert "up to 1 message waits in s at kafka:9092 that it has not forwarded" in found.what
    assert ("bridge west reads that topic too" in found.what) is bool(reader)
    assert found.do.endswith("--delete --group shop-bridge-east")


async def test_a_cluster_that_does_not_answer() -> None:
    """A cluster without an answer is reported as a problem, and not as a cluster without removed bridges."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    settings = validate({"kafka": {"bootstrap_servers": f"127.0.0.1:{port}"}, "app": {"id": "shop"}})
    with patch.object(removed_bridges, "ANSWER_LIMIT_S", 0.5):
        left, (fault,) = await removed_bridges.find_removed(settings)

    assert left == []
    assert fault.startswith(
        f"bridges that were removed from the configuration are unknown at 127.0.0.1:{port}: "
    )

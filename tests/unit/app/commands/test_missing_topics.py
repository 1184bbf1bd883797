import contextlib
from typing import Any
from unittest.mock import AsyncMock

import pytest

from app.commands.consumers.leases import read_leases
from app.commands.groups.show import progresses
from app.commands.repair.dead_letters import require_accepted
from app.commands.send import send
from ringfence_client.partition import topics
from ringfence_kafka.admin.topics import Described
from ringfence_kafka.config.load import validate
from ringfence_kafka.errors import TopicError
from tests.support.cluster_double import ClusterDouble

SETTINGS = validate({"addresses": [{"name": "orders"}]})
ADDRESS = SETTINGS.addresses[0]


class _Nothing(ClusterDouble):
    group_id = "g"
    partition_counts = AsyncMock(return_value={})


async def test_no_accepted_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing accepted topic ends with exit code 2, because 1 would mean that nothing was found."""
    cluster: Any = _Nothing()
    monkeypatch.setattr("app.commands.consumers.leases.Cluster", lambda *_: cluster)

    for asked in (
        read_leases(SETTINGS, "orders.accepted"),
        progresses(SETTINGS, ADDRESS, cluster),
        topics.prepare(SETTINGS, ADDRESS, cluster),
        require_accepted(cluster, ADDRESS),
    ):
        with pytest.raises(TopicError, match=r"orders\.accepted") as caught:
            await asked

        assert caught.value.exit_code == 2


@pytest.mark.parametrize("refused", [(), ("orders",)])
async def test_no_topic_to_send_to(refused: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that does not exist, or that this user may not see, cannot be sent to."""
    monkeypatch.setattr(send, "connected", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(send, "describe", AsyncMock(return_value=Described({}, frozenset(refused))))

    with pytest.raises(TopicError, match="topic 'orders'") as caught:
        await send.input_topic(SETTINGS.kafka, "orders")

    assert caught.value.exit_code == 2

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from confluent_kafka import KafkaError, KafkaException

from app.commands.consumers.leases import read_leases
from app.commands.groups.show import progresses
from app.commands.repair.dead_letters import require_accepted
from app.commands.send import send
from ringfence_client.partition import topics
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


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_no_topic_to_send_to(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that does not exist, or that this user may not see, cannot be sent to."""
    refused: Future[Any] = Future()
    refused.set_exception(KafkaException(KafkaError(code)))
    admin = SimpleNamespace(describe_topics=lambda *_, **__: {"orders": refused})
    monkeypatch.setattr(send, "AdminClient", lambda _: admin)

    with pytest.raises(TopicError, match="topic 'orders'") as caught:
        send.partition_count(SETTINGS.kafka, "orders")

    assert caught.value.exit_code == 2

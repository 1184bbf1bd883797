from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import TopicAuthorizationFailedError, UnknownTopicOrPartitionError

from ringfence_kafka.admin import topic_admin
from ringfence_kafka.admin.topics import TopicDescription


class Brokers:
    """One shows the topic; the one that is asked for its settings answers with each of these codes in turn."""

    def __init__(self, *codes: int) -> None:
        self._codes = iter(codes)

    async def _send_request(self, _request: Any, _node: int | None) -> Any:
        topics = [{"topic": "t", "error_code": 0, "partitions": [{}, {}]}]
        return SimpleNamespace(to_object=lambda: {"topics": topics})

    async def describe_configs(self, _resources: Any) -> Any:
        code = next(self._codes)
        settings = [] if code else [("retention.ms", "5")]
        return [SimpleNamespace(resources=[(code, None, 2, "t", settings)])]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (0, {"t": TopicDescription("t", 2, {"retention.ms": "5"})}),
        (UnknownTopicOrPartitionError.errno, {}),
        (TopicAuthorizationFailedError.errno, {"t": TopicDescription("t", 2, None)}),
    ],
)
async def test_settings(code: int, found: dict[str, TopicDescription]) -> None:
    """A broker that does not know the topic yet has refused nothing."""
    brokers: Any = Brokers(code)

    assert (await topic_admin.describe(brokers, ["t"])).topics == found


async def test_just_made() -> None:
    brokers: Any = Brokers(UnknownTopicOrPartitionError.errno, UnknownTopicOrPartitionError.errno, 0)

    found = await topic_admin.appeared(brokers, ["t"], 60)

    assert found["t"].config == {"retention.ms": "5"}

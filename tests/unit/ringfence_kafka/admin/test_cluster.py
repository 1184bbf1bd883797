"""Answers of the cluster that a real broker cannot be made to give on demand."""

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import CoordinatorLoadInProgressError, TopicAuthorizationFailedError

from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import KafkaSettings


class _Coordinator:
    def __init__(self, offset: int, partition_error: int = 0, error: int = 0) -> None:
        topics = [] if error else [("orders", [(0, offset, -1, "", partition_error)])]
        self._answer = SimpleNamespace(topics=topics, error_code=error)

    async def find_coordinator(self, group: str) -> int:
        return 1

    async def _send_request(self, _request: Any, _node: int) -> Any:
        return self._answer


async def _committed(*answer: int) -> int | None:
    cluster = Cluster(KafkaSettings(), "group")
    cluster.connection.admin = _Coordinator(*answer)
    return await cluster.groups.committed_offset("orders", 0)


async def test_committed() -> None:
    assert [await _committed(offset) for offset in (7, 0, -1)] == [7, 0, None]


async def test_coordinator_that_cannot_say() -> None:
    """A coordinator that loads or refuses raises an error, because a lane without an offset would begin at the log's start."""
    with pytest.raises(CoordinatorLoadInProgressError):
        await _committed(-1, 0, 14)
    with pytest.raises(TopicAuthorizationFailedError):
        await _committed(-1, 29)

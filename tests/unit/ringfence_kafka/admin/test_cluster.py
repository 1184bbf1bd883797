"""Answers of the cluster that a real broker cannot be made to give on demand."""

from typing import Any

import pytest
from aiokafka.errors import CoordinatorLoadInProgressError, TopicAuthorizationFailedError
from aiokafka.protocol.commit import OffsetFetchResponse_v3

from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import KafkaSettings


class _Coordinator:
    def __init__(self, offset: int, partition_error: int = 0, error: int = 0) -> None:
        partitions = [] if error else [(0, offset, "", partition_error)]
        self._answer = OffsetFetchResponse_v3(0, [("orders", partitions)] if partitions else [], error)

    async def find_coordinator(self, group: str) -> int:
        return 1

    async def _send_request(self, _request: Any, _node: int) -> Any:
        return self._answer


def _cluster(coordinator: _Coordinator) -> Cluster:
    cluster = Cluster(KafkaSettings(), "group")
    cluster.connection.admin = coordinator
    return cluster


async def test_committed() -> None:
    assert await _cluster(_Coordinator(7)).groups.committed_offset("orders", 0) == 7
    assert await _cluster(_Coordinator(0)).groups.committed_offset("orders", 0) == 0
    assert await _cluster(_Coordinator(-1)).groups.committed_offset("orders", 0) is None


async def test_coordinator_that_cannot_say() -> None:
    """A coordinator that loads or refuses raises an error, because a lane without an offset would begin at the log's start."""
    with pytest.raises(CoordinatorLoadInProgressError):
        await _cluster(_Coordinator(-1, error=14)).groups.committed_offset("orders", 0)
    with pytest.raises(TopicAuthorizationFailedError):
        await _cluster(_Coordinator(-1, partition_error=29)).groups.committed_offset("orders", 0)

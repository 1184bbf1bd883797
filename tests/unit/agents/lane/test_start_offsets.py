"""Start offsets of a lane in partitions without a leader."""

from collections.abc import Collection
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaTimeoutError

from agents.lane.opening.identity import LaneIdentity
from agents.lane.opening.start_offsets import StartOffsets
from agents.lane.opening.topic_facts import TopicFacts
from agents.output.topic_batches import Outputs
from ringfence_kafka.admin.topics import TopicDescription
from ringfence_kafka.config.load import validate
from ringfence_kafka.groups.committed_offsets import Committed
from tests.support.cluster_double import ClusterDouble

PARTITIONS = 3
START, END = 2, 90


class Offsets(ClusterDouble):
    """A cluster that reports offsets only for partitions with a leader."""

    def __init__(self, leaderless: Collection[int], committed: dict[int, int]) -> None:
        self._leaderless = leaderless
        self._committed = committed

    async def log_start(self, _topic: str, partition: int) -> int:
        return self._told(partition, START)

    async def high_watermark(self, _topic: str, partition: int) -> int:
        return self._told(partition, END)

    async def committed(self, _topic: str, partition: int) -> Committed | None:
        return Committed(self._committed[partition], "") if partition in self._committed else None

    def _told(self, partition: int, offset: int) -> int:
        if partition in self._leaderless:
            raise KafkaTimeoutError(f"no broker reports the offsets of orders/{partition}")
        return offset


async def _begin(lanes: int, leaderless: Collection[int], committed: dict[int, int]) -> dict[int, int] | None:
    """Return the first offset of each partition of lane 0; None = it waits for an answer."""
    settings = validate({"addresses": [{"name": "orders", "lanes": lanes}]})
    address = settings.addresses[0]
    topics = address.topics(settings.app.id).values()
    facts = TopicFacts(
        {name: TopicDescription(name, PARTITIONS, {}) for name in topics},
        Outputs({}, {}, {}),
        0.0,
        dict.fromkeys(topics, "id"),
    )
    starts = StartOffsets(
        LaneIdentity.of(settings, address, 0),
        cast("Any", Offsets(leaderless, committed)),
        None,
        lambda: True,
        lambda _: None,
    )
    try:
        cursors = await starts.cursors(facts, None)
    except KafkaTimeoutError:
        return None
    return {partition: cursor.next for (topic, partition), cursor in cursors.items() if topic == "orders"}


async def test_other_partitions_go_on() -> None:
    """A partition without a leader begins where the group was."""
    assert await _begin(1, {1}, {0: 5, 1: 7}) == {0: 5, 1: 7, 2: START}


@pytest.mark.parametrize(
    ("lanes", "leaderless", "committed"),
    [
        pytest.param(1, {1}, {0: 5}, id="never read"),
        pytest.param(1, {0, 1, 2}, {0: 5, 1: 7, 2: 9}, id="no leader at all"),
        pytest.param(0, {0}, {0: 5}, id="its only partition"),
    ],
)
async def test_lane_waits(lanes: int, leaderless: Collection[int], committed: dict[int, int]) -> None:
    """A lane waits if nobody knows an offset, or if nothing could flow."""
    assert await _begin(lanes, leaderless, committed) is None

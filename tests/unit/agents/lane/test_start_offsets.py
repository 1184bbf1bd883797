"""Start offsets of a lane in partitions without a leader, and in one that lost its tail."""

from collections.abc import Collection
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaTimeoutError

from agents.lane.errors import LaneRefusedError
from agents.lane.opening.identity import LaneIdentity
from agents.lane.opening.lane_checks import TopicFacts
from agents.lane.opening.start_offsets import StartOffsets
from agents.output.topic_batches import Outputs
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
        self.end = END

    async def log_start(self, _topic: str, partition: int) -> int:
        return self._told(partition, START)

    async def high_watermark(self, _topic: str, partition: int) -> int:
        return self._told(partition, self.end)

    async def committed(self, _topic: str, partition: int) -> Committed | None:
        return Committed(self._committed[partition], "") if partition in self._committed else None

    def _told(self, partition: int, offset: int) -> int:
        if partition in self._leaderless:
            raise KafkaTimeoutError(f"no broker reports the offsets of orders/{partition}")
        return offset


def _starts(lanes: int, offsets: Offsets, notes: list[str]) -> tuple[StartOffsets, TopicFacts]:
    settings = validate({"addresses": [{"name": "orders", "lanes": lanes}]})
    address = settings.addresses[0]
    topics = address.topics(settings.app.id).values()
    facts = TopicFacts(Outputs(dict.fromkeys(topics, PARTITIONS), {}, {}), 0.0, dict.fromkeys(topics, "id"))
    identity: Any = LaneIdentity.of_lane(settings, address, 0)
    starts = StartOffsets(identity, cast("Any", offsets), None, lambda: True, notes.append)
    return starts, facts


@pytest.mark.parametrize(
    ("lanes", "leaderless", "committed", "begins"),
    [
        pytest.param(1, {1}, {0: 5, 1: 7}, {0: 5, 1: 7, 2: START}, id="where the group was"),
        pytest.param(1, {1}, {0: 5}, None, id="never read"),
        pytest.param(1, {0, 1, 2}, {0: 5, 1: 7, 2: 9}, None, id="no leader at all"),
        pytest.param(0, {0}, {0: 5}, None, id="its only partition"),
    ],
)
async def test_other_partitions_go_on(
    lanes: int, leaderless: Collection[int], committed: dict[int, int], begins: dict[int, int] | None
) -> None:
    """A partition without a leader begins where the group was. A lane waits if nobody knows an offset, or if nothing could flow."""
    starts, facts = _starts(lanes, Offsets(leaderless, committed), [])
    try:
        cursors = await starts.cursors(facts, None)
    except KafkaTimeoutError:
        assert begins is None
        return

    assert {number: cursor.next for (topic, number), cursor in cursors.items() if topic == "orders"} == begins


async def test_a_log_that_grew_again_beyond_the_position() -> None:
    """A lane that waited for a log without its tail reports the offsets that it skips when the log has grown."""
    notes: list[str] = []
    offsets = Offsets([], {0: END + 10})
    starts, facts = _starts(0, offsets, notes)
    for _ in range(2):
        with pytest.raises(LaneRefusedError, match="delete orders, run 'ringfence topics create'"):
            await starts.cursors(facts, None)
    offsets.end = END + 20
    cursors = await starts.cursors(facts, None)
    await starts.cursors(facts, None)

    assert cursors["orders", 0].next == END + 10
    assert [note for note in notes if note.startswith("orders/0 ended")] == [
        "orders/0 ended at 90, and the lane continues at 100: it does not judge new messages between them. Send them again"
    ]

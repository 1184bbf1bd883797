"""A follower that has not what is asked for is no reason to read a log from its beginning, or to give it up."""

import asyncio
import importlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.protocol.fetch import FetchResponse_v11

from tests.support.raw import Stored, stored

TP: Final = TopicPartition("orders", 0)
LEADER: Final = 1
FOLLOWER: Final = 2
OUT_OF_RANGE: Final = 1
LIMIT_S: Final = 20.0
Answer = tuple[int, int, bytes]
"""Error, preferred replica, records."""


class Broker:
    """A connection to one of two: what they answer to fetches, in turn."""

    def __init__(self, node: int, answers: Iterator[Answer], asked: list[tuple[int, int]]) -> None:
        self._node = node
        self._answers = answers
        self._asked = asked

    async def send(self, request: Any, *, expect_response: bool) -> Any:
        assert expect_response
        await asyncio.sleep(0)
        ((topic, ((number, offset, _),)),) = request.topics  # of anything but a fetch there are none
        self._asked.append((self._node, offset))
        error, preferred, records = next(self._answers, (0, -1, b""))
        return FetchResponse_v11(0, 0, 0, [(topic, [(number, error, 9, 9, 0, [], preferred, records)])])


@asynccontextmanager
async def _fetching(
    answers: Sequence[Answer], reset: str, rack: str
) -> AsyncIterator[tuple[Fetcher, Any, list[tuple[int, int]]]]:
    """Aiokafka's own fetcher and client, from offset 5 on; its position, and broker and offset of each fetch."""
    importlib.import_module("ringfence_kafka.insides")
    client = AIOKafkaClient(bootstrap_servers="nowhere:1")
    left, asked = iter(answers), list[tuple[int, int]]()

    async def ready(node: int, *, group: Any) -> bool:
        client._conns[node, group] = Broker(node, left, asked)
        return True

    client.ready = ready
    client.cluster.leader_for_partition = lambda _: LEADER
    client.cluster.broker_metadata = lambda node: node
    client.force_metadata_update = lambda: asyncio.get_running_loop().create_future()
    subscriptions = SubscriptionState()
    subscriptions.assign_from_user([TP])
    subscriptions.seek(TP, 5)
    fetcher = Fetcher(client, subscriptions, auto_offset_reset=reset, client_rack=rack, retry_backoff_ms=1)
    try:
        yield fetcher, subscriptions.subscription.assignment.state_value(TP), asked
    finally:
        client._conns.clear()
        await fetcher.close()


@pytest.mark.parametrize("reset", ["earliest", "none"])
async def test_the_leader_is_asked(reset: str) -> None:
    """Where it was, and without an error; from its answer on it may send to the follower again."""
    answers = [
        (0, FOLLOWER, b""),
        (OUT_OF_RANGE, -1, b""),
        (0, FOLLOWER, b""),
        (0, -1, stored([Stored(5), Stored(6)])),
    ]
    async with _fetching(answers, reset, "b") as (fetcher, state, asked), asyncio.timeout(LIMIT_S):
        records = await fetcher.fetched_records([TP], timeout=LIMIT_S)

        assert [each.offset for each in records[TP]] == [5, 6]
        assert asked[:4] == [(LEADER, 5), (FOLLOWER, 5), (LEADER, 5), (FOLLOWER, 5)]
        assert state.position == 7


@pytest.mark.parametrize("rack", ["", "b"])
async def test_the_leader_is_believed(rack: str) -> None:
    """What it does not have any more is gone."""
    answers = [(OUT_OF_RANGE, -1, b"")]
    async with _fetching(answers, "none", rack) as (fetcher, _, asked), asyncio.timeout(LIMIT_S):
        with pytest.raises(OffsetOutOfRangeError):
            await fetcher.fetched_records([TP], timeout=LIMIT_S)

        assert asked[0] == (LEADER, 5)

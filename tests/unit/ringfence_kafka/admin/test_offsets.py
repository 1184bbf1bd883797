import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, NotLeaderForPartitionError, TopicAuthorizationFailedError

from ringfence_kafka.admin.offsets import OffsetReader
from ringfence_kafka.concurrency.coalesce import StoppedError

PARTITIONS = [("orders", number) for number in range(6)]
LIMIT_S = 30.0


class Client:
    """Two brokers that lead three partitions each."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        """Broker, and how many partitions."""
        self.codes: dict[int, list[int]] = {}
        """Error codes that a partition is answered with, one after the other; afterwards it is answered without an error."""
        self.leaders: dict[int, int | None] = {number: number // 3 for _, number in PARTITIONS}
        self.away: list[int] = []
        self.silent: int | None = None
        """A broker that never answers."""
        self.updates = 0
        self.cluster = SimpleNamespace(leader_for_partition=lambda tp: self.leaders[tp.partition])

    async def _maybe_wait_metadata(self) -> None:
        await asyncio.sleep(0)

    def add_topic(self, topic: str) -> None:
        pass

    def force_metadata_update(self) -> None:
        self.updates += 1
        self.leaders = {number: number // 3 for _, number in PARTITIONS}

    async def send(self, node: int, numbers: list[int]) -> Any:
        await asyncio.sleep(0)
        self.asked.append((node, len(numbers)))
        if node == self.silent:
            await asyncio.Event().wait()
        if node in self.away:
            self.away.remove(node)
            raise KafkaConnectionError
        rows = []
        for number in numbers:
            codes = self.codes.get(number, [])
            rows.append((number, codes.pop(0) if codes else 0, -1, 100 + number))
        return SimpleNamespace(topics=[("orders", rows)])


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    def asked(_replica: int, _isolation: int, topics: list[Any]) -> list[int]:
        return [number for _, partitions in topics for number, *_ in partitions]

    monkeypatch.setattr("ringfence_kafka.admin.offsets.OffsetRequest", asked)
    return Client()


def _reader(client: Client) -> OffsetReader:
    connection: Any = SimpleNamespace(consumer=SimpleNamespace(client=client))
    return OffsetReader(connection)


def _all(*without: int) -> dict[tuple[str, int], int]:
    return {("orders", number): 100 + number for _, number in PARTITIONS if number not in without}


async def test_only_those_again_that_had_no_answer(client: Client) -> None:
    """Only partitions without an answer are asked for again: a moved one, and those of a broker that was away."""
    client.codes[1] = [NotLeaderForPartitionError.errno]
    client.away = [1]
    found = await _reader(client).known_starts(PARTITIONS, LIMIT_S)

    assert found == _all()
    assert sorted(client.asked) == [(0, 1), (0, 3), (1, 3), (1, 3)]
    assert client.updates >= 1


async def test_others_have_their_answers(client: Client) -> None:
    """A refused partition and a leader that is away take no other answer away, and the refused one is not asked for again."""
    client.codes[3] = [TopicAuthorizationFailedError.errno] * 9
    client.codes[4] = [NotLeaderForPartitionError.errno] * 30
    found = await _reader(client).known_ends(PARTITIONS, 0.3)

    assert found == _all(3, 4)
    assert {asked for asked in client.asked[2:] if asked[0] == 1} == {(1, 1)}


async def test_a_silent_broker_takes_no_other_answer_away(client: Client) -> None:
    client.silent = 0
    assert await _reader(client).known_ends(PARTITIONS, 0.3) == _all(0, 1, 2)


async def test_nobody_is_answered_after_the_end(client: Client) -> None:
    offsets = _reader(client)
    await offsets.stop()

    with pytest.raises(StoppedError):
        await offsets.known_ends(PARTITIONS, LIMIT_S)

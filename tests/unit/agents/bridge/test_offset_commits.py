"""Commits of a bridge: offsets, their metadata, and the steps that wait for them."""

import asyncio
from collections.abc import Mapping
from typing import cast

import pytest
from aiokafka.errors import KafkaTimeoutError

from agents.bridge.flow import Flow
from agents.bridge.offset_commits import Committer
from agents.bridge.offsets import AT_REST, OffsetMetadata, decode
from agents.bridge.partitions import Partitions
from agents.bridge.producer_sessions import ProducerSessions
from agents.bridge.source import SourceConsumer
from agents.bridge.state import REFUSED, TARGET, BridgeState, PartitionState
from ringfence_kafka.groups.committed_offsets import Committed
from tests.support.bridges.plans import plan

TOPIC_ID = "A" * 22


class _Consumer:
    def __init__(self) -> None:
        self.committed: dict[int, tuple[int, OffsetMetadata]] = {}
        self.fails = False

    async def commit(self, offsets: Mapping[int, Committed]) -> None:
        if self.fails:
            raise KafkaTimeoutError("away")
        for number, committed in offsets.items():
            note = decode(committed.note)
            assert note is not None
            self.committed[number] = committed.offset, note


class _Bridge:
    def __init__(self) -> None:
        self.state = BridgeState("b")
        self.flow = Flow(plan(), self.state, None)
        self.committer = Committer(self.state, self.flow.window, "i", "")
        self.consumer = _Consumer()
        partitions = cast("Partitions", None)
        self.lives = ProducerSessions(self.flow, self.committer, partitions, "i", asyncio.Event())

    def open(self, number: int, offset: int, sent: int = 0) -> None:
        self.state.partitions[number] = PartitionState(OffsetMetadata(TOPIC_ID, 1))
        self.flow.window.open(number, TOPIC_ID, offset, sent)

    async def commit(self, *, last: bool = False) -> None:
        await self.committer.commit(cast("SourceConsumer", self.consumer), last=last)


@pytest.fixture
async def given() -> _Bridge:
    return _Bridge()


async def test_nothing_is_read_before_the_beginning_is_committed(given: _Bridge) -> None:
    """A bridge reads a partition only after it has committed the begin offset, at each opening."""
    given.open(0, 50)
    given.consumer.fails = True
    await given.commit()
    assert given.lives._wanted() == {}
    given.consumer.fails = False
    await given.commit()
    assert given.lives._wanted() == {0: 50}
    assert given.consumer.committed[0][0] == 50
    given.flow.window.close([0])
    given.open(0, 70)

    assert given.lives._wanted() == {}


async def test_note_says_what_stops_the_partition(given: _Bridge) -> None:
    """The metadata contains the partition's own reason to stop, else the common one, and none after it resumes."""
    given.open(0, 5)
    given.open(1, 5)
    given.state.fail(TARGET, "target: away")
    given.state.stop(REFUSED, 1, "stopped: full")
    await given.commit()
    assert [note.error for _, note in given.consumer.committed.values()] == ["target: away", "stopped: full"]
    assert given.consumer.committed[1][1].since_ms > 0
    given.state.recover(TARGET)
    given.state.go_on(REFUSED, 1)
    await given.commit()

    assert [note.error for _, note in given.consumer.committed.values()] == ["", ""]


async def test_at_rest(given: _Bridge) -> None:
    """Only the last commit marks a partition as at rest, and only if nobody has sent more of it."""
    given.open(0, 5)
    given.open(1, 5, sent=9)
    await given.commit()
    assert [note.still for _, note in given.consumer.committed.values()] == ["", ""]
    await given.commit(last=True)

    assert [note.still for _, note in given.consumer.committed.values()] == [AT_REST, ""]
    assert [note.sent for _, note in given.consumer.committed.values()] == [0, 9]

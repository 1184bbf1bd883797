"""A store of states after reads that fail, and beside writes of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaConnectionError

from ringfence_client.sends.outbox import Outbox
from ringfence_client.sends.state_layout import StateLayout
from ringfence_client.sends.state_store import StateCache, StateStore


class StateTopic:
    """A state topic of one partition, as a store reads it."""

    state_topic = "app-readers-orders.accepted-state"

    def __init__(self, *records: tuple[bytes, bytes | None]) -> None:
        self.records = [
            SimpleNamespace(offset=offset, key=key, value=value)
            for offset, (key, value) in enumerate(records)
        ]
        self.partitions = 1 if records else 0
        self.is_away = False
        self.reading: Callable[[], Awaitable[None]] | None = None
        """Awaited in the middle of a read."""
        self.cache = StateCache(300)
        self.cluster = SimpleNamespace(offsets=self)
        self.destinations = self.log_reader = self
        self.layout = StateLayout(cast(Any, self.cluster), cast(Any, self))

    def new_number(self) -> int:
        return 1

    async def state_partitions(self, *, create: bool) -> int:
        if create:
            self.partitions = 1
        return self.partitions

    def forget_state_topic(self) -> None:
        """Nothing is kept."""

    async def log_start(self, _topic: str, _partition: int) -> int:
        if self.is_away:
            raise KafkaConnectionError
        return 0

    async def high_watermark(self, _topic: str, _partition: int) -> int:
        return len(self.records)

    async def read_range(
        self, _topic: str, _partition: int, start: int, end: int, consume: Callable[[Sequence[Any]], Any]
    ) -> int:
        for record in self.records[start:end]:
            if self.reading is not None:
                await self.reading()
            await consume([record])
        return end


def _store(topic: StateTopic) -> StateStore:
    return StateStore(cast("Any", topic), Outbox())


async def test_a_state_that_could_not_be_read_is_not_missing() -> None:
    """A state that could not be read is not missing: the topic's value counts even if another group has set its state."""
    topic = StateTopic((b"a", b"1"), (b"b", b"2"))
    store = _store(topic)
    topic.is_away = True
    with pytest.raises(KafkaConnectionError):
        await store.load(b"b")

    await store.prepare()
    topic.is_away = False
    assert not store.is_known(b"b")
    assert await store.load(b"b") == b"2"


@pytest.mark.parametrize("state", [b"3", None])
@pytest.mark.parametrize("offsets", [{}, {b"b": 2}])
async def test_a_write_beside_a_read(state: bytes | None, offsets: dict[bytes, int]) -> None:
    """The partition is read again for one group while another one writes: its last state stays the last one."""
    topic = StateTopic((b"b", b"1"), (b"a", b"2"))
    store = _store(topic)
    assert await store.load(b"a") == b"2"
    store.committed({b"a": b"2"}, {})  # where it stands was not told, and it is evicted
    topic.cache.put(1, b"c", b"other")

    async def write() -> None:
        topic.reading = None
        await asyncio.sleep(0)
        store.committed({b"b": state}, offsets)

    topic.reading = write
    assert await store.load(b"a") == b"2"
    known = store.peek(b"b") if store.is_known(b"b") else "to be read"
    assert known in ({None} if state is None else {b"3", "to be read"})
    if state is not None:
        topic.records.append(SimpleNamespace(offset=2, key=b"b", value=state))
        assert await store.load(b"b") == state

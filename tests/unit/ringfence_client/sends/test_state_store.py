"""The states of groups, in front of the state topic."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, UnknownTopicOrPartitionError

from ringfence_client.sends.destinations import Destinations
from ringfence_client.sends.outbox import Outbox
from ringfence_client.sends.state_reader import StateCache, StateReader
from ringfence_client.sends.state_store import UNREAD, StateStore
from ringfence_client.sends.target_topics import HiddenTopicError, SendError
from ringfence_client.testing.memory_cluster import MemoryCluster, MemoryLogs
from ringfence_kafka.config.load import validate

SETTINGS = validate({"app": {"id": "shop"}, "addresses": [{"name": "orders"}]})
TOPIC = "shop-billing-orders.accepted-state"


class _Reader(StateReader):
    """Over logs in memory; counts what is read."""

    def __init__(self, logs: MemoryLogs, cache_bytes: int = 2**20) -> None:
        cluster: Any = MemoryCluster(logs)
        super().__init__(cluster, Destinations(SETTINGS, SETTINGS.addresses[0], "billing", cluster), self)
        self.cache = StateCache(cache_bytes)
        self.memory = MemoryCluster(logs)
        self.read: list[tuple[int, int]] = []
        self.error: Exception | None = None
        self.reading: Callable[[], Awaitable[None]] | None = None
        """Awaited during a read."""

    async def read_range(self, topic: str, partition: int, start: int, end: int, consume: Any) -> int:
        if self.error is not None:
            raise self.error
        if self.reading is not None:
            await self.reading()
        self.read.append((start, end))
        return await self.memory.read_range(topic, partition, start, end, consume)


class _Cluster:
    """One state topic with two partitions, and what a holder writes there."""

    def __init__(self, partitions: int = 2) -> None:
        self.logs = MemoryLogs({TOPIC: 0, "orders.accepted": 2})
        if partitions:
            self.logs.create(TOPIC, partitions, {"cleanup.policy": "compact"})
        self.outbox = Outbox()

    def open(self, cache_bytes: int = 2**20) -> tuple[StateStore, _Reader]:
        """Take the partition over."""
        self.outbox = Outbox()
        reader = _Reader(self.logs, cache_bytes)
        return StateStore(reader, self.outbox), reader

    async def write(self, store: StateStore, states: dict[bytes, bytes | None]) -> None:
        """Acknowledge, and commit."""
        await store.prepare()
        for group, state in states.items():
            self.outbox.set_state(group, state)
        self.outbox.uncommitted()
        offsets = {}
        for record in store.records_of(states):
            offset = self.logs.append_record(TOPIC, record.partition, 0, record.key, record.value).offset
            offsets[record.key or b""] = offset
        store.committed(self.outbox.commit(), offsets)


def _groups(count: int) -> Iterable[bytes]:
    return (b"g%d" % number for number in range(count))


async def _loaded(store: StateStore, groups: Iterable[bytes]) -> Sequence[bytes | None]:
    return [await store.load(group) if (known := store.peek(group)) is UNREAD else known for group in groups]


async def test_read_at_the_first_message_of_a_group() -> None:
    """States are read at the first message of a group, each partition once; later only evicted states are read."""
    cluster = _Cluster()
    store, _ = cluster.open()
    await cluster.write(store, {group: b"state of " + group for group in _groups(50)})
    await cluster.write(store, {b"g1": None, b"g2": b"newer"})

    store, reader = cluster.open()
    assert reader.read == []
    assert store.peek(b"g3") is UNREAD
    assert await _loaded(store, [b"g0", b"g1", b"g2", b"g3", b"new"]) == [
        b"state of g0", None, b"newer", b"state of g3", None,
    ]  # fmt: skip
    await _loaded(store, _groups(50))
    assert len(reader.read) == 4  # the first records of both partitions, and then all


async def test_evicted_states_are_read_by_their_offsets() -> None:
    """An evicted state is read by its offset, whether found at the takeover or written by this holder."""
    cluster = _Cluster()
    store, _ = cluster.open()
    await cluster.write(store, {group: group * 10 for group in _groups(40)})
    store, reader = cluster.open(cache_bytes=1_000)
    await store.load(b"g0")
    await cluster.write(store, {b"g39": b"mine"})
    scans = len(reader.read)

    found = await _loaded(store, _groups(40))

    assert found == [b"mine" if group == b"g39" else group * 10 for group in _groups(40)]
    again = reader.read[scans:]
    assert len(again) > 30
    assert sum(end - begin == 1 for begin, end in again) >= len(again) - 1


async def test_a_successor_reads_anew() -> None:
    """A holder reads the state again after another process had the partition, because its memory is outdated."""
    cluster = _Cluster()
    first, reader = cluster.open()
    await cluster.write(first, {b"g": b"1"})
    assert await first.load(b"g") == b"1"
    first.close()
    elsewhere, _ = cluster.open()
    await elsewhere.load(b"g")
    await cluster.write(elsewhere, {b"g": b"2"})

    assert await StateStore(reader, Outbox()).load(b"g") == b"2"


async def test_the_last_transaction_goes_to_the_right_partition() -> None:
    """The last transaction goes to the right partitions, because their number is still known after the close."""
    cluster = _Cluster(partitions=7)
    store, _ = cluster.open()
    await store.load(b"g")
    await store.prepare()
    before = [record.partition for record in store.records_of(dict.fromkeys(_groups(30), b"1"))]
    store.close()

    assert [record.partition for record in store.records_of(dict.fromkeys(_groups(30), b"1"))] == before
    assert len(set(before)) == 7


async def test_a_state_that_could_not_be_read_is_not_missing() -> None:
    """A state that could not be read is not missing: the topic's value counts even if another group has set its state."""
    cluster = _Cluster()
    store, _ = cluster.open()
    await cluster.write(store, {b"a": b"1", b"b": b"2"})
    store, reader = cluster.open()
    reader.error = KafkaConnectionError()
    with pytest.raises(KafkaConnectionError):
        await store.load(b"b")

    reader.error = None
    await store.prepare()
    assert store.peek(b"b") is UNREAD
    assert await store.load(b"b") == b"2"


@pytest.mark.parametrize("state", [b"3", None])
@pytest.mark.parametrize("offsets", [{}, {b"b": 2}])
async def test_a_write_beside_a_read(state: bytes | None, offsets: dict[bytes, int]) -> None:
    """The partition is read again for one group while another one writes: its last state stays the last one."""
    cluster = _Cluster(partitions=1)
    store, _ = cluster.open()
    await cluster.write(store, {b"b": b"1", b"a": b"2"})
    store, reader = cluster.open(cache_bytes=300)
    assert await store.load(b"a") == b"2"
    store.committed({b"a": b"2"}, {})  # where it stands was not told, and it is evicted
    reader.cache.put(store._number, b"c", b"other")

    async def write() -> None:
        reader.reading = None
        await asyncio.sleep(0)
        store.committed({b"b": state}, offsets)

    reader.reading = write
    assert await store.load(b"a") == b"2"
    assert reader.reading is None
    known = store.peek(b"b")
    assert known in ({None} if state is None else {b"3", UNREAD})
    if state is not None:
        cluster.logs.append_record(TOPIC, 0, 0, b"b", state)
        assert await store.load(b"b") == state


async def test_no_topic_is_no_state() -> None:
    """A missing topic means no states, and the first state creates it with the accepted topic's number of partitions."""
    cluster = _Cluster(partitions=0)
    store, reader = cluster.open()
    assert await _loaded(store, [b"a", b"b"]) == [None, None]
    assert store.is_absent
    await cluster.write(store, {b"a": b"1"})

    assert not store.is_absent
    assert await _loaded(store, [b"a", b"b"]) == [b"1", None]
    assert reader.read == []
    described = cluster.logs.describe(TOPIC)
    assert described is not None
    assert (described.partitions, described.cleanup_policy) == (2, {"compact"})


async def test_a_topic_that_may_not_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handlers without state run; who asks for one gets the reason, and not an empty state."""
    cluster = _Cluster()
    store, reader = cluster.open()

    async def hidden(*, create: bool) -> int:
        raise HiddenTopicError("this user may not describe it")

    with monkeypatch.context() as patched:
        patched.setattr(reader.destinations, "state_partitions", hidden)
        assert await store.load(b"g") is None
    assert store.fault == "this user may not describe it"
    assert store.peek(b"g") is not UNREAD
    assert not store.is_absent
    monkeypatch.setattr(store, "_look_again_at", 0.0)
    assert store.peek(b"g") is UNREAD
    assert await store.load(b"g") is None
    assert store.fault == ""


async def test_a_topic_that_was_deleted_is_looked_for_again() -> None:
    cluster = _Cluster()
    store, reader = cluster.open()
    await store.load(b"g")
    await cluster.write(store, dict.fromkeys(_groups(10), b"1"))
    reader.cache.drop(1)
    reader.error = UnknownTopicOrPartitionError()
    with pytest.raises(UnknownTopicOrPartitionError):
        await store.load(b"g1")
    reader.error = None
    cluster.logs.create(TOPIC, 3, {"cleanup.policy": "compact"})
    cluster.logs.logs.clear()

    assert await store.load(b"g1") is None
    assert store._partitions == 3


async def test_topics_that_lose_states_are_refused() -> None:
    """With more partitions, groups whose hash moved would begin without their states; a policy that deletes takes those of quiet ones."""
    cluster = _Cluster(partitions=2)
    store, _ = cluster.open()
    await cluster.write(store, dict.fromkeys(_groups(20), b"1"))
    cluster.logs.create(TOPIC, 4, {"cleanup.policy": "compact"})
    store, _ = cluster.open()
    for group in (b"new", *_groups(20)):
        with pytest.raises(SendError, match="was given more partitions, so messages wait"):
            await store.load(group)

    cluster.logs.create(TOPIC, 2, {"cleanup.policy": "compact,delete"})
    store, _ = cluster.open()
    with pytest.raises(SendError, match="set it to compact alone"):
        await store.load(b"g")


async def test_a_deleted_topic_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """A deleted state topic is logged as an error, because handlers continue without states."""
    cluster = _Cluster()
    first, reader = cluster.open()
    await cluster.write(first, dict.fromkeys(_groups(10), b"1"))
    assert await first.load(b"g1") == b"1"
    assert "are lost" not in caplog.text

    cluster.logs.create(TOPIC, 0, {})
    reader.destinations.topics.forget(reader.destinations.state_topic)
    for _ in range(2):
        assert await StateStore(reader, Outbox(), first.topic_id).load(b"g1") is None
    assert caplog.text.count(f"{TOPIC} was deleted: its states are lost") == 1

"""Topics that tests write and read, through a client that is not Ringfence's."""

import contextlib
import functools
import itertools
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from aiokafka.partitioner import murmur2
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

# Each process of a test run counts in its own thousands: all of them share a broker.
_numbers = itertools.count(1 + 1000 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")))
WAIT_S = 90.0
BROKERS_MAX = 4
"""Brokers whose clients are kept: a connection costs a broker more CPU than what is asked."""
RECONNECT_MS = 200
"""Longest pause before a client connects again: a broker that a test starts again has the same port."""
_AWAY: dict[str, Any] = {"reconnect.backoff.max.ms": RECONNECT_MS, "log_level": 0}
"""Options of clients that are kept: brokers of tests come and go."""


class Sent(NamedTuple):
    """A record to send. ``id`` None = no duplicate ID."""

    id: bytes | None = None
    key: bytes | None = None
    value: bytes | None = b"value"
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = 0


class Got(NamedTuple):
    """A record that was read."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int

    @property
    def id(self) -> bytes | None:
        return dict(self.headers).get("_AMQ_DUPL_ID")

    @property
    def source(self) -> str:
        return (dict(self.headers)["_RF_SOURCE"] or b"").decode()


def unique(prefix: str) -> str:
    return f"{prefix}-{next(_numbers)}"


def at_home(partition: int, partitions: int) -> bytes:
    names = (b"g%d" % number for number in itertools.count())
    return next(name for name in names if home(name, partitions) == partition)


def home(group: bytes, partitions: int) -> int:
    return int(murmur2(group) & 0x7FFFFFFF) % partitions


@functools.lru_cache(maxsize=BROKERS_MAX)
def admin_client(bootstrap: str) -> AdminClient:
    """Return a client that stays for the next question, also for one after a restart of its broker."""
    return AdminClient({"bootstrap.servers": bootstrap, **_AWAY})


def create_topics(bootstrap: str, topics: dict[str, tuple[int, dict[str, str]]]) -> None:
    admin = admin_client(bootstrap)
    futures = admin.create_topics(
        [NewTopic(name, count, -1, config=config) for name, (count, config) in topics.items()]
    )
    for future in futures.values():
        future.result(WAIT_S)
    # The answer may come before all brokers' metadata shows the topics.
    _until(lambda: _appear(admin, topics), f"{sorted(topics)} do not appear")


def _until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)


def _appear(admin: AdminClient, topics: Iterable[str]) -> bool:
    """Return whether the broker knows these topics. A list of all would have thousands."""
    asked = admin.describe_topics(TopicCollection(list(topics)), request_timeout=WAIT_S)
    return all(future.exception(WAIT_S) is None for future in asked.values())


def settle(bootstrap: str) -> None:
    """Have the broker make its internal topics, so that no test is the one that meets them half-made."""
    create_topics(bootstrap, {"settle": (1, {})})
    send_in_transaction(bootstrap, "settle", [Sent()], commit=True)
    committed(bootstrap, "settle", "settle")


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    """Delete the records of partition 0 below an offset, as ``kafka-delete-records.sh`` does."""
    admin = admin_client(bootstrap)
    (done,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    done.result(WAIT_S)


def delete_topics(bootstrap: str, topics: Sequence[str]) -> None:
    """Delete topics, and wait until the broker has let go of them: its answer comes before, and a write may still pass."""
    admin = admin_client(bootstrap)
    for future in admin.delete_topics(list(topics)).values():
        future.result(WAIT_S)
    _until(
        lambda: not any(_is_there(admin, topic) for topic in topics), f"{topics} are deleted, and still there"
    )


def _is_there(admin: AdminClient, topic: str) -> bool:
    place = TopicPartition(topic, 0)
    try:
        asked = {place: OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        admin.list_offsets(asked, request_timeout=WAIT_S)[place].result(WAIT_S)
    except KafkaException:
        return False
    return True


def alter_topic(bootstrap: str, topic: str, name: str, value: str) -> None:
    admin = admin_client(bootstrap)
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WAIT_S)
    _until(lambda: topic_config(bootstrap, topic, name) == value, f"{topic}: {name} does not become {value}")


def topic_config(bootstrap: str, topic: str, name: str) -> str:
    described = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = admin_client(bootstrap)
    return str(admin.describe_configs([described])[described].result(WAIT_S)[name].value)


def topics(bootstrap: str) -> set[str]:
    return set(admin_client(bootstrap).list_topics(timeout=WAIT_S).topics)


def recreate_topic(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    delete_topics(bootstrap, [topic])
    create_topics(bootstrap, {topic: (partitions, config)})


def grow_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = admin_client(bootstrap)
    for future in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        future.result(WAIT_S)
    _until(
        lambda: len(admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions) == partitions,
        f"{topic} does not get {partitions} partitions",
    )


def send(bootstrap: str, topic: str, records: Iterable[Sent], partition: int = 0, **options: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **options})
    _produce_all(producer, topic, records, partition)


def _produce_all(producer: Producer, topic: str, records: Iterable[Sent], partition: int) -> None:
    for record in records:
        produce(producer, topic, record, partition)
    left = producer.flush(WAIT_S)
    assert left == 0, f"{left} records were not acknowledged within {WAIT_S:g} s"


def send_in_transaction(
    bootstrap: str, topic: str, records: Iterable[Sent], *, commit: bool, partition: int = 0
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique("test-transaction")})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    _produce_all(producer, topic, records, partition)
    if commit:
        producer.commit_transaction(WAIT_S)
    else:
        producer.abort_transaction(WAIT_S)


def produce(producer: Producer, topic: str, record: Sent, partition: int) -> None:
    """Hand one record to a producer; it is there after the next flush."""
    headers: list[tuple[str, str | bytes | None]] = list(record.headers)
    if record.id is not None:
        headers.append(("_AMQ_DUPL_ID", record.id))
    producer.produce(
        topic, value=record.value, key=record.key, partition=partition, headers=headers,
        timestamp=record.timestamp,
    )  # fmt: skip
    producer.poll(0)


CONSUME_S = 0.05
"""Time to collect messages in: the ends of partitions come among them."""
SETTLE_S = 20.0
"""A commit is acknowledged before its markers are written; an open transaction is waited for no longer than this."""


def reader(bootstrap: str, *, wait_ms: int) -> Consumer:
    """Return a reader of committed data, in no group, that reports the ends of partitions. ``wait_ms``: time of a fetch at the end."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": wait_ms,
            **_AWAY,
        }
    )


def read_all(bootstrap: str, topic: str, partitions: int) -> list[Got]:
    found = _records(bootstrap, topic, [0] * partitions)
    return sorted(found, key=lambda item: (item.partition, item.offset))


def _records(bootstrap: str, topic: str, begins: Sequence[int]) -> Generator[Got, None, None]:
    """Read committed records, from these offsets of the partitions up to the present ends."""
    ends = end_offsets(bootstrap, topic, len(begins))
    waiting = {index for index, begin in enumerate(begins) if begin < ends[index]}
    if not waiting:
        return
    deadline = time.monotonic() + SETTLE_S
    with _lent_reader(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, index, begins[index]) for index in waiting])
        while waiting and time.monotonic() < deadline:
            for message in consumer.consume(5_000, CONSUME_S):
                if not message.error():
                    yield _got(message)
                elif (message.offset() or 0) >= ends[message.partition() or 0]:
                    waiting.discard(message.partition() or 0)
                    continue
                deadline = time.monotonic() + SETTLE_S


_idle_readers: dict[str, list[Consumer]] = {}


@contextlib.contextmanager
def _lent_reader(bootstrap: str) -> Iterator[Consumer]:
    idle = _idle_readers[bootstrap] = _idle_readers.pop(bootstrap, [])
    while len(_idle_readers) > BROKERS_MAX:
        for consumer in _idle_readers.pop(next(iter(_idle_readers))):
            consumer.close()
    consumer = idle.pop() if idle else reader(bootstrap, wait_ms=20)  # a short wait: the end is known
    try:
        yield consumer
    finally:
        consumer.unassign()
        idle.append(consumer)


def _got(message: Any) -> Got:
    return Got(
        message.partition(), message.offset(), message.key(), message.value(),
        message.headers() or [], message.timestamp()[1],
    )  # fmt: skip


@functools.lru_cache(maxsize=BROKERS_MAX)
def _asking(bootstrap: str, group: str) -> Consumer:
    """Return a client that asks for offsets. It stays for the next question: most of them are asked until the answer changes."""
    whole = {"isolation.level": "read_uncommitted"}  # else an end is that of the first open transaction
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, **_AWAY, **whole})


def _asked(bootstrap: str, group: str, question: Callable[[Consumer], Any]) -> Any:
    """Ask until there is an answer: the coordinator or the leader may not be there yet."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return question(_asking(bootstrap, group))
        except KafkaException:
            _asking.cache_clear()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def committed(bootstrap: str, group: str, topic: str, partitions: int = 1) -> list[int]:
    wanted = [TopicPartition(topic, index) for index in range(partitions)]
    found: list[TopicPartition] = _asked(bootstrap, group, lambda client: client.committed(wanted, WAIT_S))
    return [topic_partition.offset for topic_partition in found]


def commit(bootstrap: str, group: str, topic: str, offset: int, partition: int = 0) -> None:
    """Set the offset of a group without members, as ``kafka-consumer-groups --reset-offsets`` does."""
    admin = admin_client(bootstrap)
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, offset)])
    for future in admin.alter_consumer_group_offsets([request]).values():
        future.result(WAIT_S)


def end_offsets(bootstrap: str, topic: str, partitions: int = 1) -> list[int]:
    places = [TopicPartition(topic, index) for index in range(partitions)]
    found: list[int] = _asked(
        bootstrap,
        "unused",
        lambda client: [client.get_watermark_offsets(place, WAIT_S)[1] for place in places],
    )
    return found


def data_ends(bootstrap: str, topic: str, partitions: int = 1) -> list[int]:
    """Return the offset after the last committed record of each partition; markers behind it do not count."""
    ends = [0] * partitions
    for item in read_all(bootstrap, topic, partitions):
        ends[item.partition] = item.offset + 1
    return ends


def consumed(bootstrap: str, group: str, topic: str, partitions: int = 1) -> bool:
    """Whether the group has committed all records of a topic; markers at its end do not count."""
    done = [max(0, offset) for offset in committed(bootstrap, group, topic, partitions)]
    with contextlib.closing(_records(bootstrap, topic, done)) as left:
        return next(left, None) is None


def wait_count(bootstrap: str, topic: str, count: int, partitions: int = 1) -> list[Got]:
    deadline = time.monotonic() + WAIT_S
    got: list[Got] = []
    while sum(end_offsets(bootstrap, topic, partitions)) < count or (
        len(got := read_all(bootstrap, topic, partitions)) < count
    ):
        assert time.monotonic() < deadline, f"{len(got)} of {count} records in {topic}"
        time.sleep(0.05)
    return got

"""Faust's aiokafka transport, changed in six points. This file and records.py know Faust's insides.

What is known of aiokafka's stands here, there, and in tables/insides.py, producer.py, clients.py and cluster.py.

1. A fetch is one message: Faust moves an event at a time and pays some 23 callbacks for each; here the records of
   one fetch of one partition travel as one :class:`agents.batch.FetchedBatch`.
2. Each batch says where its fetch began, so that a lane can see that something was stepped over.
3. Only committed data is read, whatever guarantee Faust is set to.
4. Faust's own idea of what was read and of what is slow is off: lanes know better.
5. No record ends the worker: a malformed one is named in its batch, and a damaged one holds up its partition alone.
6. aiokafka's task that fetches is started again when an error has ended it: nobody else would notice.

``tests/integration/test_transport.py`` fails when an upgrade breaks any of them.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, cast

import aiokafka
import faust
from aiokafka import TopicPartition
from aiokafka.errors import (
    ConsumerStoppedError,
    CorruptRecordException,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    UnsupportedCodecError,
)
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage

from agents.batch import FetchedBatch
from app import records as lenient
from tables import insides
from tables.topics import lacking

BATCH_RECORDS_MAX: Final = 5_000
"""Records of one batch, and so of one transaction of one lane."""
FETCH_WAIT_MS: Final = 100
"""How long the broker holds a fetch that finds nothing; meanwhile nothing else is fetched from that broker."""
DAMAGED_PAUSE_S: Final = 1.0
"""How long a partition rests whose next record batch is damaged, before it is fetched again."""


class _NothingRead(dict[TP, int | None]):
    """In place of Faust's record of read offsets, by which it drops what it takes for old.

    A rewind makes offsets go back, and Faust may note a newer offset after it; lanes trim for themselves.
    """

    def __getitem__(self, key: TP) -> None:
        return None

    def __setitem__(self, key: TP, value: int | None) -> None:
        """Forget it."""


class BatchConsumerThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    """Runs the consumer in a thread of its own, as Faust does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._seeks: Counter[TopicPartition] = Counter()
        self._empty: dict[TopicPartition, tuple[int, int]] = {}
        self._resting: dict[TopicPartition, float] = {}
        """Until when, by the monotonic clock, a partition is left alone because its next batch is damaged."""

    def _create_worker_consumer(self, transport: Any) -> aiokafka.AIOKafkaConsumer:
        lenient.install()
        consumer = super()._create_worker_consumer(transport)
        # Both are read when the consumer starts. Faust asks for committed data only under its own exactly_once.
        consumer._isolation_level = "read_committed"  # noqa: SLF001
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS  # noqa: SLF001
        return consumer

    async def _fetch_records(
        self,
        consumer: aiokafka.AIOKafkaConsumer,
        active_partitions: set[TP],
        timeout: float | None = None,  # noqa: ASYNC109 - Faust's signature
        max_records: int | None = None,  # noqa: ARG002 - counted a partition here
    ) -> dict[TopicPartition, FetchedBatch]:
        """What has been fetched of each active partition; waits up to ``timeout`` seconds for something."""
        if not self.consumer.flow_active:
            return {}
        fetcher = consumer._fetcher  # noqa: SLF001
        if consumer._closed or fetcher._closed:  # noqa: SLF001
            raise ConsumerStoppedError
        insides.keep_fetching(fetcher)
        with fetcher._subscriptions.fetch_context():  # noqa: SLF001
            batches = await self._drain(fetcher, active_partitions)
            if not batches and timeout:
                waiter = fetcher._create_fetch_waiter()  # noqa: SLF001
                await asyncio.wait([waiter], timeout=timeout)
                if not waiter.done():
                    waiter.cancel()
                    return {}
                waiter.result()  # a refused authorisation shows here
                batches = await self._drain(fetcher, active_partitions)
            return batches

    async def _drain(self, fetcher: Any, active: set[TP]) -> dict[TopicPartition, FetchedBatch]:
        batches = {}
        subscriptions = fetcher._subscriptions  # noqa: SLF001
        for tp in list(fetcher._records):  # noqa: SLF001
            # While partitions are being assigned, fetched_records would wait, and positions move meanwhile.
            if subscriptions.reassignment_in_progress or subscriptions.subscription is None:
                break
            if tp not in active or not subscriptions.is_assigned(tp):
                continue
            if self._resting.get(tp, 0.0) > time.monotonic():
                continue
            state = subscriptions.subscription.assignment.state_value(tp)
            if not state.has_valid_position:
                continue
            begin = state.position
            parsed = getattr(fetcher._records[tp], "_partition_records", None)  # noqa: SLF001 - None: an error
            try:
                fetched = await fetcher.fetched_records({tp}, timeout=0, max_records=BATCH_RECORDS_MAX)
            except TopicAuthorizationFailedError:
                # It would end the worker. The fetcher asks again until the right is granted again.
                self.transport.unreadable(tp.topic, tp.partition, lacking("topic", tp.topic, {"Read"}))
                continue
            except CorruptRecordException as error:
                self._resting[tp] = time.monotonic() + DAMAGED_PAUSE_S
                self.transport.unreadable(tp.topic, tp.partition, _damaged(tp, begin, error))
                continue
            records = fetched.get(tp, [])
            end = state.position if state.has_valid_position else begin
            batch = self._batch(tp, begin, end, records, dict(parsed.malformed) if parsed is not None else {})
            if batch is not None:
                batches[tp] = batch
        return batches

    def _batch(
        self, tp: TopicPartition, begin: int, end: int, records: list[Any], malformed: Mapping[int, str]
    ) -> FetchedBatch | None:
        """The batch, begun where earlier fetches of the same stretch found only markers and aborted records."""
        earlier = self._empty.pop(tp, None)
        if earlier is not None and earlier[1] == begin:
            begin = earlier[0]
        if not records:
            if end > begin:
                self._empty[tp] = (begin, end)
            return None
        return FetchedBatch(tp.topic, tp.partition, begin, end, records, self._seeks[tp], malformed)

    async def rewind(self, tp: TopicPartition, offset: int) -> int:
        """Fetch from ``offset`` again; runs in the consumer's thread."""
        self._seeks[tp] += 1
        self._empty.pop(tp, None)
        self._ensure_consumer().seek(tp, offset)
        return self._seeks[tp]

    async def is_member(self, generation: int) -> bool:
        """Ask the group's coordinator, now, whether we are a member of this generation; in the consumer's thread."""
        return await insides.is_member(self._ensure_consumer(), generation)

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Lanes report for themselves; Faust's watch of each event does not fit batches."""


def _damaged(tp: TopicPartition, offset: int, error: CorruptRecordException) -> str:
    cause = error.__cause__
    way_out = (
        "install a library for it (cramjam) where the workers run, and start them again"
        if isinstance(cause, UnsupportedCodecError)
        else f"look at the brokers' disks; if it is lost, delete {tp.topic}/{tp.partition} up to behind it "
        "(kafka-delete-records.sh), which is told as GAP"
    )
    return f"the record batch at offset {offset} cannot be read ({cause!r}): {way_out}"


class BatchConsumer(driver.Consumer):  # type: ignore[misc]
    """Hands Faust one message a fetch and partition."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._read_offset = _NothingRead()

    def _new_consumer_thread(self) -> BatchConsumerThread:
        return BatchConsumerThread(self, loop=self.loop, beacon=self.beacon)

    @property
    def thread(self) -> BatchConsumerThread:
        """The thread that owns the aiokafka consumer."""
        return cast("BatchConsumerThread", self._thread)

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, ConsumerMessage]]:  # noqa: ASYNC109
        """Yield the batches of one fetch. What a rebalance overtakes is dropped: it will be fetched again."""
        try:
            batches, active = await self._wait_next_records(timeout)
        except GroupAuthorizationFailedError as error:
            # aiokafka's coordinator has ended: there is no going on, but there is an end in order.
            self.transport.excluded(str(error))
            await asyncio.sleep(timeout)
            return
        generation = self.app.consumer_generation_id
        if batches is None or self.should_stop:
            return
        for tp, batch in batches.items():
            if not self.flow_active or self.app.consumer_generation_id != generation:
                return
            if active is None or tp in active or tp in self._buffered_partitions:
                yield tp, self._batch_message(TP(tp.topic, tp.partition), batch)

    def _batch_message(self, tp: TP, batch: FetchedBatch) -> ConsumerMessage:
        last = batch.records[-1]
        return ConsumerMessage(
            tp.topic, tp.partition, last.offset, last.timestamp / 1000, 0, (), None, batch, None, 0, 0, tp,
            generation_id=self.app.consumer_generation_id,
        )  # fmt: skip


class BatchTransport(driver.Transport):  # type: ignore[misc]
    """Set as ``app.transport``."""

    Consumer = BatchConsumer
    unreadable: Callable[[str, int, str], None] = staticmethod(lambda _topic, _partition, _reason: None)
    """Told, in the consumer's thread, of each fetch of a partition that is refused."""
    excluded: Callable[[str], None] = staticmethod(lambda _reason: None)
    """Told, any number of times, that we may not use our consumer group any more."""


class GroupOwnership:
    """A lane's view of the consumer group, for one assignment (see :class:`agents.opening.Ownership`)."""

    def __init__(self, app: faust.App) -> None:
        self._app = app
        self._generation = app.consumer_generation_id

    async def confirm(self) -> bool:
        """Whether the broker confirms our membership in the generation of the assignment."""
        return bool(await self._thread.call_thread(self._thread.is_member, self._generation))

    async def rewind(self, topic: str, partition: int, offset: int) -> int:
        """Fetch from ``offset`` again."""
        tp = TopicPartition(topic, partition)
        return int(await self._thread.call_thread(self._thread.rewind, tp, offset))

    @property
    def _thread(self) -> BatchConsumerThread:
        return cast("BatchConsumer", self._app.consumer).thread

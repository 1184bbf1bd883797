"""Follows the changelog of an address, from its end on, with one reader for all messages of an outbox."""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError, TopicAuthorizationFailedError

from ringfence_client.receipts.lane_memory import (
    RING_KIND,
    Awaited,
    LaneMemory,
    id_of,
    sequence_of,
)
from ringfence_client.receipts.receipt import OutboxError
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.aiokafka_patches import internals
from ringfence_kafka.concurrency.coalesce import RequestCoalescer
from ringfence_kafka.concurrency.timeouts import cancelled
from ringfence_kafka.readers import consumers
from ringfence_kafka.readers.log_reader import TAIL_OFFSETS, LogReader

log: Final = logging.getLogger("ringfence.outbox")

IDS_MAX: Final = 200_000
"""Limit of kept IDs, all lanes together: some 215 bytes each, with IDs of 32 bytes."""
_POLL_MS: Final = 500
_RECORDS_MAX: Final = 2_000
_AGAIN_S: Final = 0.2


class ChangelogFollower:
    """Reads committed records of lanes. A lane's state and slots become visible with its transaction."""

    def __init__(self, cluster: Cluster, reader: LogReader, topic: str) -> None:
        self._cluster = cluster
        self._reader = reader
        self._topic = topic
        self._lanes: dict[int, LaneMemory] = {}
        self._history: dict[int, RequestCoalescer[bytes, bytes | None]] = {}
        self._awaited: defaultdict[bytes, list[Awaited]] = defaultdict(list)
        self._consumer: AIOKafkaConsumer
        self._task: asyncio.Task[None] | None = None
        self._growing = asyncio.Lock()
        self._fault: Exception | None = OutboxError(
            "the outbox is not open: use it within 'with' or 'async with'"
        )

    async def start(self, lanes: int) -> None:
        """Start at the end of each lane's changelog."""
        self._consumer = await consumers.connected(self._cluster.kafka)
        await self._assign(range(lanes), from_start=False)
        self._fault = None
        self._task = asyncio.create_task(self._follow(), name=f"follow {self._topic}")

    async def stop(self) -> None:
        """Disconnect. Waiting sends fail."""
        if self._task is not None:
            await cancelled(self._task)
            await internals.end(self._consumer, consumers.STOP_LIMIT_S)
        await asyncio.gather(*(history.stop() for history in self._history.values()))
        self._fail(OutboxError("the outbox is closed: the verdicts of sent messages are unknown"))

    def require(self) -> None:
        """Raise the error that keeps verdicts from being read, if there is one."""
        if self._fault is not None:
            raise self._fault

    @contextlib.contextmanager
    def awaiting(self, lane: int, stored_id: bytes | None) -> Iterator[Awaited]:
        """Collect the slots of an ID during the block, which sends its message to ``lane``."""
        memory = self._lanes.get(lane)
        message = Awaited(stored_id, None if memory is None else memory.state)
        if stored_id is None:
            yield message
            return
        self._awaited[stored_id].append(message)
        try:
            yield message
        finally:
            self._awaited[stored_id].remove(message)
            if not self._awaited[stored_id]:
                del self._awaited[stored_id]

    async def lane(self, number: int) -> LaneMemory:
        """Return the memory of a lane. A lane that was added since the start is read from its beginning."""
        self.require()
        if number not in self._lanes:
            async with self._growing:
                new = [lane for lane in range(number + 1) if lane not in self._lanes]
                await self._assign(new, from_start=True)
        return self._lanes[number]

    async def slot(self, lane: int, stored_id: bytes) -> bytes | None:
        """Return the value of an ID's last ring record, remembered or not; None = the changelog has none."""
        memory = await self.lane(lane)
        value = memory.known.get(stored_id)
        if value is None and not memory.complete:
            if lane not in self._history:
                self._history[lane] = RequestCoalescer(partial(self._read_history, lane))
            older = await self._history[lane].answer(stored_id)
            value = memory.known.get(stored_id, older)
        return value

    @property
    def _ids_max(self) -> int:
        return IDS_MAX // max(1, len(self._lanes))

    async def _read_history(self, lane: int, ids: Collection[bytes]) -> Mapping[bytes, bytes | None]:
        """Read the changelog up to the present position, and return the IDs' slots. Keeps everything if the whole ring has room."""
        memory = self._lanes[lane]
        keeps = memory.state is not None and memory.state.capacity <= self._ids_max
        found: dict[bytes, bytes] = {}

        async def take(records: Sequence[Any]) -> None:
            for record in records:
                if record.value is None or record.key[:1] != RING_KIND:
                    continue
                stored = id_of(record.value)
                if keeps or stored in ids:
                    former = found.get(stored)
                    if former is None or sequence_of(former) < sequence_of(record.value):
                        found[stored] = record.value

        start = await self._cluster.offsets.log_start(self._topic, lane)
        end = await self._consumer.position(TopicPartition(self._topic, lane))
        await self._reader.read_range(self._topic, lane, start, end, take)
        answers = {stored: found.get(stored) for stored in ids}
        if keeps:
            memory.add_older(found, self._ids_max)
        return answers

    async def _assign(self, lanes: Collection[int], *, from_start: bool) -> None:
        offsets = self._cluster.offsets
        begins = {}
        for lane in lanes:
            start = await offsets.log_start(self._topic, lane)
            end = start if from_start else await offsets.stable_end(self._topic, lane)
            begins[lane] = max(start, end - TAIL_OFFSETS)  # The last meta record is normally among these.
            self._lanes[lane] = LaneMemory(complete=begins[lane] == start)
        for tp in self._consumer.assignment():
            begins[tp.partition] = await self._consumer.position(tp)
        self._consumer.assign([TopicPartition(self._topic, lane) for lane in begins])
        for lane, offset in begins.items():
            self._consumer.seek(TopicPartition(self._topic, lane), offset)

    async def _follow(self) -> None:
        while True:
            try:
                await self._take_next()
            except OffsetOutOfRangeError as error:
                for tp in error.args[0]:
                    log.warning(
                        "%s/%d was recreated or lost its last records: reading it from its start", *tp
                    )
                    await self._start_again(tp)
            except TopicAuthorizationFailedError:
                self._fail(
                    OutboxError(
                        f"this user may not read {self._topic}, so verdicts are unknown: allow Describe and "
                        "Read on it"
                    )
                )
                return
            except (KafkaError, OSError, TimeoutError) as error:
                log.debug("%s cannot be read now: %r", self._topic, error)
                await asyncio.sleep(_AGAIN_S)
            except Exception as error:  # sends must not wait any longer
                self._fail(error)
                raise

    async def _take_next(self) -> None:
        internals.keep_fetching(self._consumer)
        fetched = await self._consumer.getmany(timeout_ms=_POLL_MS, max_records=_RECORDS_MAX)
        for tp, records in fetched.items():
            self._lanes[tp.partition].apply_records(records, self._awaited, self._ids_max)

    async def _start_again(self, tp: TopicPartition) -> None:
        self._lanes[tp.partition].forget()
        for messages in self._awaited.values():
            for message in messages:
                message.before = None
        self._consumer.seek(tp, await self._cluster.offsets.log_start(self._topic, tp.partition))

    def _fail(self, error: Exception) -> None:
        self._fault = error
        for memory in self._lanes.values():
            memory.fail(error)

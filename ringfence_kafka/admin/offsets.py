"""First and next offsets of partitions, queried for many partitions at once.

A request of aiokafka's consumer fails for all partitions if one fails, and is repeated while one has no leader.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    StaleMetadata,
    UnknownError,
    for_code,
)
from aiokafka.protocol.offset import OffsetRequest

from ringfence_kafka.admin.connection import Connection
from ringfence_kafka.aiokafka_patches import internals
from ringfence_kafka.auth.client_options import REQUEST_TIMEOUT_MS, RETRY_BACKOFF_MS
from ringfence_kafka.concurrency.coalesce import RequestCoalescer, StoppedError

_FIRST: Final = -2
"""Query for the oldest remaining record."""
_NEXT: Final = -1
"""Query for the high watermark: the offset of the next record, committed or not."""
_STABLE: Final = -10
"""Query for the last stable offset, the end of readable committed records. Ringfence chose this number; the protocol does not have it."""
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
_NO_REPLICA: Final = -1
_OFFSET_NOT_AVAILABLE: Final = 78
"""Error of a newly elected leader that does not know the offset yet. aiokafka has no name for it."""

Partition = tuple[str, int]
"""Topic and partition number."""


class OffsetReader:
    """Reads offsets of partitions. Concurrent calls share one request to each broker. A failed partition does not affect others."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._asked: dict[tuple[int, int], RequestCoalescer[TopicPartition, int]] = {}
        self._stopped = False

    async def high_watermark(self, topic: str, partition: int) -> int:
        """Return the offset of the next record, committed or not.

        The last stable offset is not suitable for a restore: any open transaction holds it back, and committed records behind it would be
        missed.
        """
        return await self._ask(TopicPartition(topic, partition), _NEXT)

    async def stable_end(self, topic: str, partition: int) -> int:
        """Return the end of the data that a reader of committed data can read now. An open transaction holds it back."""
        return await self._ask(TopicPartition(topic, partition), _STABLE)

    async def stable_ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the stable ends of several partitions, with one request to each broker."""
        ends = await asyncio.gather(*(self.stable_end(*partition) for partition in partitions))
        return dict(zip(partitions, ends, strict=True))

    async def log_start(self, topic: str, partition: int) -> int:
        """Return the offset of the oldest remaining record."""
        return await self._ask(TopicPartition(topic, partition), _FIRST)

    async def since(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Return the offset of the first record that is not older than a timestamp, committed or not; None = there is none."""
        found = await self._ask(TopicPartition(topic, partition), timestamp_ms)
        return None if found < 0 else found

    async def known_ends(self, partitions: Collection[Partition], limit_s: float) -> dict[Partition, int]:
        """Return the high watermarks that brokers report within ``limit_s`` seconds."""
        return await self._known(partitions, _NEXT, limit_s)

    async def known_starts(self, partitions: Collection[Partition], limit_s: float) -> dict[Partition, int]:
        """Return the log starts that brokers report within ``limit_s`` seconds."""
        return await self._known(partitions, _FIRST, limit_s)

    async def known_stable_ends(
        self, partitions: Collection[Partition], limit_s: float
    ) -> dict[Partition, int]:
        """Return the stable ends that brokers report within ``limit_s`` seconds."""
        return await self._known(partitions, _STABLE, limit_s)

    async def stop(self) -> None:
        """Stop. Waiting queries raise StoppedError."""
        self._stopped = True
        await asyncio.gather(*(value.stop() for value in self._asked.values()))

    @property
    def _client(self) -> Any:
        return internals.client_of(self._connection.consumer)

    async def _ask(self, tp: TopicPartition, which: int) -> int:
        """Query one present offset.

        Raises:
            KafkaTimeoutError: the partition has no leader, or its leader does not answer, within the request time-out.
            KafkaError: the broker refuses.
        """
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1000):
                while True:
                    try:
                        if self._stopped:
                            raise StoppedError
                        await internals.await_metadata(self._client)
                        node = self._known_leader(tp)
                        if which >= 0:  # a timestamp, which queries rarely share
                            answer = (await self._request(node, which, [tp]))[tp]
                            if isinstance(answer, Exception):
                                raise answer
                            return answer
                        if (node, which) not in self._asked:
                            self._asked[node, which] = RequestCoalescer(partial(self._request, node, which))
                        return await self._asked[node, which].answer(tp)
                    except KafkaError as error:
                        if not error.retriable:
                            raise
                        if error.invalid_metadata:
                            self._client.force_metadata_update()
                    await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
        except TimeoutError as error:
            raise KafkaTimeoutError(f"no broker reports the offsets of {tp.topic}/{tp.partition}") from error

    async def _known(
        self, partitions: Collection[Partition], which: int, limit_s: float
    ) -> dict[Partition, int]:
        """Query many offsets at once: a thousand separate calls would cost some tenths of a second of CPU.

        Raises:
            StoppedError: the reader was stopped.
        """
        found: dict[TopicPartition, int] = {}
        left = {TopicPartition(*partition) for partition in partitions}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while left:
                    if self._stopped:
                        raise StoppedError
                    await internals.await_metadata(self._client)
                    errors = await self._request_all(left, which, found)
                    left = {tp for tp, error in errors.items() if error.retriable}
                    if any(error.invalid_metadata for error in errors.values()):
                        self._client.force_metadata_update()
                    if left:
                        await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
        return {(tp.topic, tp.partition): offset for tp, offset in found.items()}

    async def _request_all(
        self, tps: Collection[TopicPartition], which: int, found: dict[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError]:
        """Store each broker's answers on arrival, so that a silent broker does not discard the others'. Return the errors."""
        errors: dict[TopicPartition, KafkaError] = {}
        by_node = defaultdict(list)
        for tp in tps:
            try:
                by_node[self._known_leader(tp)].append(tp)
            except KafkaError as error:
                errors[tp] = error

        async def ask(node: int) -> None:
            try:
                answers = await self._request(node, which, by_node[node])
            except KafkaError as error:
                errors.update(dict.fromkeys(by_node[node], error))
                return
            for tp, answer in answers.items():
                if isinstance(answer, int):
                    found[tp] = answer
                elif isinstance(answer, KafkaError):
                    errors[tp] = answer

        await asyncio.gather(*map(ask, by_node))
        return errors

    def _known_leader(self, tp: TopicPartition) -> int:
        node: int | None = self._client.cluster.leader_for_partition(tp)
        if node is None:
            self._client.add_topic(tp.topic)
            raise StaleMetadata(tp)
        if node == -1:
            raise LeaderNotAvailableError(tp)
        return node

    async def _request(
        self, node: int, which: int, tps: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | Exception]:
        topics = defaultdict(list)
        for tp in tps:
            topics[tp.topic].append((tp.partition, _NEXT if which == _STABLE else which))
        isolation = _READ_COMMITTED if which == _STABLE else _READ_UNCOMMITTED
        request = OffsetRequest(_NO_REPLICA, isolation, list(topics.items()))
        response = await self._client.send(node, request)
        answers: dict[TopicPartition, int | Exception] = {tp: UnknownError(tp) for tp in tps}
        for topic, partitions in response.topics:
            for number, code, _timestamp, offset, *_ in partitions:
                tp = TopicPartition(topic, number)
                error = LeaderNotAvailableError if code == _OFFSET_NOT_AVAILABLE else for_code(code)
                answers[tp] = error(tp) if code else int(offset)
        return answers

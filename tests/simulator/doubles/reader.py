"""Double of aiokafka's consumer without a group: positions move when records are taken, and records fetched ahead may be dropped."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError, UnknownTopicOrPartitionError

from tests.simulator.kafka.logs import Fetched, Headers

FETCH_OFFSETS: Final = 8
"""Offsets in one fetch of one partition: few, so that there are many fetches."""
AGAIN_S: Final = 0.1


class Taken(NamedTuple):
    """A record, as aiokafka has it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class _Ahead(NamedTuple):
    """Records of one partition that one fetch returned."""

    begin: int
    end: int
    records: list[Taken]


class SimulatedReader:
    """aiokafka's AIOKafkaConsumer, as far as the product uses its internals."""

    def __init__(self, **_: Any) -> None:
        loop: Any = asyncio.get_running_loop()
        self._process = loop.process
        self._network = self._process.network
        self._cluster = self._process.cluster
        self._positions: dict[TopicPartition, int | None] = {}
        self._paused: set[TopicPartition] = set()
        self._ahead: dict[TopicPartition, _Ahead | Exception] = {}
        self._came = asyncio.Event()
        self._wanted = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._fetching: asyncio.Task[None] | None = None
        # Attributes that the product reads.
        self._client = SimpleNamespace(force_metadata_update=lambda: None, close=self._nothing)
        self._fetcher = self

    async def _nothing(self) -> None:
        """Do nothing: this is not simulated."""

    # -- aiokafka's interface ----------------------------------------------------------------------------------

    async def start(self) -> None:
        await self._network.call(self._connect)
        self._process.readers[self] = None
        self._fetching = asyncio.create_task(self._fetch())

    async def stop(self) -> None:
        self._process.readers.pop(self, None)
        task, self._fetching = self._fetching, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._positions = dict.fromkeys(partitions)
        self._paused.clear()
        self._ahead.clear()

    def assignment(self) -> set[TopicPartition]:
        return set(self._positions)

    def paused(self) -> set[TopicPartition]:
        return set(self._paused)

    def pause(self, *partitions: TopicPartition) -> None:
        self._require(partitions)
        self._paused.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._require(partitions)
        self._paused.difference_update(partitions)
        self._wanted.set()

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._require([tp])
        self._positions[tp] = offset
        self._wanted.set()

    async def position(self, tp: TopicPartition) -> int:
        found = self._positions[tp]
        assert found is not None, f"{tp} has no position"
        return found

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Taken]]:
        left = timeout_ms / 1000
        while True:
            if not self._settled.is_set():
                await self._settled.wait()
            drained = self._drain(partitions, max_records)
            if drained or left <= 0:
                return drained
            self._came.clear()
            timer = asyncio.get_running_loop().call_later(left, self._came.set)
            await self._came.wait()
            timer.cancel()
            left = 0.0

    # -- what the product looks at inside of it (ringfence_kafka.aiokafka_patches.internals) --------------------------------------

    def fetched(self) -> dict[TopicPartition, int]:
        return {
            tp: 100 * len(item.records) if isinstance(item, _Ahead) else 0 for tp, item in self._ahead.items()
        }

    def reached(self, tp: TopicPartition) -> int | None:
        return self._positions.get(tp)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._ahead.pop(tp, None)
        self._wanted.set()

    # -- inside ------------------------------------------------------------------------------------------------

    def notice(self, topics: Collection[str]) -> None:
        if any(tp.topic in topics and tp not in self._paused for tp in self._positions):
            self._wanted.set()

    @staticmethod
    def _connect() -> None:
        """Connect to the cluster."""

    def _failed(self, tp: TopicPartition, error: Exception) -> None:
        """Note an error that comes out of ``getmany``."""

    def _require(self, partitions: Iterable[TopicPartition]) -> None:
        missing = [partition for partition in partitions if partition not in self._positions]
        assert not missing, f"{missing} are not assigned"

    def _drain(
        self, partitions: tuple[TopicPartition, ...], most: int | None
    ) -> dict[TopicPartition, list[Taken]]:
        drained: dict[TopicPartition, list[Taken]] = {}
        for tp, ahead in list(self._ahead.items()):
            if partitions and tp not in partitions:
                continue
            if isinstance(ahead, Exception):
                if not drained:
                    del self._ahead[tp]
                    self._wanted.set()
                    self._failed(tp, ahead)
                    raise ahead
                break
            del self._ahead[tp]
            self._wanted.set()
            if tp in self._paused or self._positions.get(tp) != ahead.begin:
                continue
            taken = ahead.records[:most]
            if len(taken) < len(ahead.records):
                begin = taken[-1].offset + 1
                self._ahead[tp] = _Ahead(begin, ahead.end, ahead.records[len(taken) :])
                self._positions[tp] = begin
            else:
                self._positions[tp] = ahead.end
            if taken:
                drained[tp] = taken
                most = None if most is None else most - len(taken)
                if most == 0:
                    break
        return drained

    async def _fetch(self) -> None:
        while True:
            self._wanted.clear()
            wanted = {
                tp: position
                for tp, position in self._positions.items()
                if position is not None
                and tp not in self._paused
                and tp not in self._ahead
                and self._cluster.brings(*tp, position)
            }
            try:
                fetched = await self._network.call(self._read, wanted) if wanted else {}
            except KafkaError:
                await asyncio.sleep(AGAIN_S)
                continue
            if not self._take(wanted, fetched):
                await self._wanted.wait()

    def _read(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Fetched | Exception]:
        found: dict[TopicPartition, Fetched | Exception] = {}
        for tp, position in wanted.items():
            try:
                found[tp] = self._cluster.fetch(*tp, position, position + FETCH_OFFSETS)
            except OffsetOutOfRangeError:
                found[tp] = OffsetOutOfRangeError({tp: position})
            except UnknownTopicOrPartitionError as error:
                found[tp] = error
        return found

    def _take(
        self, wanted: Mapping[TopicPartition, int], fetched: Mapping[TopicPartition, Fetched | Exception]
    ) -> bool:
        got = False
        for tp, found in fetched.items():
            if self._positions.get(tp) != wanted[tp]:
                got = True  # sought elsewhere meanwhile: fetch again
            elif isinstance(found, UnknownTopicOrPartitionError):
                self._client.force_metadata_update()
                asyncio.get_running_loop().call_later(AGAIN_S, self._wanted.set)
            elif isinstance(found, Exception):
                self._ahead[tp] = found
                self._came.set()
                got = True
            elif found.end > wanted[tp]:
                got = True
                if not found.records:
                    self._positions[tp] = found.end  # markers, and aborted records
                    self._came.set()
                    continue
                records = [Taken(tp.topic, tp.partition, *record[:5]) for record in found.records]
                self._ahead[tp] = _Ahead(wanted[tp], found.end, records)
                self._came.set()
        return got
